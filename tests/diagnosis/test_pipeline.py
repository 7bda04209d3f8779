"""The straight line from a step to a diagnosis, and the record that comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from gradkit.api.diagnose import diagnose
from gradkit.diagnosis import pipeline
from gradkit.diagnosis.experiments import plan
from gradkit.diagnosis.experiments.caches import Caches
from gradkit.diagnosis.experiments.plan import Known, Lab
from gradkit.diagnosis.pipeline import Diagnosis, Options
from gradkit.load.step import Step, from_step
from gradkit.teaching import guide


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).detach())


def _step(model: nn.Module) -> Step:
    return from_step(lambda: model(torch.ones(3, 2)).sum(), model)


def _diagnosed(step: Step, **options: object) -> Diagnosis:
    found, _ = pipeline.run(step, Options(**options), lambda diagnosis: diagnosis)  # type: ignore[arg-type]
    return found


def _held(thing: object, seen: set[int]) -> Iterator[object]:
    """Everything that a record holds, through fields, containers and what it has worked out for itself."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    inner: list[object] = []
    if isinstance(thing, dict):
        inner = [*thing, *thing.values()]
    elif isinstance(thing, (tuple, list, set, frozenset)):
        inner = list(thing)
    elif not isinstance(thing, type) and hasattr(thing, "__dict__"):
        inner = list(vars(thing).values())
    for one in inner:
        yield from _held(one, seen)


@pytest.fixture(name="cut")
def _cut() -> Diagnosis:
    return _diagnosed(_step(Twice()))


def test_a_diagnosis_holds_no_tensor_and_no_module(cut: Diagnosis) -> None:
    held = list(_held(cut, set()))
    assert len(held) > 100
    assert [one for one in held if isinstance(one, (torch.Tensor, nn.Module, torch.autograd.graph.Node))] == []


def test_a_diagnosis_cannot_be_changed(cut: Diagnosis) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cut.label = "another"  # type: ignore[misc]


def test_a_finding_knows_the_rule_that_made_it(cut: Diagnosis) -> None:
    assert [(one.cause, one.rule) for one in cut.findings] == [("detach", "cut_lines.findings")]


@pytest.mark.parametrize(
    ("cause", "rule"),
    [
        ("frozen_all", "setup.findings"),
        ("constant_loss", "unconnected.findings"),
        ("inplace_modified", "errors.findings"),
        ("zero_gradient", "gradients.zero_findings"),
        ("hook_misuse", "gradients.hook_findings"),
        ("custom_function", "cut_lines.findings"),
        ("nan_gradient", "loss.findings"),
    ],
)
def test_findings_of_every_kind_have_their_rule(cause: str, rule: str) -> None:
    model, step = guide.load_case(cause).make()
    assert {one.rule for one in diagnose(step, model=model).findings if one.cause == cause} == {rule}


def test_the_rule_is_no_part_of_what_scripts_are_given() -> None:
    report = diagnose(_step(Twice()))
    assert report.findings[0].rule
    assert "rule" not in report.data()["findings"][0]


def test_an_experiment_is_made_where_it_applies_and_counts_its_runs(cut: Diagnosis) -> None:
    assert cut.evidence.shown.made == ("rerun",)
    assert cut.evidence.shown.rerun.revived == {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert cut.runs == 2 + cut.judged


def test_without_reruns_nothing_is_made() -> None:
    found = _diagnosed(_step(Twice()), replay=False)
    assert (found.evidence.shown.made, found.runs) == ((), 1)


def test_a_sound_program_needs_no_experiment() -> None:
    assert _diagnosed(_step(nn.Linear(2, 1))).evidence.shown.made == ()


def test_a_further_experiment_is_a_further_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(known: Known, _: Lab) -> Caches:
        asked.extend(known.shown.made)
        return Caches()

    at = [one.name for one in plan.EXPERIMENTS].index("caches")
    further = dataclasses.replace(plan.EXPERIMENTS[at], applies=lambda _: True, ask=ask)
    monkeypatch.setattr(plan, "EXPERIMENTS", (*plan.EXPERIMENTS[:at], further))
    _diagnosed(_step(Twice()))
    assert asked == ["rerun"]
