"""Faults that are not in the step are named at their line; programs that only look like them get a clean bill."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.diagnosis.facts import optimizers
from tests.programs import state as state_programs


def diagnosed(model: nn.Module, step: Callable[[], Any]) -> gradkit.Report:
    return gradkit.diagnose(
        step, model=model, optimizer=getattr(step, "optimizer", None), should_train=getattr(step, "should_train", None)
    )


@pytest.mark.parametrize("name", state_programs.FAULTY)
def test_the_lines_and_the_cause_are_named_of(name: str) -> None:
    program = state_programs.FAULTY[name]
    report = diagnosed(*program.build())
    found = [(finding.cause, finding.location and finding.location.line) for finding in report.findings]
    assert {line for _, line in found} == program.lines, found
    assert found[0][0] == program.cause, found
    assert all(finding.location.file == program.file for finding in report.findings)


@pytest.mark.parametrize("name", state_programs.SOUND)
def test_a_clean_bill_for(name: str) -> None:
    report = diagnosed(*state_programs.SOUND[name]())
    assert report.findings == ()
    assert report.healthy


@pytest.mark.parametrize("name", [n for n, p in state_programs.FAULTY.items() if p.cause == "unregistered_parameters"])
def test_what_the_model_hides_is_named_without_being_asked_for(name: str) -> None:
    program = state_programs.FAULTY[name]
    model, step = program.build()
    report = gradkit.diagnose(step, model=model)
    assert {finding.cause for finding in report.findings} == {"unregistered_parameters"}
    assert {finding.location.line for finding in report.findings} == program.lines
    assert not report.healthy


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.spare = nn.Linear(4, 4)

    def forward(self, levels: list[torch.Tensor]) -> torch.Tensor:
        return sum(lateral(level).sum() for lateral, level in zip(self.lateral, levels, strict=False))

    def look(self, x: torch.Tensor) -> torch.Tensor:
        return self.spare(x)


def test_of_a_line_that_ran_for_other_layers_it_is_not_said_that_it_did_not_run() -> None:
    model, levels = Pyramid(), [torch.randn(2, 4)] * 2
    report = gradkit.diagnose(lambda: model(levels), model=model)
    told = {name: f.notes[0].kind for f in report.findings for name in f.parameters if name.endswith("weight")}
    assert told == {"lateral.2.weight": "left_out", "spare.weight": "not_run"}


@pytest.mark.parametrize(
    "hold",
    [
        lambda parameter: nn.ParameterList([parameter]),
        lambda parameter: types.SimpleNamespace(temperature=parameter),
        lambda parameter: {"temperature": parameter},
    ],
    ids=["a module", "an object", "a dictionary"],
)
def test_a_parameter_is_not_orphaned_while_something_holds_it_by_a_name(hold: Callable[[nn.Parameter], Any]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    holder = hold(parameter)
    assert not optimizers.orphaned(parameter)
    del holder
    assert optimizers.orphaned(parameter), optimizer
