"""``gradkit verify``: the run-time checklist, and its exit status for a CI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from gradkit.api.verify import GROUPS, Verification
from gradkit.cli import COULD_NOT_RUN, FINDINGS, HEALTHY, main
from gradkit.core.errors import GradkitError

STATES = {"passed", "failed", "open", "noted"}


class Captioner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.proj = nn.Linear(4, 3), nn.Linear(3, 2)
        self.encoder.requires_grad_(False)
        self.encoder.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(self.encoder(x)).square().mean()


def state(done: Verification, key: str) -> str:
    return next(check.state for check in done.checks if check.key == key)


def sentence(done: Verification, key: str) -> str:
    return next(check.text() for check in done.checks if check.key == key)


def test_a_sound_model_passes_every_check() -> None:
    done = gradkit.verify(Captioner(), torch.ones(2, 4))
    assert done
    assert done.failed == ()
    assert done.text().rstrip().endswith("All checks passed.")


def test_the_list_has_every_point_of_its_groups() -> None:
    done = gradkit.verify(Captioner(), torch.ones(2, 4))
    assert [check.key for check in done.checks] == [key for keys in GROUPS.values() for key in keys]
    assert {check.state for check in done.checks} <= STATES


def test_the_loss_is_told_by_its_value_and_its_grad_fn() -> None:
    net = Captioner()
    text = gradkit.verify(net, torch.ones(2, 4)).text()
    assert f"{net(torch.ones(2, 4)).item():.4f}" in text
    assert "loss.requires_grad is True" in text
    assert "loss.grad_fn: MeanBackward0" in text


def test_a_lost_gradient_fails_and_its_parameters_are_named() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    done = gradkit.verify(lambda: net[1](net[0](torch.ones(1, 3)).detach()).sum(), model=net)
    assert not done
    assert state(done, "reached") == "failed"
    assert "without a gradient: 0.weight, 0.bias" in done.text()


def test_a_loss_without_history_fails_at_the_loss_and_at_its_grad_fn() -> None:
    net = Captioner()
    done = gradkit.verify(lambda: net(torch.ones(2, 4)).detach(), model=net)
    assert [state(done, key) for key in ("requires_grad", "grad_fn", "backward")] == ["failed", "failed", "open"]


def test_a_flag_on_the_loss_is_not_taken_for_a_history() -> None:
    net = Captioner()
    done = gradkit.verify(lambda: net(torch.ones(2, 4)).detach().requires_grad_(), model=net)
    assert [state(done, key) for key in ("requires_grad", "grad_fn")] == ["passed", "failed"]


def test_a_loss_that_is_nan_fails() -> None:
    net = Captioner()
    assert state(gradkit.verify(lambda: net(torch.ones(2, 4)) * float("nan"), model=net), "value") == "failed"


def test_gradients_that_are_all_zero_fail() -> None:
    net = Captioner()
    done = gradkit.verify(lambda: 0 * net(torch.ones(2, 4)), model=net)
    assert state(done, "nonzero") == "failed"


def test_the_zero_gradient_of_a_fresh_adapter_is_noted_and_no_fault() -> None:
    down, up = nn.Linear(4, 2, bias=False), nn.Linear(2, 1, bias=False)
    nn.init.zeros_(up.weight)
    done = gradkit.verify(nn.Sequential(down, up), torch.ones(2, 4), loss=lambda output: (output - 1).square().mean())
    assert done
    assert state(done, "nonzero") == "noted"
    assert "0.weight" in sentence(done, "nonzero")


def test_what_must_be_frozen_and_may_train_fails() -> None:
    net = Captioner()
    net.encoder.requires_grad_(True)
    done = gradkit.verify(net, torch.ones(2, 4), should_train=["proj.*"], frozen=["encoder.*"])
    assert [check.key for check in done.failed] == ["loose"]
    assert "15 values" in sentence(done, "loose")
    assert "⚠ (should be 0)" in done.text()


def test_what_may_train_besides_is_noted_for_a_discriminator_may_train_in_a_step_of_its_own() -> None:
    net = Captioner()
    net.encoder.requires_grad_(True)
    done = gradkit.verify(net, torch.ones(2, 4), should_train=["proj.*"])
    assert done
    assert state(done, "loose") == "noted"
    assert "⚠ (should be 0)" in done.text()


def test_what_must_be_frozen_and_is_passes() -> None:
    assert gradkit.verify(Captioner(), torch.ones(2, 4), frozen=["encoder.*"])


def test_a_pattern_of_what_must_be_frozen_that_matches_nothing_is_named() -> None:
    with pytest.raises(GradkitError, match="decoder"):
        gradkit.verify(Captioner(), torch.ones(2, 4), frozen=["decoder.*"])


def test_modules_are_listed_with_mode_and_trainable_parameters() -> None:
    lines = gradkit.verify(Captioner(), torch.ones(2, 4)).text().splitlines()
    encoder = next(line for line in lines if line.split()[:1] == ["encoder"])
    assert encoder.split() == ["encoder", "eval", "0", "(should", "be", "0)"]
    assert next(line for line in lines if line.split()[:1] == ["proj"]).split() == ["proj", "train", "8"]


def test_eval_mode_is_noted_and_fails_nothing() -> None:
    done = gradkit.verify(Captioner().eval(), torch.ones(2, 4))
    assert done
    assert state(done, "mode") == "noted"


def test_parameters_are_counted_once_however_many_names_they_have() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    assert gradkit.verify(net, torch.ones(1, 3), loss=lambda out: out.sum()).counts() == {"trainable": 9, "all": 9}


def test_the_counts_of_a_report_are_written_as_peft_writes_them() -> None:
    text = gradkit.verify(Captioner(), torch.ones(2, 4)).text()
    assert "trainable params: 8 || all params: 23 || trainable%: 34.7826" in text


def test_an_optimizer_that_lacks_a_parameter_fails() -> None:
    net = Captioner()
    done = gradkit.verify(net, torch.ones(2, 4), optimizer=torch.optim.SGD([net.proj.weight], lr=0.1))
    assert state(done, "optimizer") == "failed"
    assert "proj.bias" in sentence(done, "optimizer")


class Probe(nn.Module):
    """A body that nobody froze, and a head of which the optimizer is made."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)).square().mean()


def test_an_optimizer_of_a_probe_is_no_fault_though_the_body_is_not_frozen() -> None:
    net = Probe()
    done = gradkit.verify(net, torch.ones(2, 4), optimizer=torch.optim.SGD(net.head.parameters(), lr=0.1))
    assert done
    assert state(done, "optimizer") == "noted"
    assert "body.0.weight" in sentence(done, "optimizer")


def test_an_optimizer_of_a_probe_fails_where_the_body_was_said_to_train() -> None:
    net = Probe()
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
    done = gradkit.verify(net, torch.ones(2, 4), optimizer=optimizer, should_train=["body.*", "head.*"])
    assert state(done, "optimizer") == "failed"


def test_an_optimizer_that_the_step_reaches_is_looked_at() -> None:
    net = Captioner()
    optimizer = torch.optim.SGD(net.proj.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return net(torch.ones(2, 4))

    assert sentence(gradkit.verify(step, model=net), "optimizer").startswith("The optimizer (SGD) holds all 2")


def test_one_of_two_optimizers_is_no_fault() -> None:
    net = Captioner()
    optimizer = torch.optim.SGD([net.proj.weight], lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return net(torch.ones(2, 4))

    done = gradkit.verify(step, model=net)
    assert done
    assert state(done, "optimizer") == "noted"


def test_without_an_optimizer_nothing_is_claimed_of_it() -> None:
    assert state(gradkit.verify(Captioner(), torch.ones(2, 4)), "optimizer") == "open"


def test_verify_passes_exactly_where_a_diagnosis_is_healthy_on_the_built_in_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, status in (("vision_memory_detached", FINDINGS), ("vision_memory_fixed", HEALTHY)):
        assert main(["verify", name]) == status
        assert main(["diagnose", name]) == status


def test_the_frozen_half_of_the_vision_memory_is_counted_as_zero(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", "vision_memory_fixed"])
    listed = capsys.readouterr().out
    assert "proj" in listed
    assert listed.count("(should be 0)") == 2


def test_a_list_says_the_same_in_chinese() -> None:
    done = gradkit.verify(Captioner(), torch.ones(2, 4))
    english, chinese = done.text("en").splitlines(), done.text("zh").splitlines()
    assert chinese[-1] == "所有检查全部通过。"
    assert [line.strip()[:1] in "✓✗?–" for line in chinese] == [line.strip()[:1] in "✓✗?–" for line in english]


TRAIN = """\
import torch
from torch import nn

print("hello")
net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))


def step():
    return net[1](net[0](torch.ones(1, 3)).detach()).sum()


def sound():
    return net(torch.ones(1, 3)).sum()


def broken():
    return net(torch.ones(1, 5)).sum()
"""


@pytest.fixture
def _train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_train")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["train.py:sound"], HEALTHY),
        (["train.py:step"], FINDINGS),
        (["train.py:step", "--should-train", "1.*"], HEALTHY),  # the first layer may train besides
        (["train.py:step", "--should-train", "1.*", "--frozen", "0.*"], FINDINGS),
        (["train.py:broken"], COULD_NOT_RUN),
        (["train.py:missing"], COULD_NOT_RUN),
        (["--model", "train.py:net", "--batch", "float32[1, 3]", "--loss", "output.sum()"], HEALTHY),
    ],
)
def test_the_exit_status_tells_a_ci_what_to_do(
    words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *words]) == status


@pytest.mark.usefixtures("_train")
def test_json_holds_every_check_and_the_whole_diagnosis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "train.py:step", "--json"]) == FINDINGS
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is False
    assert {check["key"] for check in told["checks"] if check["state"] == "failed"} == {"reached", "findings"}
    assert told["diagnosis"]["findings"][0]["cause"] == "detach"
    assert told["parameters"]["trainable"] == told["parameters"]["all"] == 11


@pytest.mark.usefixtures("_train")
def test_what_the_program_prints_is_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", "train.py:sound"])
    printed = capsys.readouterr()
    assert "hello" in printed.err
    assert "hello" not in printed.out


def test_a_step_that_cannot_run_raises_and_says_why() -> None:
    with pytest.raises(GradkitError):
        gradkit.verify(nn.Linear(3, 1), torch.ones(2, 5), loss=lambda output: output.sum())


def test_a_failed_assertion_shows_what_failed() -> None:
    net = Captioner()
    with pytest.raises(AssertionError, match="failed: requires_grad, grad_fn, reached"):
        assert gradkit.verify(lambda: net(torch.ones(2, 4)).detach(), model=net)


def test_verify_leaves_the_model_as_it_was() -> None:
    net = Captioner()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradkit.verify(net, torch.ones(2, 4))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.proj.weight.grad is None


@pytest.mark.parametrize(("depth", "listed"), [(1, False), (2, True)])
def test_the_table_of_modules_goes_down_as_far_as_asked(depth: int, listed: bool) -> None:
    text = gradkit.verify(Captioner(), torch.ones(2, 4)).text(depth=depth)
    assert any(line.split()[:1] == ["weight"] for line in text.splitlines()) is listed
