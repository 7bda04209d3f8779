"""A sigmoid of a parameter that stands far out: its gradient is zero in this batch and in any other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradkit
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)


class Gated(nn.Module):
    def __init__(self, start: float) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(3, 6), nn.Parameter(start * torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) - torch.sigmoid(self.gate)  # gated


@pytest.mark.parametrize("start", [-200.0, 150.0])
def test_a_gate_that_starts_far_out_is_named_where_it_is_squashed(start: float) -> None:
    model = Gated(start)
    found = [
        f
        for f in gradkit.diagnose(lambda: (model(X) - 1).square().mean(), model=model).findings
        if "gate" in f.parameters
    ]
    assert [(one.cause, one.variant) for one in found] == [("zero_gradient", "parked")]
    assert found[0].location is not None
    assert found[0].location.line == line_ending(__file__, "gated")


def test_a_gate_that_starts_where_it_has_a_slope_is_sound() -> None:
    model = Gated(-4.0)
    assert not gradkit.diagnose(lambda: (model(X) - 1).square().mean(), model=model).findings


class Capped(nn.Module):
    """A temperature that has grown to its bound, as CLIP's does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 2), nn.Parameter(torch.tensor(4.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale.clamp(max=4.6).exp()


def test_a_temperature_at_its_bound_is_no_fault() -> None:
    model = Capped()
    assert not gradkit.diagnose(lambda: (model(X) - 1).square().mean(), model=model).findings
