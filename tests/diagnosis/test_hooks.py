"""The user's hooks on gradients: told from a library's, called and made to change nothing, and blamed with reason."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.diagnosis.experiments.hook_probe import FINE, ZERO, GradientWatch, gradient_state
from gradkit.diagnosis.experiments.without_hooks import Transparent
from gradkit.diagnosis.facts import hooks
from gradkit.source.locations import line_of
from tests.marks import line_ending
from tests.programs import cut as cut_programs
from tests.programs.shared import batch, pair


def zeros(grad: torch.Tensor) -> torch.Tensor:
    return grad * 0


class Zeros:
    def __call__(self, grad: torch.Tensor) -> torch.Tensor:
        return grad * 0

    def of(self, grad: torch.Tensor) -> torch.Tensor:
        return grad * 0


def scaled(factor: float, grad: torch.Tensor) -> torch.Tensor:
    return grad * factor


def leaf() -> torch.Tensor:
    return nn.Parameter(torch.ones(3))


# -- whose hook it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hook",
    [zeros, lambda grad: grad * 0, Zeros(), Zeros().of, functools.partial(scaled, 0.0), torch.no_grad()(zeros)],
    ids=["function", "lambda", "object", "method", "partial", "decorated"],
)
def test_a_hook_of_the_users_is_known_in_any_form(hook: Callable[..., Any]) -> None:
    code = hooks.users_hooks(hook)
    assert code is not None
    assert code.co_filename == __file__


@pytest.mark.parametrize("hook", [torch.zeros_like, nn.Linear(1, 1), [].append, functools.partial(print, 1)])
def test_what_a_library_wrote_is_no_hook_of_the_users(hook: Callable[..., Any]) -> None:
    assert hooks.users_hooks(hook) is None


def test_a_hook_of_a_librarys_acts_as_ever() -> None:
    weight = leaf()
    weight.register_hook(torch.zeros_like)
    with Transparent({"weight": weight}).listening() as heard:
        weight.sum().backward()
    assert not weight.grad.any()
    assert heard.tampered == []


# -- transparent ------------------------------------------------------------------------------------------------------


def test_a_transparent_hook_is_called_and_changes_nothing() -> None:
    weight, called = leaf(), []
    weight.register_hook(lambda grad: called.append(1) or grad * 0)
    weight.register_hook(lambda grad: grad.zero_())
    weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    with Transparent({"weight": weight}).listening() as heard:
        weight.sum().backward()
    assert called
    assert weight.grad.tolist() == [1, 1, 1]
    assert [(one.kind, one.owner, one.emptied) for one in heard.tampered] == [
        ("zero", "weight", False), ("zero", "weight", False), ("zero", "weight", True),
    ]  # fmt: skip


def test_a_hook_that_is_removed_while_it_is_listened_to_stays_away() -> None:
    weight = leaf()
    handle = weight.register_hook(zeros)
    with Transparent({"weight": weight}).listening():
        handle.remove()
    assert not weight._backward_hooks


def test_tables_are_as_before_after_an_error() -> None:
    weight, layer = leaf(), nn.Linear(3, 1)
    weight.register_hook(zeros)
    layer.register_full_backward_hook(lambda *_: None)
    methods = torch.Tensor.register_hook, nn.Module._get_backward_hooks
    with pytest.raises(ValueError, match="in the step"), Transparent({"weight": weight}).listening():
        raise ValueError("in the step")
    assert list(weight._backward_hooks.values()) == [zeros]
    assert (torch.Tensor.register_hook, nn.Module._get_backward_hooks) == methods


def test_hooks_that_are_to_act_do_so() -> None:
    weight = leaf()
    weight.register_hook(zeros)
    with Transparent({"weight": weight}, [(zeros.__code__,)]).listening() as heard:
        weight.sum().backward()
    assert not weight.grad.any()
    assert heard.tampered == []


# -- what a hook does with the gradient -------------------------------------------------------------------------------


def watched(hook: Callable[[torch.Tensor], Any]) -> GradientWatch:
    grad = torch.ones(3)
    with GradientWatch([grad], hook.__code__) as watch:
        hook(grad)
    del grad
    return watch


def test_a_gradient_that_only_its_norm_is_asked_of_is_not_used() -> None:
    assert not watched(lambda grad: grad.norm().item()).kept()


@pytest.mark.parametrize("holder", [list, dict])
def test_a_gradient_that_is_held_is_used(holder: type) -> None:
    held: Any = holder()
    assert watched(lambda grad: held.append(grad.clone()) if holder is list else held.update(grad=grad)).kept()


def test_a_gradient_that_is_added_to_something_is_used() -> None:
    weight = torch.ones(3)
    assert watched(lambda grad: weight.sub_(grad, alpha=0.1)).kept()


def test_a_gradient_that_an_optimizer_steps_by_is_used() -> None:
    weight = leaf()
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with GradientWatch([weight.grad], None) as watch:
        optimizer.step()
        optimizer.zero_grad()
    assert watch.kept()


def test_the_line_is_the_one_where_it_became_zero() -> None:
    def hook(grad: torch.Tensor) -> torch.Tensor:
        halved = grad / 2
        gone = halved.masked_fill(halved < 1, 0)
        return gone.reshape(3).contiguous()

    grad = torch.ones(3)
    with GradientWatch([grad], hook.__code__) as watch:
        made = hook(grad)
    point = watch.point_of(made)
    assert point is not None
    assert line_of(point) == hook.__code__.co_firstlineno + 2


def test_no_gradient_counts_as_zero_and_an_empty_one_as_fine() -> None:
    assert (gradient_state(None), gradient_state(torch.zeros(0))) == (ZERO, FINE)


# -- the findings -----------------------------------------------------------------------------------------------------


def report_of(name: str) -> gradkit.Report:
    model, step = cut_programs.PROGRAMS[name].build()
    return gradkit.diagnose(step, model=model)


def test_a_hook_that_is_undone_in_a_rerun_is_proven() -> None:
    (finding,) = report_of("a_hook_of_a_module_that_returns_zeros").findings
    assert (finding.proof, finding.revived) == ("proven", ("inner.weight", "inner.bias"))


def test_only_the_hook_that_silences_is_named_among_several() -> None:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0.5)
        code.register_hook(lambda grad: grad * 0)
        code.register_hook(lambda grad: grad * 2)
        return model["outer"](code).sum()

    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.location is not None
    assert finding.location.line == step.__code__.co_firstlineno + 3


def test_each_of_two_hooks_has_its_own_parameters() -> None:
    model, x = pair(other=nn.Linear(4, 4)), batch()

    def step() -> torch.Tensor:
        one, other = model["inner"](x), model["other"](x)
        one.register_hook(lambda grad: grad * 0)
        other.register_hook(lambda grad: torch.zeros_like(grad))
        return model["outer"](one + other).sum()

    findings = gradkit.diagnose(step, model=model).findings
    assert {finding.parameters for finding in findings} == {
        ("inner.weight", "inner.bias"), ("other.weight", "other.bias"),
    }  # fmt: skip


def test_two_ways_that_are_both_stopped_are_both_named() -> None:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        one, other = code.clone(), code.clone()
        one.register_hook(lambda grad: grad * 0)
        other.register_hook(lambda grad: torch.zeros_like(grad))
        return model["outer"](one + other).sum()

    findings = gradkit.diagnose(step, model=model).findings
    assert [finding.parameters for finding in findings] == [("inner.weight", "inner.bias")] * 2
    assert len({finding.location for finding in findings}) == 2


def test_where_a_hook_was_registered_is_told_beside_its_line() -> None:
    (finding,) = report_of("a_hook_that_writes_in_place").findings
    (note,) = finding.notes
    assert note.kind == "registered"
    assert note.location is not None
    assert "register_hook(guard)" in note.location.text


def test_the_line_that_makes_the_nan_is_told_beside_the_hook_that_hides_it() -> None:
    report = report_of("a_hook_that_hides_nan")
    (finding,) = report.findings
    source = next(note for note in finding.notes if note.kind == "nan_from")
    assert source.location is not None
    assert "sqrt()" in source.location.text
    assert finding.proof == "observed"
    assert "nan goes in, zeros come out" in report.text("en")


def test_nothing_is_asked_where_the_step_may_run_only_once() -> None:
    model, step = cut_programs.PROGRAMS["a_hook_on_a_value_that_hands_on_zeros"].build()
    assert gradkit.diagnose(step, model=model, replay=False).runs == 1


def test_zeros_without_a_hook_are_not_asked_about() -> None:
    model, x = pair(), batch()
    nn.init.zeros_(model["outer"].weight)
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model)
    assert (report.healthy, report.runs) == (True, 1)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_hook_that_torch_refuses_is_proven_and_the_error_told(language: str) -> None:
    report = report_of("a_hook_that_returns_a_number")
    (finding,) = report.findings
    assert (finding.proof, len(finding.revived)) == ("proven", 4)
    assert "but hook returned 'float'" in report.text(language)
    assert {"en": "cannot replace the gradient", "zh": "不能充当梯度"}[language] in report.text(language)


def test_a_hook_that_torch_refuses_is_known_without_a_rerun_though_not_its_line() -> None:
    model, step = cut_programs.PROGRAMS["a_hook_that_returns_a_number"].build()
    (finding,) = gradkit.diagnose(step, model=model, replay=False).findings
    assert (finding.cause, finding.location) == ("hook_misuse", None)


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_a_module_hook_that_returns_too_few_gradients_is_named_where_it_returns() -> None:
    class Scaling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    def hook(module: nn.Module, given: Any, handed: Any) -> Any:
        return (handed[0],)  # too few

    model = nn.Sequential(nn.Linear(3, 3), Scaling())
    model[1].register_backward_hook(hook)
    (found,) = gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model).findings
    assert (found.cause, found.variant) == ("hook_misuse", "refused")
    assert found.location is not None
    assert found.location.line == line_ending(__file__, "too few")
