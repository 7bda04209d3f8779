"""A step that raises in the middle: what it did not come to use is not accused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit


class Fields(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.late = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(1, 1)
        self.rate = nn.Parameter(torch.tensor(0.5))

    def slope(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_(True)
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        return (self.slope(x) + self.rate * self.late(x)).pow(2).mean()


def checked_under_inference_mode(model: Fields, x: torch.Tensor) -> None:
    with torch.inference_mode():
        model.slope(x.clone())


def checked_without_recording(model: Fields, x: torch.Tensor) -> None:
    with torch.no_grad():
        model.slope(x.clone())


def checked_on_a_detached_output(model: Fields, x: torch.Tensor) -> None:
    loss = model.net(x).detach().pow(2).mean()
    loss.backward()


FAULTS = [checked_under_inference_mode, checked_without_recording, checked_on_a_detached_output]


@pytest.mark.parametrize("check", FAULTS)
def test_what_comes_after_the_line_that_raised_is_not_accused(check: Callable[[Fields, torch.Tensor], None]) -> None:
    torch.manual_seed(0)
    model, x = Fields(), torch.rand(6, 1)

    def step() -> torch.Tensor:
        check(model, x)
        return model.residual(x.clone())

    found = gradkit.diagnose(step, model=model).findings
    assert [one.location.function for one in found if one.location is not None] == [check.__name__], found
    assert not {"rate", "late.weight", "late.bias"}.intersection(name for one in found for name in one.parameters)


def test_what_a_loss_leaves_aside_is_named_where_the_step_goes_to_its_end() -> None:
    torch.manual_seed(0)
    model, x = Fields(), torch.rand(6, 1)
    found = gradkit.diagnose(lambda: model.net(x).detach().pow(2).mean() + model.net(x).mean(), model=model).findings
    assert "rate" in {name for one in found if one.cause == "trainable_unused" for name in one.parameters}
