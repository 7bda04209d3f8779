"""What takes the place of a loss is found at the line where it was made, and refused only if it is no number at all."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import backward as imported_backward

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.report.report import Report
from tests import snapshots
from tests.programs import cut as cut_programs
from tests.programs.shared import batch, pair, small

NUMBERS = (
    "a_float_returned_in_the_place_of_the_loss", "a_mean_of_python_floats_over_micro_batches",
    "a_root_that_math_takes_of_a_tensor", "a_backward_that_is_asked_of_a_float", "a_whole_number_of_hundredths",
    "a_list_of_the_losses_of_the_samples", "a_root_by_a_function_that_was_imported_by_its_name",
    "a_mean_that_numpy_takes_and_that_is_returned", "a_backward_that_is_asked_of_an_array",
    "an_array_of_no_dimensions_returned",
)  # fmt: skip
NOTHING = (
    "a_function_of_the_loss_without_a_return", "a_branch_that_returns_nothing", "a_backward_that_is_asked_of_nothing",
    "a_branch_that_is_not_taken_and_nothing_after_it",
)  # fmt: skip
CONSTANT = ("a_number_that_the_model_had_no_part_in",)
EARLIER = (
    "a_loss_computed_before_the_step", "half_of_a_loss_computed_before_the_step_and_handed_on",
    "a_loss_that_went_backward_before_the_step",
)  # fmt: skip
ALL = (*NUMBERS, *NOTHING, *CONSTANT, *EARLIER)


def report_of(name: str, *, replay: bool = True) -> Report:
    model, step = cut_programs.PROGRAMS[name].build()
    return gradkit.diagnose(step, model=model, replay=replay)


def diagnosed(step: Callable[[], object], model: nn.Module) -> Report:
    return gradkit.diagnose(step, model=model)


def told(report: Report) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.cause, one.variant, one.parameters) for one in report.findings]


def line(report: Report) -> str:
    spot = report.findings[0].location
    assert spot is not None
    return spot.text.strip()


ALL_OF_SMALL = ("0.weight", "0.bias", "2.weight", "2.bias")
INNER = ("inner.weight", "inner.bias")


# -- everything of a report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_report_can_be_shown_in_every_way_of(name: str, tmp_path: Path) -> None:
    report = report_of(name)
    for language in ("en", "zh"):
        assert report.findings[0].cause in report.text(language)
        assert report.findings[0].cause in report.html(language, with_picture=False)
        assert all(check.text(language) for check in report.checklist())
        for view in ("map", "graph"):
            assert report.graph(view, language).source
    held = json.loads(report.save(tmp_path / "report.json").read_text(encoding="utf-8"))
    assert held["healthy"] is False


@pytest.mark.parametrize("name", [one for one in ALL if one != "a_loss_that_went_backward_before_the_step"])
def test_the_picture_leads_from_what_starves_over_a_plate_to_the_loss_of(name: str) -> None:
    picture = report_of(name).picture
    numbers = {node.kind: node.number for node in picture.nodes}
    into = {edge.target: edge.source for edge in picture.edges if edge.status == "cut"}
    assert into[numbers["loss"]] == numbers["cut"]
    assert numbers["cut"] in into
    starved = {node.label for node in picture.nodes if node.status == "starved"}
    assert starved == set(report_of(name).findings[0].parameters)


@pytest.mark.parametrize("name", [*NUMBERS, *NOTHING, *CONSTANT])
def test_the_picture_shows_what_the_model_computed_in(name: str) -> None:
    nodes = report_of(name).picture.nodes
    assert {"linear", "AddmmBackward0"} & {node.label for node in nodes}
    assert "as_tensor" not in {node.label for node in nodes}


@pytest.mark.parametrize("name", [one for one in ALL if one != "a_backward_that_is_asked_of_nothing"])
def test_without_replay_the_step_runs_once_and_no_other_line_is_named_of(name: str) -> None:
    program = cut_programs.PROGRAMS[name]
    model, step = program.build()
    runs: SimpleQueue[int] = SimpleQueue()

    def counted() -> Any:
        runs.put(1)
        return step()

    report = gradkit.diagnose(counted, model=model, replay=False)
    assert runs.qsize() == report.runs == 1
    assert report.findings
    own = [f for f in report.findings if f.location and "counted" not in f.location.function]
    assert {f.location.line for f in own if f.location} <= program.lines


def test_without_replay_it_is_told_where_the_variable_was_given_nothing() -> None:
    assert line(report_of("a_backward_that_is_asked_of_nothing", replay=False)).startswith("loss: Any = collect(")


@pytest.mark.parametrize("name", ALL)
def test_no_profiler_is_left_behind_by(name: str) -> None:
    report_of(name)
    assert sys.getprofile() is None


@pytest.mark.parametrize("name", ALL)
def test_all_is_as_it_was_after(name: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    before = snapshots.take(model)
    gradkit.diagnose(step, model=model)
    assert snapshots.differences(before, snapshots.take(model)) == []


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_where_backward_is_asked_of_a_number_is_told(language: str) -> None:
    report = report_of("a_backward_that_is_asked_of_a_float")
    (note,) = report.findings[0].notes
    assert note.location is not None
    assert note.location.text.strip() == "loss.backward()"
    assert "float" in report.text(language)
    assert "Float" not in report.text(language)


def test_no_gradient_can_flow_from_a_number() -> None:
    report = report_of("a_float_returned_in_the_place_of_the_loss")
    assert report.verdict("en").startswith("No gradient can flow: none of the 4 parameters")
    assert (report.backward, report.error) == (False, "")


def test_what_stands_before_the_number_is_named_too() -> None:
    model, x = pair(), batch()

    def step() -> float:
        code = model["inner"](x).detach()
        return float(model["outer"](code).pow(2).mean()) * 2

    report = diagnosed(step, model)
    assert {(f.cause, f.proof) for f in report.findings} == {("detach", "proven"), ("python_roundtrip", "proven")}


def test_a_number_that_the_standard_library_computes_is_followed_through_the_source() -> None:
    model, x = small(), batch()
    report = diagnosed(lambda: statistics.mean([model(rows).mean().item() for rows in x.split(2)]), model)
    assert told(report) == [("python_roundtrip", "", ALL_OF_SMALL)]
    assert report.findings[0].proof == "proven"


def test_a_number_for_the_log_is_not_taken_for_the_one_that_is_returned() -> None:
    model, x, history = small(), batch(), []

    def step() -> float:
        out = model(x)
        history.append(float(out.mean()))
        loss = float(out.pow(2).mean())
        return loss * 2

    assert line(diagnosed(step, model)) == "loss = float(out.pow(2).mean())"


def test_the_losses_of_two_heads_are_both_named() -> None:
    model, x = pair(), batch()

    def step() -> float:
        first = float(model["inner"](x).pow(2).mean())
        second = model["outer"](x).pow(2).mean().item()
        return first * 2 + second

    report = diagnosed(step, model)
    assert sorted(names for *_, names in told(report)) == [INNER, ("outer.weight", "outer.bias")]
    assert {f.proof for f in report.findings} == {"proven"}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_numpy_scalar_is_named_where_it_is_made(kind: type) -> None:
    model, x = small(), batch()

    def step() -> Any:
        loss = kind(model(x).pow(2).mean().detach())
        return loss  # noqa: RET504

    assert line(diagnosed(step, model)) == "loss = kind(model(x).pow(2).mean().detach())"


def test_a_loss_function_that_returns_a_number_is_found_too() -> None:
    model = small()
    report = gradkit.diagnose(
        model, (batch(), torch.ones(6, 1)), loss=lambda out, pair: F.mse_loss(out, pair[1]).item()
    )
    assert told(report) == [("python_roundtrip", "", ALL_OF_SMALL)]
    assert report.findings[0].proof == "proven"


def test_a_number_after_a_backward_of_another_loss_is_what_starves_the_rest() -> None:
    model, x = pair(), batch()

    def step() -> None:
        model["outer"](x).mean().backward()
        auxiliary: Any = model["inner"](x).pow(2).mean().item()
        auxiliary.backward()

    assert told(diagnosed(step, model)) == [("python_roundtrip", "", INNER)]


def test_a_gradient_penalty_is_no_training_by_itself() -> None:
    model, x = small(), batch().requires_grad_()

    def step() -> float:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return slope.pow(2).mean().item()

    assert told(diagnosed(step, model))[0][:2] == ("python_roundtrip", "")


def test_a_step_that_trains_by_a_functional_gradient_is_not_accused() -> None:
    model, x = small(), batch()

    def step() -> float:
        def loss_of(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = torch.func.functional_call(model, parameters, (x,)).pow(2).mean()
            return loss

        _, value = torch.func.grad_and_value(loss_of)({name: p.detach() for name, p in model.named_parameters()})
        return float(value)

    with pytest.raises(GradkitError) as refused:
        diagnosed(step, model)
    assert refused.value.key == "no_tensor"


def test_a_backward_that_was_imported_by_its_name_is_not_accused() -> None:
    model, x = small(), batch()

    def step() -> float:
        loss = model(x).pow(2).mean()
        imported_backward(loss)
        return loss.item()

    assert diagnosed(step, model).healthy


def test_gradients_of_two_models_that_are_asked_for_by_name_count_both() -> None:
    model, x = pair(), batch()

    def step() -> float:
        first, second = model["inner"](x).pow(2).mean(), model["outer"](x).pow(2).mean()
        torch.autograd.grad(first, tuple(model["inner"].parameters()))
        torch.autograd.grad(second, tuple(model["outer"].parameters()))
        return first.item() + second.item()

    assert diagnosed(step, model).healthy


def test_an_attribute_that_is_missing_on_anything_else_is_an_error_as_ever() -> None:
    model = small()

    def step() -> None:
        text: Any = "loss"
        text.backward()

    with pytest.raises(GradkitError, match="has no attribute 'backward'"):
        diagnosed(step, model)


# -- nothing ----------------------------------------------------------------------------------------------------------


def test_a_scalar_that_is_not_returned_is_told() -> None:
    report = report_of("a_function_of_the_loss_without_a_return")
    assert [(note.kind, note.location and note.location.text.strip()) for note in report.findings[0].notes] == [
        ("forgotten", "(out - 1).pow(2).mean()")
    ]


def test_nothing_that_a_library_returns_is_named_where_it_is_called() -> None:
    model, x, losses = small(), batch(), []

    def step() -> Any:
        loss: Any = losses.append(model(x).mean())  # type: ignore[func-returns-value]
        loss.backward()

    report = diagnosed(step, model)
    assert told(report) == [("constant_loss", "nothing", ALL_OF_SMALL)]
    assert line(report).startswith("loss: Any = losses.append(")


def test_the_checklist_says_that_there_is_no_loss() -> None:
    first = report_of("a_branch_that_returns_nothing").checklist()[0]
    assert (first.key, first.state) == ("value", "failed")
    assert "None" in first.text("en")


def test_frozen_parameters_are_told_beside_the_missing_loss() -> None:
    model, x = small().requires_grad_(False), batch()
    report = diagnosed(lambda: print(model(x).sum(), end=""), model)
    assert [f.cause for f in report.findings] == ["constant_loss", "frozen_all"]


# -- before the step --------------------------------------------------------------------------------------------------


def test_where_a_loss_from_before_was_computed_is_told() -> None:
    report = report_of("a_loss_computed_before_the_step")
    (note,) = report.findings[0].notes
    assert note.kind == "computed_before"
    assert note.location is not None
    assert note.location.text.strip().startswith("loss = ")


@pytest.mark.parametrize(
    ("language", "words"), [("en", "pass a function that computes it"), ("zh", "交给 gradkit 一个")]
)
def test_a_loss_from_before_that_reaches_all_is_sound_and_the_report_says_how_to_see_more(
    language: str, words: str
) -> None:
    model, x = small(), batch()
    loss = model(x).mean()
    report = diagnosed(lambda: loss, model)
    assert report.healthy
    assert words in report.text(language)
    assert {node.label for node in report.picture.nodes} >= {"MeanBackward0", "TanhBackward0", "0.weight"}


def test_a_loss_from_before_without_a_history_is_told() -> None:
    model, x = small(), batch()
    with torch.no_grad():
        value = F.mse_loss(model(x), torch.ones(6, 1))
    losses = {"train": value}

    def step() -> torch.Tensor:
        return losses["train"]

    report = diagnosed(step, model)
    assert told(report) == [("cached_tensor", "loss", ALL_OF_SMALL)]
    assert line(report) == 'return losses["train"]'


def test_a_loss_from_before_that_goes_backward_in_the_step_is_named_there() -> None:
    model, x = pair(), batch()
    loss = model["outer"](x).mean()

    def step() -> None:
        loss.backward(retain_graph=True)

    report = diagnosed(step, model)
    assert told(report) == [("cached_tensor", "loss", INNER)]
    assert line(report) == "loss.backward(retain_graph=True)"


def test_a_loss_whose_graph_is_gone_says_so_in_both_languages() -> None:
    report = report_of("a_loss_that_went_backward_before_the_step")
    assert "a backward() has freed its graph" in report.text("en")
    assert "计算图已被一次反向传播释放" in report.text("zh")


def test_the_graph_of_a_loss_from_before_is_left_to_its_owner() -> None:
    model, x = small(), batch()
    loss = model(x).pow(2).mean()
    diagnosed(lambda: loss, model)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_constant_that_is_made_in_the_step_unheard_is_not_from_before() -> None:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model(x)
        return torch.Tensor([1.0])

    report = diagnosed(step, model)
    assert [one.cause for one in report.findings] == ["constant_loss"]
    assert report.untried == ()


def test_a_state_carried_over_does_not_make_the_loss_one_from_before() -> None:
    model, x = pair(), batch()
    state = model["inner"](x)
    report = diagnosed(lambda: model["outer"](state).mean(), model)
    assert report.healthy
    assert report.untried == ()
