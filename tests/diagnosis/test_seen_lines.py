"""Lines that a witness saw are named for certain; those that are looked for in the source are likely."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.records import Finding
from gradkit.load.specs import call_spec, find_spec
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import listening

Program = tuple[nn.Module, Callable[[], torch.Tensor]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.merger, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.merger(self.encoder(x).tanh()).tanh())
        return out


@pytest.fixture(autouse=True)
def _grad_on() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)


def squared(model: nn.Module) -> Callable[[], torch.Tensor]:
    x = torch.randn(3, 4)
    return lambda: model(x).square().mean()


def freeze(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.requires_grad = False  # FREEZES


def frozen_by_a_helper_that_froze_another_first() -> Program:
    teacher, student = Net(), Net()
    teacher.requires_grad_(False)
    freeze(teacher)
    freeze(student)
    return student, squared(student)


def frozen_where_another_branch_reads_alike() -> Program:
    model, tune = Net(), "net.merger"
    if not tune:
        model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if not name.startswith(tune):
            parameter.requires_grad = False  # CUT
    return model, squared(model)


def frozen_by_a_value() -> Program:
    model = Net()
    model.encoder.requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.endswith("adapter")  # CUT
    return model, squared(model)


def frozen_before_it_was_copied() -> Program:
    model = Net()
    model.merger.requires_grad_(False)  # CUT
    model = copy.deepcopy(model)
    return model, squared(model)


def copied_from_one_that_stays_frozen() -> Program:
    teacher = Net().requires_grad_(False)
    model = copy.deepcopy(teacher)  # CUT
    x = torch.randn(3, 4)
    model.head = nn.Linear(4, 1)
    return model, lambda: (model(x) - teacher(x)).square().mean()


def frozen_by_a_condition_that_does_not_spare_it() -> Program:
    model = nn.Sequential()
    model.add_module("net", Net())
    for name, parameter in model.named_parameters():
        if not name.startswith("merger"):  # CUT
            parameter.requires_grad = False
    model.net.head.requires_grad_(True)
    return model, squared(model)


def made_frozen_by_a_layer_of_torchs() -> Program:
    model, ids = nn.Sequential(), torch.arange(3)
    model.add_module("merger", nn.Embedding.from_pretrained(torch.randn(3, 4)))  # CUT
    model.add_module("head", nn.Linear(4, 1))
    return model, lambda: model(ids).square().mean()


def switched_off_by_a_value() -> Program:
    model, training = Net(), False
    torch.set_grad_enabled(training)  # CUT
    return model, squared(model)


def entered_and_never_left() -> Program:
    model, guard = Net(), torch.no_grad()
    guard.__enter__()  # CUT
    return model, squared(model)


def marked(function: Callable[..., object], mark: str = "# CUT") -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if line.rstrip().endswith(mark))


def first(make: Callable[[], Program], *, seen: bool, **options: Any) -> Finding:
    with listening() if seen else contextlib.nullcontext():
        model, step = make()
    return gradkit.diagnose(step, model=model, should_train=["*merger.*"], **options).findings[0]


@pytest.mark.parametrize(
    "make",
    [
        frozen_where_another_branch_reads_alike, frozen_by_a_value, frozen_before_it_was_copied,
        copied_from_one_that_stays_frozen, frozen_by_a_condition_that_does_not_spare_it,
        made_frozen_by_a_layer_of_torchs,
        switched_off_by_a_value, entered_and_never_left,
    ],
)  # fmt: skip
def test_the_line_that_was_seen_is_named(make: Callable[[], Program]) -> None:
    finding = first(make, seen=True)
    assert finding.location is not None
    assert finding.location.line == marked(make)
    assert finding.proof in ("observed", "proven")


def test_a_condition_that_lets_a_parameter_in_by_its_name_is_told() -> None:
    def make() -> Program:
        model = Net()
        for name, parameter in model.named_parameters():
            if "merge" in name:
                parameter.requires_grad = False
        return model, squared(model)

    (told,) = [note for note in first(make, seen=True).notes if note.kind == "let_in"]
    assert told.location is not None
    assert (told.location.text.strip(), told.facts["text"]) == ('if "merge" in name:', "merge")


def test_a_line_in_a_helper_is_named_with_the_call_that_counts() -> None:
    finding = first(frozen_by_a_helper_that_froze_another_first, seen=True)
    assert finding.location is not None
    assert finding.location.line == marked(freeze, "# FREEZES")
    (caller,) = [note.location for note in finding.notes if note.kind == "called_by"]
    assert caller is not None
    assert caller.text.strip() == "freeze(student)"


def test_without_a_witness_a_line_that_was_looked_for_is_likely() -> None:
    finding = first(frozen_by_a_value, seen=False)
    assert finding.location is not None
    assert (finding.proof, finding.doubt) == ("likely", "read")


def test_without_a_witness_what_names_no_line_was_observed() -> None:
    model, flag = Net(), "requires_grad"
    setattr(model.merger.weight, flag, False)
    finding = gradkit.diagnose(squared(model), model=model, should_train=["merger.weight"]).findings[0]
    assert (finding.cause, finding.proof) in (("frozen_all", "observed"), ("frozen_all", "likely"))
    assert (finding.location is None) == (finding.proof == "observed")


def test_a_second_line_that_freezes_is_told_as_well() -> None:
    def make() -> Program:
        model = Net()
        model.merger.requires_grad_(False)  # CUT
        for parameter in model.merger.parameters():
            parameter.requires_grad = False
        return model, squared(model)

    finding = first(make, seen=True)
    assert finding.location is not None
    assert finding.location.line == marked(make)
    (again,) = [note.location for note in finding.notes if note.kind == "frozen_again"]
    assert again is not None
    assert again.text.strip() == "parameter.requires_grad = False"


def test_two_lines_that_freeze_different_layers_are_two_findings() -> None:
    with listening():
        model = Net()
        model.merger.requires_grad_(False)
        model.head.requires_grad_(False)
    report = gradkit.diagnose(squared(model), model=model, should_train=["*"])
    assert [f.location.text.strip() for f in report.findings if f.location] == [
        "model.merger.requires_grad_(False)",
        "model.head.requires_grad_(False)",
    ]


def test_what_was_frozen_and_thawed_again_is_not_told_by_the_first_line() -> None:
    def make() -> Program:
        model = Net()
        model.requires_grad_(False)
        model.requires_grad_(True)
        model.merger.requires_grad_(False)  # CUT
        return model, squared(model)

    finding = first(make, seen=True)
    assert finding.location is not None
    assert finding.location.line == marked(make)


def test_an_optimizer_that_was_seen_is_told_from_another_like_it() -> None:
    with listening():
        other, model = Net(), Net()
        unused = torch.optim.AdamW(other.parameters(), lr=1e-3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model.head = nn.Linear(4, 2)
    report = gradkit.diagnose(squared(model), model=model, optimizer=optimizer)
    (finding,) = report.findings
    assert finding.location is not None
    assert finding.location.text.strip() == "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
    assert finding.proof == "observed"
    (placed,) = [note.location for note in finding.notes if note.kind == "put_after"]
    assert placed is not None
    assert placed.text.strip() == "model.head = nn.Linear(4, 2)"
    assert unused.param_groups


def test_an_adapter_that_was_seen_to_be_loaded_is_told_from_another(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["encoder"], r=2, init_lora_weights=False)
    peft.get_peft_model(Net(), config).save_pretrained(tmp_path)
    with listening():
        reference = peft.PeftModel.from_pretrained(Net(), tmp_path)
        policy = peft.PeftModel.from_pretrained(Net(), tmp_path)
    x = torch.randn(3, 4)
    finding = gradkit.diagnose(
        lambda: (policy(x) - reference(x)).square().mean(), model=policy, should_train=["*lora*"]
    ).findings[0]
    assert finding.cause == "adapter_inference_mode"
    assert finding.location is not None
    assert finding.location.text.strip() == "policy = peft.PeftModel.from_pretrained(Net(), tmp_path)"
    assert finding.proof == "observed"


def test_a_diagnosis_adds_nothing_to_a_history() -> None:
    with listening():
        model, step = frozen_by_a_value()
        before = deeds_of(model.merger.weight)
        gradkit.diagnose(step, model=model, should_train=["merger.*"])
        assert deeds_of(model.merger.weight) == before


def test_a_program_that_gradkit_loads_is_heard(tmp_path: Path) -> None:
    file = tmp_path / "program_that_is_heard.py"
    file.write_text(
        "from torch import nn\ndef make():\n    net = nn.Linear(2, 1)\n    return net.requires_grad_(False)\n"
    )
    built: Any = call_spec(find_spec(f"{file}:make"))
    assert deeds_of(built.weight)[-1].kind == "frozen"
    assert deeds_of(built.weight)[-1].chain[0][0].co_name == "make"
