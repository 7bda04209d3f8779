"""What gradkit raises itself while a step is run again is never taken for the step's, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.core import attempts
from gradkit.diagnosis.experiments import hook_probe, lost_gradients, undo_cuts, undo_errors
from gradkit.source import faults
from gradkit.state import holders
from gradkit.state.preserve import Preserved
from gradkit.tracing import backward
from gradkit.tracing import interventions as tracing_interventions
from gradkit.tracing.interventions import Intervention, Moment, Together
from gradkit.tracing.ledger import Ledger
from gradkit.tracing.run import Run, Session
from tests.programs.shared import batch, pair

Step = Callable[[], Any]


class PlantedError(Exception):
    """Raised where gradkit is made to fail."""


def _in_gradkit(source: str) -> Any:
    """A function as if it were written in gradkit: a file of the tests is a user's."""
    names = {"PlantedError": PlantedError}
    exec(compile(source, tracing_interventions.__file__, "exec"), names)
    return names["broken"]


broken = _in_gradkit("def broken(*_, **__): raise PlantedError('planted')")


def run_of(step: Step, model: nn.Module, *interventions: Intervention) -> Run:
    with Preserved(model, step) as preserved:
        return Session(step, model, preserved).run(*interventions)


# -- what the user's code raises --------------------------------------------------------------------------------------


class RefusingFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.view(7, 7, 7)


def of_torch(x: torch.Tensor) -> Any:
    return x @ torch.ones(9, 9)


def of_a_function_of_torchs_in_python(x: torch.Tensor) -> Any:
    return F.max_pool2d_with_indices(x, "large")  # type: ignore[arg-type]


def of_a_module(x: torch.Tensor) -> Any:
    return nn.Linear(9, 9)(x)


def of_a_cast_to_numpy(x: torch.Tensor) -> Any:
    return x.requires_grad_().numpy()


def of_an_array(x: torch.Tensor) -> Any:
    return x.detach().numpy() @ np.ones((9, 9))


def of_an_index_into_an_array(x: torch.Tensor) -> Any:
    return x.detach().numpy()[100]


def of_mathematics(x: torch.Tensor) -> Any:
    return math.sqrt(float(x.detach().sum() * 0 - 1.5))


def of_a_derivative(x: torch.Tensor) -> Any:
    return torch.autograd.grad(x.requires_grad_().sum(), torch.ones(1, requires_grad=True))


def of_a_second_backward(x: torch.Tensor) -> Any:
    loss = x.requires_grad_().square().sum()
    loss.backward()
    loss.backward()


def of_a_flag(x: torch.Tensor) -> Any:
    (x.requires_grad_() * 2).requires_grad = False


def of_a_parameter(_: torch.Tensor) -> Any:
    return nn.Parameter(torch.ones(2, dtype=torch.int64))


def of_a_write(x: torch.Tensor) -> Any:
    x[100] = 0


def of_a_checkpoint(x: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(of_torch, x, use_reentrant=True)


def of_a_transform(x: torch.Tensor) -> Any:
    return torch.func.vmap(of_torch)(x)


def of_their_own(_: torch.Tensor) -> Any:
    raise ZeroDivisionError("mine")


def of_what_they_caught(x: torch.Tensor) -> Any:
    try:
        of_torch(x)
    except RuntimeError as error:
        raise KeyError("mine") from error


RAISING = (
    of_torch, of_a_function_of_torchs_in_python, of_a_module, of_a_cast_to_numpy, of_an_array,
    of_an_index_into_an_array, of_mathematics, of_a_derivative, of_a_second_backward, of_a_flag, of_a_parameter,
    of_a_write, of_a_checkpoint, of_a_transform, of_their_own, of_what_they_caught,
)  # fmt: skip


@pytest.mark.parametrize("raising", RAISING)
@pytest.mark.parametrize("intervention", [Intervention, undo_errors.SaveCopies, lost_gradients.WatchNan])
def test_the_step_is_told_to_have_raised_an_error(raising: Step, intervention: Callable[[], Intervention]) -> None:
    model = pair()

    def step() -> torch.Tensor:
        raising(batch())
        return model["inner"](batch()).sum()

    run = run_of(step, model, intervention())
    assert run.trace is None
    assert run.where == "step"
    assert "Error" in run.error


def test_a_step_that_is_no_function_of_python_may_raise() -> None:
    run = run_of(torch.ones(1).requires_grad_().numpy, pair())
    assert (run.where, run.error.partition(":")[0]) == ("step", "RuntimeError")


def test_a_step_that_returns_no_loss_when_it_is_run_again_is_told_to() -> None:
    assert run_of(lambda: None, pair()).where == "step"


def test_the_backward_is_told_to_have_raised_an_error() -> None:
    model = pair()
    run = run_of(lambda: RefusingFunction.apply(model["inner"](batch())).sum(), model)
    assert run.where == "backward"
    assert "shape" in run.error
    assert run.trace is not None


def test_a_hook_of_the_users_that_is_a_function_of_torchs_may_raise_in_the_backward() -> None:
    model = pair()

    def step() -> torch.Tensor:
        hidden = model["inner"](batch())
        hidden.register_hook(torch.linalg.inv)
        return hidden.sum()

    assert run_of(step, model).where == "backward"


def test_everything_is_put_back_where_the_step_raised() -> None:
    model = pair()
    before = model["inner"].weight.detach().clone()

    def step() -> torch.Tensor:
        with torch.no_grad():
            model["inner"].weight.zero_()
        raise ZeroDivisionError

    run_of(step, model)
    assert torch.equal(model["inner"].weight, before)


# -- what gradkit raises ----------------------------------------------------------------------------------------------


class BreakingAt(Intervention):
    """Raises at one of its points."""

    def __init__(self, point: str) -> None:
        setattr(self, point, broken)


def written_and_made() -> tuple[nn.Module, Step]:
    """A step in which every point is come to."""
    model = pair()

    def step() -> torch.Tensor:
        made = nn.Parameter(model["inner"](batch()).detach())
        made.requires_grad = True
        return (made * 2).mul_(3).sum()

    return model, step


POINTS = ("before_call", "after_call", "before_write", "may_set", "parameter_made", "recorded", "during", "during_step")


@pytest.mark.parametrize("point", POINTS)
def test_a_fault_of_an_intervention_is_raised(point: str) -> None:
    model, step = written_and_made()
    with pytest.raises(PlantedError):
        run_of(step, model, Intervention(), BreakingAt(point))


@pytest.mark.parametrize("point", POINTS[:6])
def test_a_fault_that_the_step_itself_has_caught_is_raised(point: str) -> None:
    model, step = written_and_made()

    def careful() -> torch.Tensor:
        try:
            return step()  # type: ignore[no-any-return]
        except Exception:
            return torch.ones(1, requires_grad=True).clone()

    with pytest.raises(PlantedError):
        run_of(careful, model, BreakingAt(point))


def test_what_the_users_own_class_raises_in_an_intervention_is_its_fault() -> None:
    class Asking(Intervention):
        def after_call(self, moment: Moment, name: str, inputs: Any, given: Any, result: Any) -> Any:
            raise PlantedError

    model = pair()
    with pytest.raises(PlantedError) as raised:
        run_of(lambda: model["inner"](batch()).sum(), model, Asking())
    assert faults.is_ours(raised.value)


def test_ctrl_c_comes_through_also_after_a_fault() -> None:
    def step() -> torch.Tensor:
        try:
            torch.ones(1)
        except PlantedError as fault:
            raise KeyboardInterrupt from fault
        return torch.ones(1)

    with pytest.raises(KeyboardInterrupt):
        run_of(step, pair(), BreakingAt("after_call"))


def test_a_fault_of_the_tracer_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pair()
    monkeypatch.setattr(Ledger, "inputs", broken)
    with pytest.raises(PlantedError):
        run_of(lambda: model["inner"](batch()).sum(), model)


def test_several_interventions_are_asked_in_turn() -> None:
    class Adding(Intervention):
        def __init__(self, number: int) -> None:
            self.number, self.skip = number, frozenset([number])

        def after_call(self, moment: Moment, name: str, inputs: Any, given: Any, result: Any) -> Any:
            return result * 10 + self.number if name == "square" else result

    both = Together([Adding(1), Adding(2)])
    moment = Moment(None, broken.__code__, 0, None)  # type: ignore[arg-type]
    assert both.after_call(moment, "square", (), (), 5) == 512
    assert both.skip == {1, 2}


# -- in a diagnosis ---------------------------------------------------------------------------------------------------


def a_cut() -> tuple[nn.Module, Step]:
    model = pair()
    return model, lambda: model["outer"](model["inner"](batch()).detach()).sum()


def an_overwrite() -> tuple[nn.Module, Step]:
    model = pair()

    def step() -> torch.Tensor:
        hidden = model["inner"](batch()).sigmoid()
        return hidden.square().sum() + hidden.mul_(2).sum()

    return model, step


def a_past() -> tuple[nn.Module, Step]:
    model = pair()
    kept = model["inner"](batch()).exp()
    kept.sum().backward()
    return model, lambda: (kept * model["outer"](batch())).sum()


def a_hook() -> tuple[nn.Module, Step]:
    model = pair()
    model["inner"].weight.register_hook(lambda grad: grad * 0)
    return model, lambda: model["inner"](batch()).sum()


def nan() -> tuple[nn.Module, Step]:
    model = pair()
    return model, lambda: (model["inner"](batch()) * 0).sqrt().sum()


def all_zero() -> tuple[nn.Module, Step]:
    model = nn.Linear(4, 4)
    return model, lambda: (model(batch()) * 0).sum()


def a_kept_value() -> tuple[nn.Module, Step]:
    model, pages = pair(), {}
    pages["hidden"] = torch.randn(6, 4)

    def step() -> torch.Tensor:
        if "hidden" not in pages:
            pages["hidden"] = model["inner"](batch())
        return model["outer"](pages["hidden"]).sum()

    return model, step


PLACES = (
    (a_cut, undo_cuts.UndoCuts, "_kind", "replay"),
    (an_overwrite, undo_errors.SaveCopies, "_hand_out", "mend"),
    (an_overwrite, undo_errors.SaveCopies, "before_write", "mend"),
    (a_past, undo_errors.LetGo, "_let_go", "mend"),
    (a_hook, hook_probe.Hook, "_say", "hooks"),
    (nan, lost_gradients.WatchNan, "after_call", "questions"),
    (nan, backward, "_finite", "questions"),
    (all_zero, lost_gradients, "_why", "questions"),
    (a_kept_value, holders, "remove", "stale"),
)


@pytest.mark.parametrize(("make", "owner", "name", "what"), PLACES)
def test_a_fault_in_an_experiment_fails_our_tests(
    make: Callable[[], tuple[nn.Module, Step]], owner: Any, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, step = make()
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(PlantedError):
        gradkit.diagnose(step, model=model)


@pytest.mark.parametrize(("make", "owner", "name", "what"), PLACES)
def test_a_person_is_told_which_proof_could_not_be_made_and_why(
    make: Callable[[], tuple[nn.Module, Step]], owner: Any, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, step = make()
    monkeypatch.setattr(attempts, "LOUD", False)
    monkeypatch.setattr(owner, name, broken)
    report = gradkit.diagnose(step, model=model)
    assert [(one.what, one.error) for one in report.untried] == [(what, "PlantedError: planted")]
    assert "PlantedError: planted" in report.text("zh")
