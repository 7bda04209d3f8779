"""The step twice in one run: what hooks compute in the backward in between is known in the second."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gradkit.diagnosis.experiments import later_step
from gradkit.state.preserve import Preserved
from gradkit.tracing.interventions import StopAtBackward
from gradkit.tracing.run import Session
from tests.programs.cut.create_graph_missing import Attending


def _attending() -> tuple[Attending, Callable[[], None]]:
    model, x = Attending(), torch.randn(6, 4)
    return model, lambda: model(x).pow(2).mean().backward()


def test_a_step_that_is_ended_at_its_backward_is_ended_in_the_second_pass_only() -> None:
    model, step = _attending()
    with Preserved(model, step) as preserved:
        session = Session(step, model, preserved, (StopAtBackward(1),))
        found = later_step.ask(session, ["gate.weight", "gate.bias"])
    assert [set(one.parameters) for one in found.of_hooks] == [{"gate.weight", "gate.bias"}]
    assert [set(one.revived) for one in found.of_hooks] == [{"gate.weight", "gate.bias"}]


def test_two_steps_leave_what_hooks_have_kept_as_it_was() -> None:
    model, step = _attending()
    mask = model.mask
    with Preserved(model, step) as preserved:
        later_step.ask(Session(step, model, preserved), ["gate.weight"])
    assert model.mask is mask
    assert all(one.grad is None for one in model.parameters())


def test_parameters_that_no_hook_uses_are_not_told() -> None:
    model, x = nn.ModuleDict({"used": nn.Linear(4, 1), "idle": nn.Linear(4, 1)}), torch.randn(6, 4)
    with Preserved(model) as preserved:
        found = later_step.ask(Session(lambda: model["used"](x).sum(), model, preserved), ["idle.weight"])
    assert found.of_hooks == ()
