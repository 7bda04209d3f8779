"""A fault, and in front of its error a second one that silences it: both are named, in an order in which they mend."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import Variable
from torch.nn import functional as F

import gradkit
from gradkit.source.changes import applied
from gradkit.types import Report

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.ones(8, 2)


def built(*, frozen: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).requires_grad_(not frozen)


def loss_of(model: nn.Module) -> torch.Tensor:
    return F.mse_loss(model(X), Y)


def set_on_the_loss(model: nn.Module) -> torch.Tensor:
    loss = loss_of(model)
    loss.requires_grad = True
    return loss


def set_by_a_call_before_its_own_backward(model: nn.Module) -> torch.Tensor:
    loss = loss_of(model)
    loss.requires_grad_()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def a_variable(model: nn.Module) -> torch.Tensor:
    return Variable(loss_of(model), requires_grad=True)


def a_variable_before_its_own_backward(model: nn.Module) -> torch.Tensor:
    loss = Variable(loss_of(model), requires_grad=True)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def a_tensor_of_its_number(model: nn.Module) -> torch.Tensor:
    return torch.tensor(loss_of(model).item(), requires_grad=True)


def a_detached_copy(model: nn.Module) -> torch.Tensor:
    return loss_of(model).clone().detach().requires_grad_(True)


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (set_on_the_loss, ["frozen_all", "new_leaf"]),
        (set_by_a_call_before_its_own_backward, ["frozen_all", "new_leaf"]),
        (a_variable, ["new_leaf", "frozen_all"]),
        (a_variable_before_its_own_backward, ["new_leaf", "frozen_all"]),
        (a_tensor_of_its_number, ["new_leaf", "frozen_all"]),
        (a_detached_copy, ["new_leaf", "frozen_all"]),
    ],
)
def test_what_is_frozen_and_what_silences_its_error_are_both_named(
    step: Callable[[nn.Module], torch.Tensor], named: list[str]
) -> None:
    model = built(frozen=True)
    assert [one.cause for one in gradkit.diagnose(lambda: step(model), model=model).findings] == named


@pytest.mark.parametrize(
    "step", [a_variable, a_variable_before_its_own_backward, a_tensor_of_its_number, a_detached_copy]
)
def test_a_new_leaf_in_place_of_the_loss_is_proven(step: Callable[[nn.Module], torch.Tensor]) -> None:
    model = built(frozen=False)
    (found,) = gradkit.diagnose(lambda: step(model), model=model).findings
    assert (found.cause, found.proof, len(found.revived)) == ("new_leaf", "proven", 4)


@pytest.mark.parametrize("step", [loss_of, set_by_a_call_before_its_own_backward])
def test_what_is_frozen_in_front_of_what_learns_is_accused_of_nothing(
    step: Callable[[nn.Module], torch.Tensor],
) -> None:
    model = built(frozen=True)
    model.add_module("last", nn.Linear(2, 2))
    found = gradkit.diagnose(lambda: step(model), model=model).findings
    assert {one.cause for one in found} <= {"new_leaf"}
    assert all(one.alone is None for one in found)


def test_a_flag_on_a_loss_with_a_history_is_sound() -> None:
    model = built(frozen=True)
    model.add_module("last", nn.Linear(2, 2))
    assert gradkit.diagnose(lambda: set_by_a_call_before_its_own_backward(model), model=model).healthy


PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
X, Y = torch.randn(8, 4), torch.ones(8, 2)


def make():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    def step():
        {cut}
        loss = F.mse_loss(out, Y)
        {flag}
        return loss

    return model, step
"""


def diagnosed(text: str, file: Path) -> Report:
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        model, step = module.make()
        return gradkit.diagnose(step, model=model)
    finally:
        del sys.modules[file.stem]


@pytest.mark.parametrize(
    ("cut", "flag"),
    [
        ("out = model(X).detach()", "loss.requires_grad = True"),
        ("with torch.no_grad():\n            out = model(X)", "loss.requires_grad = True"),
        ("out = model(X).data", "loss.requires_grad = True"),
    ],
)
def test_the_changes_that_are_offered_for_both_cure_when_made_together(cut: str, flag: str, tmp_path: Path) -> None:
    text = PROGRAM.format(cut=cut, flag=flag)
    report = diagnosed(text, tmp_path / "flagged_before.py")
    offered = [one.tried.changes for one in report.findings if one.tried is not None]
    assert len([one for one in offered if one]) == 2
    mended = applied(text, [change for one in offered for change in one])
    assert diagnosed(mended, tmp_path / "flagged_after.py").healthy


def test_a_flag_that_may_stay_is_left_where_it_is(tmp_path: Path) -> None:
    text = PROGRAM.format(cut="out = model(X).detach()", flag="loss.requires_grad_(True)")
    cut, flag = diagnosed(text, tmp_path / "flagged_by_a_call.py").findings
    assert cut.tried is not None
    assert cut.tried.outcome == "cures"
    assert flag.tried is None
