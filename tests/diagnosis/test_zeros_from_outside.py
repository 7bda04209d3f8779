"""Two factors that wait for each other, one of which another class fills with zeros."""

from __future__ import annotations

import torch
from torch import nn

import gradkit
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)


class LowRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(self.down(x))

    def restart(self) -> None:
        nn.init.zeros_(self.up.weight)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = LowRank()
        self.start(self.layer)

    def start(self, layer: LowRank) -> None:
        nn.init.zeros_(layer.down.weight)  # from outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_a_factor_that_another_class_fills_with_zeros_is_named_where_that_does() -> None:
    model = Wrapped()
    (found,) = gradkit.diagnose(lambda: model(X).square().mean(), model=model).findings
    assert (found.cause, found.variant) == ("zero_gradient", "deadlock")
    assert found.location is not None
    assert found.location.line == line_ending(__file__, "from outside")
