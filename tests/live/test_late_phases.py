"""Programs that are set up once more between two phases: the line of the later phase is named, and for certain."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import gradkit
from gradkit.core.records import OBSERVED, Finding
from tests.live import failing

HEAD = """\
import copy
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

def fit(model, optimizer, steps=4, target=None):
    for x in torch.randn(steps, 8, 2):
        wanted = x.sum(1, keepdim=True) if target is None else target(x).detach()
        loss = (model(x) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model = net()

"""

RAISES = {
    "frozen once more for the third phase": """
        model[0].requires_grad_(False)
        fit(model, torch.optim.Adam(model[2].parameters()))
        model.requires_grad_(True)
        fit(model, torch.optim.Adam(model.parameters()))
        model.requires_grad_(False)  # CUT
        fit(model, torch.optim.Adam(model[0].parameters()))
    """,
    "one phase thaws what it trains, the next freezes all": """
        def phase(part, flag):
            for p in part.parameters():
                p.requires_grad = flag  # CUT

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        phase(model[0], False)
        fit(model, optimizer)
        phase(model[0], True)
        fit(model, optimizer)
        phase(model, False)
        fit(model, optimizer)
    """,
    "a student that is a copy of a teacher frozen after its training": """
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.requires_grad_(False)
        student = copy.deepcopy(model)  # CUT
        fit(student, torch.optim.SGD(student.parameters(), lr=0.1), target=model)
    """,
    "gradual freezing goes one stage too far": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for stage in range(3):
            for layer in [model[0], model[2]][:stage]:
                layer.weight.requires_grad_(False)  # CUT
                layer.bias.requires_grad_(False)
            fit(model, optimizer)
    """,
}

TELLS = {
    "another optimizer, of a copy that was kept": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(6):
            if epoch < 3:
                best = copy.deepcopy(model)
            else:
                optimizer = torch.optim.SGD(best.parameters(), lr=0.1)  # CUT
            model.zero_grad()
            fit(model, optimizer)
    """,
    "the best weights are assigned in place of those that the optimizer holds": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # CUT
        fit(model, optimizer)
        kept = {name: one.clone() for name, one in model.state_dict().items()}
        fit(model, optimizer)
        model.load_state_dict(kept, assign=True)
        fit(model, optimizer)
    """,
}

SOUND = {
    "all is frozen, and what is trained is thawed": """
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model.requires_grad_(False)
        model[0].requires_grad_(True)
        fit(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    """,
    "a student that is copied before its teacher is frozen": """
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1))
        student = copy.deepcopy(model)
        model.requires_grad_(False)
        fit(student, torch.optim.SGD(student.parameters(), lr=0.1), target=model)
    """,
    "layers that are frozen by turns": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for stage in range(8):
            model.requires_grad_(True)
            model[2 * (stage % 2)].requires_grad_(False)
            fit(model, optimizer)
    """,
    "the best weights are assigned, and an optimizer is built of them": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            fit(model, optimizer)
            model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        fit(model, optimizer)
    """,
    "the best weights are assigned at the end": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = copy.deepcopy(model.state_dict())
        fit(model, optimizer)
        model.load_state_dict(kept, assign=True)
        with torch.no_grad():
            model(torch.ones(1, 2))
    """,
    "a layer joins for the next phase, and the first optimizer rests": """
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        fit(model, first)
        model.requires_grad_(False)
        model.append(nn.Linear(1, 1))
        fit(model, torch.optim.SGD(model[3].parameters(), lr=0.1))
        model.requires_grad_(True)
        model[3].requires_grad_(False)
        fit(model, first)
    """,
    "two optimizers of which one waits while a layer joins": """
        other = net()
        mine, theirs = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))
        fit(model, mine)
        fit(other, theirs)
        other.append(nn.Linear(1, 1))
        theirs.add_param_group({"params": list(other[3].parameters())})
        for x in torch.randn(8, 4, 2):
            loss = model(x).square().mean() + other(x).square().mean()
            mine.zero_grad()
            theirs.zero_grad()
            loss.backward()
            mine.step()
            theirs.step()
    """,
}


def text_of(program: str) -> str:
    return HEAD + textwrap.dedent(program).lstrip()


def first(report: gradkit.types.Report | None) -> Finding:
    assert report is not None
    return report.findings[0]


@pytest.mark.parametrize("name", RAISES)
def test_the_line_that_froze_it_last_is_named_of_an_error(name: str, tmp_path: Path) -> None:
    with gradkit.watch():
        failed = failing.run(text_of(RAISES[name]), tmp_path)
        finding = first(failed.explained().report)
    assert finding.location is not None
    assert (finding.cause, finding.proof) == ("frozen_all", OBSERVED)
    assert finding.location.line in failed.marked


@pytest.mark.parametrize("name", TELLS)
def test_an_optimizer_of_what_no_longer_runs_is_told_where_it_was_built(name: str, tmp_path: Path) -> None:
    with gradkit.watch(tell=lambda _: None) as watch:
        ended = failing.program(text_of(TELLS[name]), tmp_path)
    finding = first(watch.report)
    assert finding.location is not None
    assert finding.cause == "optimizer_mismatch"
    assert finding.location.line in ended.marked


@pytest.mark.parametrize("name", SOUND)
def test_phases_that_are_in_order_are_no_fault(name: str, tmp_path: Path) -> None:
    with gradkit.watch(tell=lambda _: None) as watch:
        failing.program(text_of(SOUND[name]), tmp_path)
    assert watch.explanations == ()
