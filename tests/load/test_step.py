"""Whatever a person has becomes one step; whatever is wrong with it becomes one clear sentence in two languages."""

from __future__ import annotations

import functools
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding
from transformers.modeling_outputs import CausalLMOutput

from gradkit.api.diagnose import diagnose
from gradkit.core.errors import GradkitError
from gradkit.load.step import Step, expectation, explain_failure, from_objects, from_spec, from_step, load_batch
from gradkit.teaching import examples

TRAIN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)

def build_model():
    torch.manual_seed(0)
    return Net()

def make_batch():
    return torch.ones(4, 3), torch.zeros(4, dtype=torch.long)

def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])

model = build_model()

def step():
    return loss_fn(model(make_batch()[0]), make_batch())

def make():
    net = build_model()
    return net, lambda: net(make_batch()[0]).sum()

def step_of(model, batch):
    return loss_fn(model(batch[0]), batch)
"""


def script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return str(folder / name)


@pytest.fixture
def train(tmp_path: Path) -> str:
    return script(tmp_path, TRAIN)


class Net(nn.Module):
    """Counts what it is called with."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.forward = forward  # type: ignore[method-assign]


def raised(build: Callable[[], object], key: str, *named: str) -> None:
    """It raises that error, and the sentence names the offending things in both languages."""
    with pytest.raises(GradkitError) as caught:
        build()
    assert caught.value.key == key, str(caught.value)
    for language in ("en", "zh"):
        sentence = caught.value.text(language)
        missing = [name for name in named if name not in sentence]
        assert not missing, f"{missing} not in: {sentence}"


def explained(step: Step, key: str, *named: str) -> None:
    """The run raises, and the explanation is that error."""

    def build() -> None:
        try:
            step.run()
        except Exception as error:
            raise explain_failure(error, step) from error

    raised(build, key, *named)


# a model and a batch as objects


def called_with(forward: Callable[..., Any], batch: object, loss: Callable[..., Any] | None = None) -> Any:
    """What the model returned, seen by the loss; the losses here ignore what the model makes."""
    return from_objects(Net(forward), batch, loss).run()


X, Y = torch.full((2,), 3.0), torch.full((2,), 5.0)


def test_a_dict_is_handed_over_by_name() -> None:
    assert called_with(lambda x, y: (x * y).sum(), {"y": Y, "x": X}).item() == 30


def test_a_batch_encoding_is_handed_over_by_name() -> None:
    assert called_with(lambda x, **more: (x * more["y"]).sum(), BatchEncoding({"x": X, "y": Y})).item() == 30


def test_a_dict_is_handed_over_whole_to_a_forward_that_takes_the_batch() -> None:
    assert called_with(lambda batch: (batch["x"] * batch["y"]).sum(), {"x": X, "y": Y}).item() == 30


def test_keys_that_only_the_loss_needs_are_left_out() -> None:
    assert called_with(lambda x: x, {"x": X, "y": Y}, lambda output, batch: (output * batch["y"]).sum()).item() == 30


def test_a_tuple_is_handed_over_by_position() -> None:
    assert called_with(lambda x, y: (x * y).sum(), (X, Y)).item() == 30


def test_the_last_of_a_pair_is_the_target_where_forward_takes_one() -> None:
    assert called_with(lambda x: x, (X, Y), lambda output, batch: (output * batch[1]).sum()).item() == 30


def test_a_torch_loss_gets_the_target_of_a_pair() -> None:
    assert called_with(lambda x: x, [X, Y], nn.MSELoss()).item() == 4
    assert called_with(lambda x, mask=None: x, (X, Y), nn.functional.mse_loss).item() == 4


def test_a_torch_loss_gets_the_key_that_forward_does_not_take() -> None:
    assert called_with(lambda x: x, {"x": X, "answer": Y}, nn.MSELoss()).item() == 4


def test_the_inputs_of_a_pair_may_be_a_dict_or_a_tuple() -> None:
    assert called_with(lambda a, b: a * b, ({"a": X, "b": X}, Y), nn.MSELoss()).item() == 16
    assert called_with(lambda a, b: a * b, ((X, X), Y), nn.MSELoss()).item() == 16


def test_a_batch_that_is_one_tensor_is_its_own_target() -> None:
    assert called_with(lambda x: x + 1, X, nn.MSELoss()).item() == 1


def test_a_loss_may_look_at_the_output_alone() -> None:
    assert called_with(lambda x: x, X, lambda output: output.sum()).item() == 6


def test_without_a_loss_a_pair_goes_whole_to_a_forward_of_one_argument() -> None:
    assert called_with(lambda batch: (batch[0] * batch[1]).sum(), (X, Y)).item() == 30


def test_a_data_loader_gives_its_first_batch() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2), torch.zeros(4, 2)), batch_size=2)
    assert called_with(lambda x: x, loader, nn.MSELoss()).item() == 1


def test_a_model_without_a_batch_is_called_without_one() -> None:
    assert called_with(lambda: X.sum(), None).item() == 6


@pytest.mark.parametrize("wrap", [lambda loss: CausalLMOutput(loss=loss), lambda loss: {"loss": loss}, lambda x: x])
def test_the_model_may_give_its_own_loss(wrap: Callable[[torch.Tensor], object]) -> None:
    assert called_with(lambda x: wrap(x.sum()), X).item() == 6


def test_a_loss_of_any_shape_is_passed_on() -> None:
    assert called_with(lambda x: x, X, lambda output, batch: output).shape == (2,)


def test_an_output_that_holds_no_loss_is_shown() -> None:
    step = from_objects(Net(lambda x: {"logits": x}), {"x": X})
    explained(step, "no_loss", "{logits: float32 [2]}", "Net.forward(x)")


def test_a_loss_that_returns_no_tensor_and_no_number_is_shown() -> None:
    step = from_objects(Net(lambda x: x), X, lambda output, batch: "six")
    explained(step, "no_tensor", "str six", "loss")


@pytest.mark.parametrize("value", [6.0, None, [1.0, 2.0]])
def test_a_number_or_nothing_that_a_loss_returns_is_passed_on(value: object) -> None:
    assert from_objects(Net(lambda x: x), X, lambda output, batch: value).run() == value


@pytest.mark.parametrize(
    ("model", "loss", "key", "named"),
    [
        ({"fc.weight": X}, None, "not_a_module", "{fc.weight: float32 [2]}"),
        (Net(lambda: X), "mse", "not_callable", "mse"),
    ],
)
def test_an_object_of_another_kind_is_named(model: Any, loss: Any, key: str, named: str) -> None:
    raised(lambda: from_objects(model, X, loss), key, named)


# a step as an object


def test_a_step_knows_its_model_by_its_attribute() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)

    def step() -> torch.Tensor:
        return first(second(torch.ones(1)))

    step.model = second  # type: ignore[attr-defined]
    assert from_step(step).model is second


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)
        self.criterion = nn.MSELoss()

    def step(self) -> torch.Tensor:
        loss: torch.Tensor = self.criterion(self.model(torch.ones(1)), torch.zeros(1))
        return loss


NET = nn.Linear(1, 1)


def _uses_a_global() -> torch.Tensor:
    return NET(torch.ones(1))  # type: ignore[no-any-return]


class _Runner:
    def go(self) -> torch.Tensor:
        return _uses_a_global()


def test_the_model_is_found_where_the_step_keeps_it() -> None:
    net, trainer = nn.Sequential(nn.Linear(1, 1)), Trainer()
    inner = net[0]
    assert from_step(lambda: net(inner(torch.ones(1)))).model is net
    assert from_step(functools.partial(net, torch.ones(1))).model is net
    assert from_step(trainer.step).model is trainer.model
    assert from_step(lambda: trainer.step()).model is trainer.model
    assert from_step(_uses_a_global).model is NET
    assert from_step(lambda: _uses_a_global()).model is NET
    assert from_step(lambda net=net: net(torch.ones(1))).model is net
    assert from_step(lambda: _Runner().go()).model is NET


def test_several_models_are_not_guessed_among() -> None:
    a, b = nn.Linear(1, 1), nn.Bilinear(1, 1, 1)
    raised(lambda: from_step(lambda: b(a(X), X)), "many_models", "Linear, Bilinear", "ModuleList")


def test_a_step_whose_model_cannot_be_told_is_named() -> None:
    raised(lambda: from_step(lambda: X.sum()), "no_model_in_step", "<lambda>", "step.model")


def test_a_step_that_needs_arguments_is_named() -> None:
    def step(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return batch

    raised(lambda: from_step(step, NET), "step_needs_arguments", "model, batch")  # type: ignore[arg-type]


def test_a_step_may_return_an_output_that_holds_the_loss() -> None:
    assert from_step(lambda: CausalLMOutput(loss=X.sum()), NET).run() == 6


@pytest.mark.parametrize(
    ("value", "key", "named"),
    [
        ("loss", "no_tensor", "str loss"),
        (True, "no_tensor", "bool True"),
        (NET, "no_tensor", "Linear"),
        ({"ce": 0.5}, "no_tensor", "{ce: float 0.5}"),
        ((X, Y), "no_tensor", "(float32 [2], float32 [2])"),
        ((X.sum(), Y.sum()), "no_tensor", "(float32 [], float32 [])"),
    ],
)
def test_a_step_that_returns_no_loss_is_told_what_it_returned(value: object, key: str, named: str) -> None:
    raised(lambda: diagnose(from_step(lambda: value, NET)), key, "<lambda>", named)


LIVE, LOGGED = torch.ones(1, requires_grad=True).sum(), torch.ones(())


@pytest.mark.parametrize(
    "value",
    [
        (LIVE, X), (X, LIVE), (LIVE, 0.5, "fine"), (LOGGED, LIVE, LOGGED), {"loss": LIVE, "logits": X},
        CausalLMOutput(loss=LIVE, logits=X),
    ],
)  # fmt: skip
def test_the_loss_in_what_a_step_returns_is_the_one_scalar_that_requires_grad(value: object) -> None:
    assert from_step(lambda: value, NET).run() is LIVE


def test_a_number_under_the_name_of_the_loss_is_what_a_step_returns() -> None:
    assert from_step(lambda: {"loss": 0.5, "logits": X}, NET).run() == 0.5


def test_the_model_of_a_loss_that_was_computed_before_is_the_global_that_its_graph_leads_to() -> None:
    loss = NET(torch.ones(1)).sum()
    assert from_step(lambda: loss).model is NET


def test_the_model_of_a_loss_without_a_graph_cannot_be_told() -> None:
    loss = NET(torch.ones(1)).sum().detach()
    raised(lambda: from_step(lambda: loss), "no_model_in_step", "<lambda>", "step.model")


def test_the_files_of_a_step_are_those_of_the_user() -> None:
    assert from_step(lambda: NET(torch.ones(1))).files == (__file__,)


# specs


def test_a_model_a_batch_and_a_loss_come_from_a_file(train: str) -> None:
    step = from_spec(model=f"{train}:build_model", batch=f"{train}:make_batch", loss=f"{train}:loss_fn")
    assert step.run().shape == ()  # type: ignore[attr-defined]
    assert (type(step.model).__name__, step.label, step.files) == ("Net", "train.py:build_model", (train,))


def test_a_spec_may_name_a_class_or_the_object_itself(train: str) -> None:
    step = from_spec(model=f"{train}:Net", batch=f"{train}:make_batch", loss="torch.nn:CrossEntropyLoss")
    assert step.run().shape == ()  # type: ignore[attr-defined]
    again = from_spec(model=f"{train}:model", batch=(X, Y))
    assert again.model is from_spec(f"{train}:step").model


def test_a_step_comes_from_a_file(train: str) -> None:
    step = from_spec(f"{train}:step")
    assert step.run().grad_fn is not None  # type: ignore[attr-defined]
    assert (step.label, step.files) == ("train.py:step", (train,))


def test_a_function_that_makes_the_pair_of_model_and_step_will_do(train: str) -> None:
    step = from_spec(f"{train}:make")
    assert type(step.model).__name__ == "Net"
    assert step.run().grad_fn is not None  # type: ignore[attr-defined]


def test_a_step_of_model_and_batch_gets_them(train: str) -> None:
    step = from_spec(f"{train}:step_of", model=f"{train}:build_model", batch=f"{train}:make_batch")
    assert step.run().shape == ()  # type: ignore[attr-defined]


def test_a_module_on_the_path_can_be_named_by_its_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    script(tmp_path / "lab", TRAIN, "__init__.py")
    monkeypatch.chdir(tmp_path)
    assert from_spec("lab:step").label == "lab:step"


def test_a_file_may_import_its_neighbour_at_once_and_late(tmp_path: Path) -> None:
    script(tmp_path, "SIZE = 3", "early_neighbour.py")
    script(tmp_path, "SCALE = 2", "late_neighbour.py")
    spec = script(
        tmp_path,
        """
        import torch
        from early_neighbour import SIZE
        class Net(torch.nn.Linear):
            def forward(self, x):
                from late_neighbour import SCALE
                return super().forward(x).sum() * SCALE
        def build_model():
            return Net(SIZE, 1)
        """,
    )
    before = list(sys.path)
    assert from_spec(model=f"{spec}:build_model", batch=torch.ones(1, 3)).run().numel() == 1  # type: ignore[attr-defined]
    assert sys.path == before


def test_an_unchanged_file_is_imported_once_and_a_changed_one_again(tmp_path: Path) -> None:
    spec = script(tmp_path, "import torch\nnet = torch.nn.Linear(1, 1)\ndef step(): return net.weight.sum() * 2")
    first, again = from_spec(f"{spec}:step"), from_spec(f"{spec}:step")
    assert first.model is again.model
    script(tmp_path, "import torch\nnet = torch.nn.Linear(1, 1)\ndef step(): return net.weight.sum() * 0")
    changed = from_spec(f"{spec}:step")
    assert changed.model is not first.model
    assert changed.run() == 0


def test_a_changed_neighbour_is_imported_again_too(tmp_path: Path) -> None:
    script(tmp_path, "SCALE = 1", "changing_neighbour.py")
    spec = script(tmp_path, "import torch, changing_neighbour as n\ndef make_batch(): return n.SCALE")
    assert from_spec(model=Net(lambda x: torch.tensor(x)), batch=f"{spec}:make_batch").run() == 1
    script(tmp_path, "SCALE = 2", "changing_neighbour.py")
    assert from_spec(model=Net(lambda x: torch.tensor(x)), batch=f"{spec}:make_batch").run() == 2


def test_files_of_one_name_in_two_folders_do_not_meet(tmp_path: Path) -> None:
    models = []
    for name, size in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        script(tmp_path / name, f"SIZE = {size}", "namesake.py")
        spec = script(
            tmp_path / name, "import torch, namesake\ndef build_model(): return torch.nn.Linear(1, namesake.SIZE)"
        )
        models.append(from_spec(model=f"{spec}:build_model", batch=torch.ones(1, 1)).model)
    assert [model.out_features for model in models] == [1, 2]


def test_a_file_named_like_a_library_does_not_replace_it(tmp_path: Path) -> None:
    spec = script(tmp_path, "import torch\nx = torch.ones(1)", "json.py")
    assert load_batch(f"{spec}:x").numel() == 1
    assert sys.modules["json"].__file__ != spec


def test_nothing_is_written_beside_the_users_file(tmp_path: Path) -> None:
    script(tmp_path, "A = 1", "quiet_neighbour.py")
    load_batch(script(tmp_path, "import quiet_neighbour\nx = [1]") + ":x")
    assert sorted(os.listdir(tmp_path)) == ["quiet_neighbour.py", "train.py"]


def test_a_file_that_reads_the_command_line_does_not_read_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gradkit", "diagnose"])
    spec = script(tmp_path, "import argparse\nargs = argparse.ArgumentParser().parse_args()\nx = [1]")
    assert load_batch(f"{spec}:x") == [1]
    assert sys.argv == ["gradkit", "diagnose"]


# wrong specs


WRONG_SPECS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "gone.py:step": ("", "no_such_file", ("gone.py",)),
    "train.py:stepp": (TRAIN, "no_such_name", ("stepp", "train.py", "step, ")),
    "train.py": (TRAIN, "spec_without_name", ("train.py", "build_model")),
    "no_such_package.train:step": ("", "no_such_module", ("no_such_package.train",)),
    "notes.txt:step": ("hello", "not_a_python_file", ("notes.txt",)),
    "broken.py:step": ("def step(:\n", "import_failed", ("broken.py:1: def step(:", "SyntaxError")),
    "raises.py:step": ("x = 1\ny = x / 0\n", "import_failed", ("raises.py:2: y = x / 0", "ZeroDivisionError")),
    "asks.py:step": ("import not_installed_here\n", "import_failed", ("asks.py:1", "not_installed_here")),
    "exits.py:step": ("import sys\nsys.exit(3)\n", "import_failed", ("exits.py:2", "SystemExit: 3")),
    "needs.py:step": ("def step(model, extra): pass\n", "step_needs_arguments", ("needs.py:step", "model, extra")),
    "value.py:step": ("step = 3\n", "no_step", ("value.py:step", "int 3")),
    "makes.py:make": ("def make(): return 3\n", "no_step", ("makes.py:make", "int 3")),
    "tensor.py:step": ("import torch\ndef step(): return torch.ones(1)\n", "no_model_in_step", ("tensor.py:step",)),
    "dies.py:make": ("def make():\n    raise OSError('no data')\n", "call_failed", ("dies.py:2", "OSError: no data")),
}


@pytest.mark.parametrize("spec", WRONG_SPECS)
def test_a_wrong_spec_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    monkeypatch.chdir(tmp_path)
    text, key, named = WRONG_SPECS[spec]
    if text:
        (tmp_path / spec.split(":", maxsplit=1)[0]).write_text(text)
    path, modules = list(sys.path), set(sys.modules)
    raised(lambda: from_spec(spec), key, *named)
    assert sys.path == path
    if key == "import_failed":
        assert spec.split(".", maxsplit=1)[0] not in set(sys.modules) - modules


def test_a_file_that_failed_is_imported_anew_when_it_is_mended(tmp_path: Path) -> None:
    spec = script(tmp_path, "import torch\nx = torch.onse(1)")
    raised(lambda: load_batch(f"{spec}:x"), "import_failed", "train.py:2: x = torch.onse(1)")
    script(tmp_path, "import torch\nx = torch.ones(1)")
    assert load_batch(f"{spec}:x").numel() == 1


def test_an_import_error_deep_in_a_neighbour_names_the_neighbour(tmp_path: Path) -> None:
    script(tmp_path, "\n\nboom = {}['key']", "deep_neighbour.py")
    spec = script(tmp_path, "import deep_neighbour")
    raised(
        lambda: from_spec(f"{spec}:x"),
        "import_failed",
        "deep_neighbour.py:3: boom = {}['key']",
        "KeyError: 'key'",
    )


@pytest.mark.parametrize(
    ("arguments", "key", "named"),
    [
        ({}, "nothing_to_load", ("train.py:step",)),
        ({"model": "{train}:build_model"}, "no_batch", ("Net.forward(x)",)),
        (
            {"model": "{train}:make_batch", "batch": X},
            "not_a_module",
            ("train.py:make_batch", "(float32 [4, 3], int64 [4])"),
        ),
        ({"model": "{train}:Net", "batch": X, "loss": "torch:pi"}, "not_callable", ("torch:pi", "float 3.14")),
        ({"step": "{train}:step", "model": "{train}:build_model"}, "model_not_in_step", ("train.py:step", "Net")),
        ({"weights": "w.pt"}, "weights_without_model", ("w.pt",)),
        ({"adapter": "no_folder"}, "no_adapter", ("no_folder", "adapter_config.json")),
        ({"model": "{folder}", "batch": X}, "no_pretrained", ("{folder}", "config.json")),
    ],
)
def test_what_does_not_fit_together_is_named(
    train: str, tmp_path: Path, arguments: dict[str, Any], key: str, named: tuple[str, ...]
) -> None:
    def fill(value: Any) -> Any:
        return value.format(train=train, folder=tmp_path) if isinstance(value, str) else value

    filled = {name: fill(value) for name, value in arguments.items()}
    raised(lambda: from_spec(**filled), key, *(name.replace("{folder}", str(tmp_path)) for name in named))


# state dicts


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_state_dict_is_loaded_into_the_model(train: str, tmp_path: Path, suffix: str) -> None:
    state = {"fc.weight": torch.full((2, 3), 7.0), "fc.bias": torch.zeros(2)}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pt")
    step = from_spec(model=f"{train}:Net", batch=X, weights=tmp_path / f"w{suffix}")
    assert step.model.fc.weight.unique().tolist() == [7]


def test_a_tied_weight_may_be_saved_under_one_name(tmp_path: Path) -> None:
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    save_file({"0.weight": torch.ones(2, 2)}, tmp_path / "w.safetensors")
    from_spec(model=tied, batch=X, weights=tmp_path / "w.safetensors")
    assert tied[1].weight.sum() == 4


@pytest.mark.parametrize(
    ("state", "key", "named"),
    [
        ({"fc.weight": torch.ones(2, 3)}, "weights_keys", ("w.pt", "fc.bias")),
        ({"module.fc.weight": torch.ones(2, 3)}, "weights_keys", ("fc.weight, fc.bias", "module.fc.weight")),
        ({"fc.weight": torch.ones(3, 3), "fc.bias": torch.ones(2)}, "weights_shape", ("fc.weight", "[3, 3]", "[2, 3]")),
        ({"epoch": 3}, "no_state_dict", ("w.pt", "{epoch: int 3}")),
        (torch.ones(3), "no_state_dict", ("w.pt", "float32 [3]")),
    ],
)
def test_weights_that_do_not_fit_are_named(
    train: str, tmp_path: Path, state: object, key: str, named: tuple[str, ...]
) -> None:
    torch.save(state, tmp_path / "w.pt")
    raised(lambda: from_spec(model=f"{train}:Net", batch=X, weights=tmp_path / "w.pt"), key, *named)


def test_a_model_keeps_its_weights_when_the_file_does_not_fit(train: str, tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(2, 3)}, tmp_path / "w.pt")
    model = from_spec(f"{train}:step").model
    before = model.fc.weight.clone()
    with pytest.raises(GradkitError):
        from_spec(model=model, batch=X, weights=tmp_path / "w.pt")
    assert torch.equal(model.fc.weight, before)


# a run that raises


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 3)
        self.fc = nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        hidden = self.embed(ids) * scale
        out: torch.Tensor = self.fc(hidden)
        return out


def total(output: torch.Tensor, batch: object) -> torch.Tensor:
    return output.sum()


IDS = torch.tensor([[1, 2]])
FORWARD = "Tagger.forward(ids: Tensor, scale: float = 1.0)"
FAILURES: dict[str, tuple[Any, Any, str, tuple[str, ...]]] = {
    "an id beyond the table": (
        {"ids": IDS + 11}, total, "index_out_of_range", ("self.embed(ids)", "embed = Embedding(10, 3)", "12 … 13"),
    ),
    "floats for ids": ({"ids": X}, total, "wrong_dtype", ("self.embed(ids)", "Embedding", "ids: float32 [2]")),
    "a shape": (
        {"ids": IDS}, lambda output, batch: output @ torch.ones(3, 1), "wrong_shape", ("torch.ones(3, 1)", "[1, 2]"),
    ),
    "an argument too few": ({}, total, "wrong_arguments", ("missing 1 required", "'ids'")),
    "an argument too many": ({"ids": IDS, "id": IDS}, None, "wrong_arguments", ("unexpected keyword argument 'id'",)),
    "a misspelt key": ({"idz": IDS}, total, "wrong_arguments", ("'idz'", "{idz: int64 [1, 2]}")),
    "a container for a tensor": ([[IDS]], total, "wrong_kind", ("hidden = self.embed(ids)", "not list")),
    "a missing key": ({"ids": IDS}, lambda output, batch: batch["labels"], "missing_key", ("KeyError: 'labels'",)),
    "another device": (
        {"ids": IDS}, lambda output, batch: output * torch.ones(2, device="meta"), "wrong_device", ('device="meta"',),
    ),
    "a label beyond the classes": (
        {"ids": IDS, "labels": torch.tensor([5, 0])},
        lambda output, batch: nn.functional.cross_entropy(output[0], batch["labels"]),
        "target_out_of_range",
        ("Target 5", "cross_entropy"),
    ),
    "anything else": ({"ids": IDS}, lambda output, batch: list(batch)[1], "step_raised", ("IndexError: list", "[1]")),
    "backward in the step": (
        {"ids": IDS}, lambda output, batch: output.detach().sum().backward(), "step_runs_backward", (".backward()",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_a_run_that_raises_is_explained_with_its_line_and_what_the_model_takes(case: str) -> None:
    batch, loss, key, named = FAILURES[case]
    expects = () if key == "step_runs_backward" else (FORWARD,)
    explained(from_objects(Tagger(), batch, loss), key, "test_step.py:", *named, *expects)


def test_a_layer_of_torch_is_named_where_no_line_is_the_users() -> None:
    step = from_objects(nn.Sequential(nn.ReLU(), nn.Linear(3, 1)), torch.ones(2, 5), nn.MSELoss())
    explained(
        step, "wrong_shape", "1 = Linear(in_features=3", "(2x5 and 3x1)", "float32 [2, 5]", "Sequential.forward(input)"
    )


def test_the_expectation_of_a_transformers_model_begins_with_its_main_input() -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=1, vocab_size=8))
    text = expectation(model)
    assert text.startswith("Qwen3ForCausalLM.forward(input_ids: ")
    assert "labels: " in text
    assert "use_cache" not in text


def test_an_unknown_example_is_named_with_those_there_are() -> None:
    raised(lambda: examples.from_builtin("resume"), "no_such_builtin", "resume", *examples.BUILTINS)
