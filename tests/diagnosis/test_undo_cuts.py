"""A rerun undoes chosen cuts and nothing else: same numbers, other history."""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint as checkpoints

import gradkit
from gradkit.diagnosis.experiments.undo_cuts import Rerun, UndoCuts, rerun_without_cuts
from gradkit.diagnosis.facts import cuts
from gradkit.state.preserve import Preserved
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer
from tests.programs import cut as cut_programs
from tests.programs.shared import batch, pair

Step = Callable[[], Any]


def found(step: Step, model: nn.Module, preserved: Preserved, starved: tuple[str, ...]) -> tuple[cuts.Cut, ...]:
    tracer = Tracer(model, preserved)
    verdict = cuts.find(tracer.trace(tracer.run(step)), starved)
    assert verdict.cuts
    return verdict.cuts


def undone(model: nn.Module, step: Step, keep: Callable[[cuts.Cut], bool] = lambda _: True) -> Rerun:
    """A rerun without the cuts that ``keep`` picks of those that starve the inner layer."""
    with Preserved(model) as preserved:
        chosen = [cut for cut in found(step, model, preserved, ("inner.weight",)) if keep(cut)]
        return rerun_without_cuts(Session(step, model, preserved), chosen)


def losses(model: nn.Module, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a plain run, and that of a rerun with all cuts undone."""
    with Preserved(model) as preserved:
        chosen = found(step, model, preserved, ("inner.weight",))
        preserved.rewind()
        plain = step()
        preserved.rewind()
        return plain, Tracer(model, preserved, [UndoCuts(chosen)]).run(step)


CUTS = (
    "a_block_with_two_context_managers_on_a_line",
    "a_block_inside_a_block",
    "gradients_enabled_again_too_late",
    "a_decorator_without_parentheses",
    "set_grad_enabled_called_in_a_helper",
    "assignment_under_no_grad",
    "a_reentrant_checkpoint_whose_input_needs_no_grad",
    "four_cuts_one_behind_the_other",
    "a_state_detached_in_a_loop",
    "a_list_that_is_computed_with",
    "a_float_that_scales_another_branch",
    "arrays_through_many_functions",
    "an_array_made_of_a_list_of_arrays",
    "a_cast_to_int8",
    "a_threshold",
    "a_choice_by_argmax",
    "a_sample_of_a_normal_distribution",
)


PROVEN = (
    "a_float_returned_in_the_place_of_the_loss",
    "a_mean_of_python_floats_over_micro_batches",
    "a_root_that_math_takes_of_a_tensor",
    "a_root_by_a_function_that_was_imported_by_its_name",
    "a_backward_that_is_asked_of_a_float",
    "a_list_of_the_losses_of_the_samples",
    "a_whole_number_of_hundredths",
    "a_mean_that_numpy_takes_and_that_is_returned",
    "a_backward_that_is_asked_of_an_array",
    "an_array_of_no_dimensions_returned",
    "set_grad_enabled_as_a_block",
    "set_grad_enabled_as_a_decorator",
    "a_value_detached_in_place",
    "a_flag_set_on_a_detached_loss",
    "a_copy_of_the_model_in_the_step",
    "a_result_put_into_an_existing_tensor",
    "features_gathered_over_the_workers",
)


@pytest.mark.parametrize("name", PROVEN)
def test_a_rerun_proves(name: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    found = [finding for finding in gradkit.diagnose(step, model=model).findings if finding.variant != "flag"]
    assert [finding.proof for finding in found] == ["proven"]


@pytest.mark.parametrize("name", CUTS)
def test_with_all_cuts_undone_the_starved_layer_is_revived_by(name: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    result = undone(model, step)
    assert result.revived is not None
    assert "inner.weight" in result.revived
    assert (result.runs, result.error) == (1, "")


@pytest.mark.parametrize("name", CUTS)
def test_the_numbers_of_the_rerun_are_those_of_the_run_in(name: str) -> None:
    plain, again = losses(*cut_programs.PROGRAMS[name].build())
    assert torch.allclose(plain, again, rtol=1e-6, equal_nan=True)
    assert plain.dtype == again.dtype
    assert plain.shape == again.shape
    assert again.requires_grad


def test_one_of_several_cuts_undone_revives_nothing_behind_the_others() -> None:
    model, step = cut_programs.PROGRAMS["four_cuts_one_behind_the_other"].build()
    for kind in (cuts.DETACH, cuts.DATA, cuts.REGION, cuts.ESCAPE):
        result = undone(model, step, lambda cut, kind=kind: cut.kind != kind)
        assert result.revived == {"outer.weight", "outer.bias"}, kind


def test_a_cut_that_is_not_chosen_stays() -> None:
    model, step = cut_programs.PROGRAMS["two_ways_that_are_both_cut"].build()
    result = undone(model, step, lambda cut: cut.kind == cuts.DETACH)
    assert "inner.weight" in (result.revived or ())
    assert result.trace is not None
    assert {call.name for call in result.trace.calls} >= {"detach", "data"}


def test_the_gradients_of_an_undone_detach_are_the_true_ones() -> None:
    model, x = pair(), batch()

    def step(cut: bool = True) -> torch.Tensor:
        code = model["inner"](x).tanh()
        return model["outer"](code.detach() if cut else code).pow(2).mean()

    with Preserved(model) as preserved:
        chosen = found(step, model, preserved, ("inner.weight",))
        preserved.clear_grads()
        Tracer(model, preserved, [UndoCuts(chosen)]).run(step).backward()
        replayed = model["inner"].weight.grad.clone()
        preserved.clear_grads()
        step(cut=False).backward()
        assert torch.allclose(replayed, model["inner"].weight.grad)


def test_nan_and_infinity_in_what_was_lost_do_not_spoil_the_rerun() -> None:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        lost = (model["inner"](x) * math.inf).item() if x.numel() == 1 else (model["inner"](x) * math.inf).argmax(-1)
        return (model["outer"](x) * F.one_hot(lost, 4).sum(-1, keepdim=True)).sum()

    plain, again = losses(model, step)
    assert torch.allclose(plain, again)
    assert again.isfinite()


def test_random_numbers_are_drawn_again_as_they_were() -> None:
    model, x = pair(drop=nn.Dropout()), batch()
    drawn: list[list[float]] = []

    def step() -> torch.Tensor:
        mask = model["drop"](torch.ones(4))
        drawn.append([*mask.tolist(), np.random.rand()])
        return model["outer"](model["inner"](x).detach() * mask).sum()

    with Preserved(model) as preserved:
        rerun_without_cuts(Session(step, model, preserved), found(step, model, preserved, ("inner.weight",)))
    assert drawn[0] == drawn[1]


def test_a_rerun_starts_from_the_same_weights_and_buffers() -> None:
    model, x = pair(norm=nn.BatchNorm1d(4)), batch()
    seen: list[list[float]] = []

    def step() -> torch.Tensor:
        seen.append([*model["norm"].running_mean.tolist(), *model["outer"].weight.flatten().tolist()])
        with torch.no_grad():
            model["outer"].weight.mul_(2)
        return model["outer"](model["norm"](model["inner"](x)).detach()).sum()

    with Preserved(model) as preserved:
        rerun_without_cuts(Session(step, model, preserved), found(step, model, preserved, ("inner.weight",)))
    assert seen[0] == seen[1]


def test_a_step_that_raises_in_the_rerun_is_no_proof() -> None:
    model, x, runs = pair(), batch(), []

    def step() -> torch.Tensor:
        runs.append(1)
        if len(runs) > 1:
            raise ValueError("only once")
        return model["outer"](model["inner"](x).detach()).sum()

    result = undone(model, step)
    assert result.revived is None
    assert result.runs == 1
    assert "only once" in result.error


def test_a_step_that_is_interrupted_in_the_rerun_comes_through() -> None:
    model, x, runs = pair(), batch(), []

    def step() -> torch.Tensor:
        runs.append(1)
        if len(runs) > 1:
            raise KeyboardInterrupt
        return model["outer"](model["inner"](x).detach()).sum()

    with pytest.raises(KeyboardInterrupt):
        undone(model, step)


def test_the_checkpoint_function_is_torchs_own_afterwards() -> None:
    before = checkpoints.CheckpointFunction
    undone(*cut_programs.PROGRAMS["a_reentrant_checkpoint_whose_input_needs_no_grad"].build())
    assert checkpoints.CheckpointFunction is before


def test_an_undone_in_place_write_changes_no_value_behind_it() -> None:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.data.mul_(3)
        code.data.clamp_(min=0)
        return model["outer"](code.detach()).sum()

    plain, again = losses(model, step)
    assert torch.allclose(plain, again)


# -- why a cut is no more than likely ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("an_inner_step_that_writes_the_data_of_a_copy", "stored"),
        ("a_gate_that_is_only_compared", "read"),
    ],
)
def test_a_finding_that_is_only_likely_says_why(name: str, why: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    finding = gradkit.diagnose(step, model=model).findings[-1]
    assert (finding.proof, finding.doubt) == ("likely", why)


def test_without_a_rerun_the_report_says_that_none_was_made() -> None:
    model, step = cut_programs.PROGRAMS["a_threshold"].build()
    report = gradkit.diagnose(step, model=model, replay=False)
    assert "was not run again" in report.text("en")
    assert "没有为证实它而重跑" in report.text("zh")


def test_a_rerun_that_raises_is_quoted() -> None:
    model, x = pair(), batch()
    runs: SimpleQueue[int] = SimpleQueue()

    def step() -> torch.Tensor:
        runs.put(1)
        if runs.qsize() > 1:
            raise ValueError("only once")
        return model["outer"](model["inner"](x).detach()).sum()

    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.proof, finding.doubt) == ("likely", "raised")
    assert "only once" in finding.facts["raised"]
