"""An error is explained by running the failing step again: the line is right, and the program is as it was."""

from __future__ import annotations

import runpy
import sys
import textwrap
import threading
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradkit.core import attempts, i18n
from gradkit.live import explain
from gradkit.source import faults
from tests.live import failing

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
"""

PROGRAMS = {
    "a flat script": """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            loss = model(torch.randn(8, 4)).detach().mean()  # CUT
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "a main function with a loader": """
        from torch.utils.data import DataLoader, TensorDataset

        def main():
            model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
            optimizer = torch.optim.Adam(model.parameters())
            data = TensorDataset(torch.randn(12, 4), torch.randint(0, 3, (12,)))
            loader = DataLoader(data, batch_size=4, shuffle=True)
            for epoch in range(2):
                for x, y in loader:
                    predicted = model(x).argmax(1).float()  # CUT
                    loss = F.mse_loss(predicted, y.float())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

        if __name__ == "__main__":
            main()
    """,
    "a trainer with methods": """
        class Trainer:
            def __init__(self):
                self.net = nn.Linear(3, 2)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

            def compute_loss(self, batch):
                with torch.no_grad():  # CUT
                    out = self.net(batch)
                return out.pow(2).mean()

            def training_step(self, batch):
                self.optimizer.zero_grad()
                loss = self.compute_loss(batch)
                loss.backward()
                self.optimizer.step()
                return loss.item()

            def fit(self, batches):
                for batch in batches:
                    self.training_step(batch)

        Trainer().fit([torch.randn(4, 3) for _ in range(3)])
    """,
    "a closure given to the optimizer": """
        model = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
        x, y = torch.randn(5, 3), torch.randn(5, 1)
        for epoch in range(2):
            def closure():
                optimizer.zero_grad()
                loss = torch.tensor(F.mse_loss(model(x), y).item())  # CUT
                loss.backward()
                return loss
            optimizer.step(closure)
    """,
    "helpers that go backward for their caller": """
        def backward(loss, scale):
            loss = loss / scale
            loss.backward()

        def update(optimizer, loss, scale):
            optimizer.zero_grad()
            backward(loss, scale)
            optimizer.step()

        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            out = model(torch.randn(4, 3))
            values = out.detach().numpy()  # CUT
            update(optimizer, torch.from_numpy(values).mean(), 2)
    """,
    "the second backward of a pair of networks": """
        G, D = nn.Linear(2, 3), nn.Linear(3, 1)
        opt_g, opt_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        for i in range(3):
            fake = G(torch.randn(4, 2))
            d_loss = D(fake.detach()).mean() - D(torch.randn(4, 3)).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            score = D(fake.data).detach()  # CUT
            g_loss = -score.mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
    """,
    "no_grad in the caller": """
        def fit(model, batches):
            for batch in batches:
                loss = model(batch).pow(2).mean()
                loss.backward()

        def main():
            model = nn.Linear(3, 1)
            with torch.no_grad():  # CUT
                for epoch in range(2):
                    fit(model, [torch.randn(4, 3) for _ in range(3)])

        main()
    """,
    "no_grad as a decorator": """
        @torch.no_grad()  # CUT
        def train_epoch(model, batches):
            for batch in batches:
                loss = model(batch).pow(2).mean()
                loss.backward()

        model = nn.Linear(3, 1)
        for epoch in range(2):
            train_epoch(model, [torch.randn(4, 3) for _ in range(3)])
    """,
    "a state that is carried from chunk to chunk": """
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.out = nn.GRUCell(2, 4), nn.Linear(4, 2)

            def forward(self, x, hidden):
                hidden = self.cell(x, hidden)
                return self.out(hidden), hidden

        model = Reader()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        hidden = torch.zeros(3, 4)
        for chunk in torch.randn(5, 3, 2):
            predicted, hidden = model(chunk, hidden)  # CUT
            loss = F.mse_loss(predicted, chunk)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "accumulated gradients": """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        accumulate = 2
        for i, batch in enumerate(torch.randn(6, 3, 4)):
            logits = model(batch)
            picked = logits.round().long().float()  # CUT
            loss = picked.sum() / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    """,
    "autocast around the forward pass": """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.randn(3, 5, 4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (model(batch) > 0).float().mean()  # CUT
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    """,
    "a progress bar": """
        from tqdm import tqdm
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        bar = tqdm(torch.randn(3, 5, 4), desc="epoch 0")
        for batch in bar:
            loss = model(batch).pow(2).mean(1)  # CUT
            bar.set_postfix(n=1)
            loss.backward()
            optimizer.step()
    """,
    "a parameter written in forward": """
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(3))

            def forward(self, x):
                self.scale.clamp_(0, 1)  # CUT
                return x * self.scale

        model = Scaled()
        for batch in torch.randn(3, 5, 3):
            loss = model(batch).mean()
            loss.backward()
    """,
    "numpy called in forward": """
        class Ranked(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)

            def forward(self, x):
                out = self.fc(x)
                return out * out.numpy().argmax()  # CUT

        model = Ranked()
        for batch in torch.randn(3, 5, 3):
            model(batch).mean().backward()
    """,
    "autograd.grad of what has no history": """
        def penalty(critic, real):
            with torch.no_grad():  # CUT
                score = critic(real)
            (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
            return (slope.norm(dim=1) - 1).pow(2).mean()

        critic = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(critic.parameters())
        for batch in torch.randn(3, 5, 3):
            loss = penalty(critic, batch.clone().requires_grad_())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "a custom Function that raises in backward": """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 2 + x.missing  # CUT

        model = nn.Linear(3, 1)
        for batch in torch.randn(3, 5, 3):
            loss = Double.apply(model(batch)).mean()
            loss.backward()
    """,
    "a value overwritten before the backward": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)

            def forward(self, x):
                h = torch.sigmoid(self.fc(x))
                h += x  # CUT
                return h

        model = Block()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.randn(3, 5, 3):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
    """,
    "an optimizer that steps between": """
        actor, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        actor_opt, critic_opt = torch.optim.SGD(actor.parameters(), 0.1), torch.optim.SGD(critic.parameters(), 0.1)
        for batch in torch.randn(3, 5, 3):
            action = actor(batch)
            actor_loss = -critic(action).mean()
            critic_loss = critic(action.detach()).pow(2).mean()
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()  # CUT
            actor_opt.zero_grad()
            actor_loss.backward()
            actor_opt.step()
    """,
    "two losses that share a trunk": """
        trunk, a, b = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*trunk.parameters(), *a.parameters(), *b.parameters()], lr=0.1)
        for x in torch.randn(3, 5, 4):
            h = torch.tanh(trunk(x))
            loss_a, loss_b = a(h).mean(), b(h).mean()
            optimizer.zero_grad()
            loss_a.backward()  # CUT
            loss_b.backward()
            optimizer.step()
    """,
    "a total that grows from step to step": """
        model, total = nn.Linear(4, 1), 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in torch.randn(3, 5, 4):
            loss = model(x).pow(2).mean()
            total = total + loss  # CUT
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    """,
    "a gradient penalty without create_graph": """
        def penalty(critic, real):
            slope = torch.autograd.grad(critic(real).sum(), real)[0]  # CUT
            return (slope.norm(dim=1) - 1).pow(2).mean()

        critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(critic.parameters())
        for batch in torch.randn(3, 5, 3):
            optimizer.zero_grad()
            penalty(critic, batch.clone().requires_grad_()).backward()
            optimizer.step()
    """,
    "only an input is trained": """
        net = nn.Linear(4, 3).requires_grad_(False)
        delta = torch.zeros(1, 4, requires_grad=True)
        optimizer = torch.optim.Adam([delta], lr=0.1)
        images, target = torch.rand(5, 4), torch.zeros(5, dtype=torch.long)
        for it in range(3):
            logits = net((images + delta).detach())  # CUT
            loss = F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "the batch goes by the name of its activations": """
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(3)]:
            x = model[0](x)
            x = model[1](x)
            x = x.argmax(1).float()  # CUT
            loss = F.mse_loss(x, y.float())
            loss.backward()
            optimizer.step()
    """,
    "an error that is caught and raised anew": """
        class TrainingFailed(RuntimeError):
            pass

        def step(model, batch):
            loss = torch.tensor(model(batch).mean().item())  # CUT
            loss.backward()

        def main():
            model = nn.Linear(3, 1)
            for batch in torch.randn(3, 5, 3):
                try:
                    step(model, batch)
                except RuntimeError as error:
                    raise TrainingFailed("step failed") from error

        main()
    """,
    "a module is frozen elsewhere": """
        class Probe(nn.Module):
            def __init__(self, backbone):
                super().__init__()
                self.backbone = backbone
                for p in self.backbone.parameters():
                    p.requires_grad = False  # CUT

            def forward(self, x):
                return self.backbone(x)

        model = Probe(nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.randn(3, 5, 3):
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
    """,
    "a temperature of which only its number is used": """
        actor, log_alpha = nn.Linear(3, 2), torch.zeros(1, requires_grad=True)
        of_actor, of_alpha = torch.optim.SGD(actor.parameters(), 0.1), torch.optim.SGD([log_alpha], 0.1)
        alpha = log_alpha.exp().item()
        for state in torch.randn(3, 5, 3):
            loss = alpha * actor(state).logsumexp(1).mean()
            of_actor.zero_grad()
            loss.backward()
            of_actor.step()
            with torch.no_grad():
                entropy = actor(state).logsumexp(1)
            of_alpha_loss = (-alpha * (entropy + 1.0)).mean()  # CUT
            of_alpha.zero_grad()
            of_alpha_loss.backward()
            of_alpha.step()
            alpha = log_alpha.exp().item()
    """,
    "a loss for every sample": """
        def per_sample(logits, target):
            return F.cross_entropy(logits, target, reduction="none")  # CUT

        def train(model, optimizer, data):
            for x, y in data:
                optimizer.zero_grad()
                loss = per_sample(model(x), y)
                loss.backward()
                optimizer.step()

        net = nn.Linear(3, 4)
        train(net, torch.optim.SGD(net.parameters(), 0.1), [(torch.randn(5, 3), torch.randint(0, 4, (5,)))] * 2)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_is_named(name: str, tmp_path: Path) -> None:
    failed = failing.run(HEAD + textwrap.dedent(PROGRAMS[name]).lstrip(), tmp_path)
    found = failed.explained()
    assert failing.named(found)[1] in failed.marked
    assert found.report is not None
    assert found.report.origin is not None
    assert found.report.origin.reproduced


IN_A_GLOBAL = """
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(7, 4), nn.Linear(7, 2)

        def forward(self, letter, state):
            both = torch.cat((letter, state), 1)
            return self.outer(both), self.inner(both)

    model = Reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = torch.zeros(1, 4)

    def train(word, wanted):
        global state
        optimizer.zero_grad()
        for letter in word:
            out, state = model(letter, state)  # CUT
        loss = F.cross_entropy(out, wanted)
        loss.backward()
        optimizer.step()

    for word in torch.randn(4, 3, 1, 3):
        train(word, torch.tensor([1]))
"""


def test_a_state_whose_history_the_optimizer_has_overwritten_is_named_where_it_is_kept(tmp_path: Path) -> None:
    failed = _failed(IN_A_GLOBAL, tmp_path)
    assert "modified by an inplace operation" in str(failed.error)
    found = failed.explained()
    assert failing.named(found)[1] in failed.marked
    assert found.report is not None
    assert found.report.findings[0].proof == "likely"
    assert found.report.origin is not None
    assert not found.report.origin.reproduced


def _failed(text: str, folder: Path) -> failing.Failed:
    return failing.run(HEAD + textwrap.dedent(text).lstrip(), folder)


RICH = """
    import random
    import numpy as np

    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    history, total = [], torch.zeros(())
    for i in range(3):
        x = torch.randn(6, 4) + random.random() + float(np.random.rand())
        out = model(x)
        total += out.detach().mean()
        history.append(i)
        loss = out.mean() if i < 2 else out.detach().mean()
        if i < 2:
            loss.backward()
            optimizer.step()
            scheduler.step()
        else:
            loss.backward()
"""


def test_the_program_is_as_it_was(tmp_path: Path) -> None:
    failed = _failed(RICH, tmp_path)
    space = {**failed.globals}
    before = failing.fingerprint(space)
    found = failed.explained()
    assert found.report is not None
    assert failing.fingerprint(failed.globals) == before
    assert failed.globals.keys() == space.keys()


def test_the_program_is_as_it_was_after_ctrl_c_in_the_rerun(tmp_path: Path) -> None:
    text = RICH.replace(
        "        out = model(x)\n", "        out = model(x)\n        if again: raise KeyboardInterrupt\n"
    )
    failed = _failed(text.replace("    history, total", "    again = False\n    history, total"), tmp_path)
    failed.globals["again"] = True
    before = failing.fingerprint(failed.globals)
    with pytest.raises(KeyboardInterrupt):
        failed.explained()
    assert failing.fingerprint(failed.globals) == before


def test_what_differs_from_the_failing_pass_is_said(tmp_path: Path) -> None:
    report = _failed(RICH, tmp_path).explained().report
    assert report is not None
    assert report.origin is not None
    assert [note.kind for note in report.origin.caveats] == ["carried", "dropout"]
    assert report.origins("en")[1].startswith("total: ")
    assert report.origins("zh")[1].startswith("total")


FORGETFUL = """
    model, seen = nn.Linear(3, 1), []

    def loss_of(out):
        if not seen:
            seen.append(1)
            return out.detach().mean()
        return out.mean()

    for batch in torch.randn(3, 5, 3):
        loss = loss_of(model(batch))
        loss.backward()
"""


def test_nothing_is_said_of_a_fault_that_does_not_come_again(tmp_path: Path) -> None:
    found = _failed(FORGETFUL, tmp_path).explained()
    assert found.report is None
    assert found.tried[0].reason == "did_not_raise"


def test_an_error_that_is_being_handled_is_not_taken_for_that_of_the_rerun(tmp_path: Path) -> None:
    failed = _failed(FORGETFUL, tmp_path)
    try:
        raise failed.error
    except RuntimeError:
        found = failed.explained()
    assert found.report is None


def test_another_error_in_the_rerun_is_no_explanation(tmp_path: Path) -> None:
    found = _failed(
        """
        model, done = nn.Linear(3, 1), []
        for batch in torch.randn(3, 5, 3):
            assert not done
            done.append(1)
            loss = model(batch).detach().mean()
            loss.backward()
        """,
        tmp_path,
    ).explained()
    assert found.report is None
    assert (found.tried[0].reason, found.tried[0].facts) == ("raised_other", {"error": "AssertionError"})


def test_an_error_without_autograd_is_not_explained(tmp_path: Path) -> None:
    failed = _failed("for x in [1, 0]:\n    y = 1 / x\n", tmp_path)
    assert explain.of_error(failed.error) is None


def _explained_while_raised(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> explain.Explanation:
    """The explanation that is made where ``backward`` raises, while the frames of the program still run."""
    engine, found = torch.autograd.backward, list[explain.Explanation | None]()

    @faults.on_behalf
    def backward(*args: object, **kwargs: object) -> None:
        try:
            engine(*args, **kwargs)  # type: ignore[arg-type]
            return
        except RuntimeError as error:
            raised = error
        if not found:
            found.append(None)
            found[0] = explain.of_error(raised, while_raised=True)
        raise raised

    hidden = FunctionType(
        backward.__code__.replace(co_filename=explain.__file__), globals(), None, None, backward.__closure__
    )
    monkeypatch.setattr(torch.autograd, "backward", faults.on_behalf(hidden))
    _failed(text, folder)
    assert found[0] is not None
    return found[0]


def test_what_the_step_has_entered_is_not_taken_for_what_was_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _explained_while_raised(
        """
        model = nn.Linear(4, 1)
        for batch in torch.randn(3, 5, 4):
            with torch.no_grad():
                loss = model(batch).mean()
                loss.backward()
        """,
        tmp_path,
        monkeypatch,
    )
    assert found.report is not None
    assert [(one.cause, one.proof) for one in found.report.findings] == [("no_grad_block", "proven")]


def test_what_lies_around_the_step_is_named_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _explained_while_raised(PROGRAMS["no_grad in the caller"], tmp_path, monkeypatch)
    assert found.report is not None
    assert found.report.findings[0].cause == "no_grad_block"
    assert failing.named(found)[1] == 12


def test_a_thread_explains_its_own_error(tmp_path: Path) -> None:
    text = PROGRAMS["a flat script"]
    found: list[explain.Explanation] = []

    def work() -> None:
        found.append(_failed(text, tmp_path).explained())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failing.named(found[0])[1] == 8


def test_a_model_that_is_given_is_the_one_that_is_diagnosed(tmp_path: Path) -> None:
    failed = _failed(PROGRAMS["the second backward of a pair of networks"], tmp_path)
    report = failed.explained(model=failed.globals["D"]).report
    assert report is not None
    assert [row.name for row in report.parameters] == ["weight", "bias"]


def test_several_models_go_by_the_names_of_their_variables(tmp_path: Path) -> None:
    report = _failed(PROGRAMS["the second backward of a pair of networks"], tmp_path).explained().report
    assert report is not None
    assert {row.name for row in report.parameters if row.should_train} == {"G.weight", "G.bias"}
    assert {row.name for row in report.parameters if not row.should_train} == {"D.weight", "D.bias"}


# -- what cannot be run again ------------------------------------------------------------------------------------------

WRITES = """
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    def train(model, folder):
        with open(folder + "/log.txt", "w") as log:
            log.write("begun")
            model.scale.clamp_(0, 1)

    train(Scaled(), __file__.rpartition("/")[0])
"""


def test_an_error_at_its_own_line_is_told_without_a_rerun_and_without_proof(tmp_path: Path) -> None:
    found = _failed(WRITES, tmp_path).explained()
    assert failing.named(found)[1] == 13
    assert [one.reason for one in found.tried] == ["writes_file", "writes_file"]
    report = found.report
    assert report is not None
    assert (report.findings[0].proof, report.runs) == ("likely", 0)
    (said,) = report.origins("en")
    assert said.startswith("gradkit ran nothing again: ")
    assert said.endswith(f"(line 13 of {tmp_path / 'train.py'}), and proves nothing.")


def test_a_loss_out_of_a_generator_that_has_moved_on_is_not_guessed_at(tmp_path: Path) -> None:
    found = _failed(
        """
        def losses(model):
            for batch in torch.randn(3, 5, 3):
                yield model(batch).detach().mean()

        stream = losses(nn.Linear(3, 1))
        next(stream).backward()
        """,
        tmp_path,
    ).explained()
    assert found.report is None
    assert found.text("en").endswith(
        "Put one forward pass into a function of its own that returns the loss, and hand it over: "
        "gradkit.diagnose(step, model=model).\n"
    )


def test_a_fault_of_gradkits_own_is_told_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = _failed(PROGRAMS["a flat script"], tmp_path)
    monkeypatch.setattr(attempts, "LOUD", False)
    monkeypatch.setattr(explain, "Trial", lambda *_, **__: 1 / 0)
    found = failed.explained()
    assert found.report is None
    assert found.fault == "ZeroDivisionError: division by zero"
    assert found.text("en").count("\n") == 1


# -- how it is told ----------------------------------------------------------------------------------------------------


def test_a_report_says_which_lines_were_run_again(tmp_path: Path) -> None:
    report = _failed(PROGRAMS["a flat script"], tmp_path).explained().report
    assert report is not None
    file = tmp_path / "train.py"
    again = f"gradkit ran one pass of the loop in line 7 again (lines 8 to 10 of {file});"
    assert f"{again} the same error came from the same line." in report.text("en")
    assert f"{again} the same error came from the same line." in report.html("en", with_picture=False)
    (said,) = report.origins("zh")
    assert said.startswith("gradkit 把第 7 行的循环重新运行了一轮")
    assert said in report.text("zh")
    assert report.data()["origin"] == {
        "file": str(file), "function": "<module>", "kind": "loop", "loop_line": 7, "first": 8, "last": 10,
        "reproduced": True, "silent": False, "caveats": (), "before": (),
    }  # fmt: skip


def test_a_headline_is_place_cause_and_cure(tmp_path: Path) -> None:
    found = _failed(PROGRAMS["a flat script"], tmp_path).explained()
    place, cure = found.headline("en").splitlines()
    assert place.startswith(f"gradkit: {tmp_path / 'train.py'}:8: detach() takes the value out of the graph")
    assert place.endswith("(detach, proven)")
    assert cure.startswith("help: remove detach()")


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_every_reason_has_its_sentence(language: str) -> None:
    facts = dict.fromkeys(("name", "detail", "error", "line", "names", "what", "seconds", "n"), "x")
    for key in i18n.catalogue("en"):
        if key.startswith(f"{explain.REASONS}."):
            one = explain.Tried("train.py", "fit", "loop", 1, 2, key.removeprefix(f"{explain.REASONS}."), facts)
            assert one.text(language).startswith("  train.py:1-2")


# -- what fails in silence ---------------------------------------------------------------------------------------------


def _explained_at_step(
    text: str, folder: Path, *, space: dict[str, Any] | None = None, **options: Any
) -> explain.Explanation | None:
    """The explanation that is made as the optimizer steps for the first time."""
    found: list[explain.Explanation | None] = []

    def look(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        frame = sys._getframe()
        if not found:
            missing = [p for group in optimizer.param_groups for p in group["params"] if p.grad is None]
            found.append(None)
            found[0] = explain.of_running(frame, optimizer, missing=missing, **options)

    handle = register_optimizer_step_pre_hook(look)
    file = folder / "train.py"
    file.write_text(HEAD + textwrap.dedent(text).lstrip(), encoding="utf-8")
    try:
        runpy.run_path(str(file), space, run_name="__main__")
    finally:
        handle.remove()
    return found[0]


def test_a_step_that_does_not_reach_all_is_explained_from_its_running_frames(tmp_path: Path) -> None:
    found = _explained_at_step(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                features = self.body(x).detach()
                return self.head(features)

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in torch.randn(3, 5, 4):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
        """,
        tmp_path,
    )
    assert found is not None
    assert found.report is not None
    assert found.report.origin is not None
    assert failing.named(found)[1] == 11
    assert (found.report.origin.silent, found.report.origin.reproduced) == (True, True)
    assert found.report.findings[0].parameters == ("body.weight", "body.bias")


TRAINS = """
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for i in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
    result.append([p.detach().clone() for p in model.state_dict().values()])
"""


def test_a_program_that_is_looked_at_comes_to_the_same_weights(tmp_path: Path) -> None:
    result: list[list[torch.Tensor]] = []
    text = HEAD + textwrap.dedent(TRAINS).lstrip()
    exec(compile(text, "plain.py", "exec"), {"result": result, "__name__": "plain"})
    found = _explained_at_step(TRAINS, tmp_path, space={"result": result})
    assert found is not None
    assert found.report is not None
    assert all(map(torch.equal, *result))


def test_a_sound_step_is_called_sound(tmp_path: Path) -> None:
    found = _explained_at_step(
        """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def update(loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for x in torch.randn(3, 5, 4):
            update(model(x).pow(2).mean())
        """,
        tmp_path,
    )
    assert found is not None
    assert found.report is not None
    assert found.report.healthy


LIBRARY = """\
class Loop:
    def __init__(self, net, optimizer):
        self.net, self.optimizer, self.seen = net, optimizer, 0

    def fit(self, batches):
        for batch in batches:
            loss = self.loss_of(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def loss_of(self, batch):
        self.seen += len(batch)
        return self.net(batch).square().mean()
"""


def test_what_a_librarys_trainer_counts_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "plainloop.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(library))
    text = """
        from plainloop import Loop

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                return self.head(self.body(x).detach())

        net = Net()
        loop = Loop(net, torch.optim.SGD(net.parameters(), lr=0.1))
        loop.fit(torch.randn(3, 5, 4))
        print("seen:", loop.seen)
    """
    found = _explained_at_step(text, tmp_path)
    assert found is not None
    assert found.report is not None
    assert [one.cause for one in found.report.findings] == ["detach"]
    assert capsys.readouterr().out == "seen: 15\n"
