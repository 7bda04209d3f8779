"""A part that is frozen by mistake, and an optimizer that lacks it for that alone, or for a reason of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.report.report import Report

Optimizer = Callable[[nn.Module], torch.optim.Optimizer]
SHOULD_TRAIN = ["proj.*", "head.*"]


def built() -> nn.Module:
    model = nn.Sequential()
    for name, part in (("tower", nn.Linear(3, 4)), ("proj", nn.Linear(4, 4)), ("head", nn.Linear(4, 2))):
        model.add_module(name, part)
    return model


def too_wide(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if not name.startswith("head"):
            p.requires_grad = False


def by_flag(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


def by_groups(model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": [*filter(lambda p: p.requires_grad and p.ndim > 1, model.parameters())]}]
    groups.append({"params": [p for p in model.parameters() if p.requires_grad and not p.ndim > 1]})
    return torch.optim.SGD(groups, lr=0.1)


def by_part(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.get_submodule("head").parameters(), lr=0.1)


def report_of(freeze: Callable[[nn.Module], None], optimizer: Optimizer, watched: bool = False) -> Report:
    def set_up() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = built()
        freeze(model)
        return model, optimizer(model)

    if watched:
        with gradkit.watch():
            model, made = set_up()
    else:
        model, made = set_up()
    x = torch.randn(5, 3)
    return gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model, optimizer=made, should_train=SHOULD_TRAIN)


@pytest.mark.parametrize(("optimizer", "watched"), [(by_flag, False), (by_flag, True), (by_groups, True)])
def test_an_optimizer_that_takes_what_requires_grad_is_a_note_at_what_froze(
    optimizer: Optimizer, watched: bool
) -> None:
    (finding,) = report_of(too_wide, optimizer, watched).findings
    assert (finding.cause, finding.location.function if finding.location else "") == ("frozen_all", "too_wide")
    (note,) = [note for note in finding.notes if note.kind == "skipped_here"]
    assert note.location is not None
    assert note.location.function == optimizer.__name__


def test_an_optimizer_of_another_part_is_told_besides_after_what_froze() -> None:
    report = report_of(too_wide, by_part, watched=True)
    assert [one.cause for one in report.findings] == ["frozen_all", "optimizer_mismatch"]


def test_an_optimizer_that_was_built_before_a_part_was_thawed_is_told_alone() -> None:
    def and_thawed(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = by_flag(model)
        model.requires_grad_(True)
        return optimizer

    report = report_of(too_wide, and_thawed)
    assert [one.cause for one in report.findings] == ["optimizer_mismatch"]


def test_where_only_what_was_meant_is_frozen_nothing_is_told() -> None:
    assert report_of(lambda model: too_wide(model.get_submodule("tower")), by_flag).healthy


@pytest.mark.parametrize("named", [True, False])
def test_what_is_frozen_and_not_used_is_told_as_both_where_it_was_asked_for(named: bool) -> None:
    model = built()
    model.add_module("spare", nn.Linear(2, 2))
    model.get_submodule("spare").requires_grad_(False)
    x = torch.randn(5, 3)

    def step() -> torch.Tensor:
        result: torch.Tensor = model.get_submodule("proj")(model.get_submodule("tower")(x))
        return model.get_submodule("head")(result).pow(2).mean()  # type: ignore[no-any-return]

    report = gradkit.diagnose(step, model=model, should_train=["*"] if named else None)
    assert [one.cause for one in report.findings] == (["frozen_all", "trainable_unused"] if named else [])
