"""A module that holds a copy of a Parameter which nobody holds any more: the line that made the copy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradkit
from tests.marks import line_ending


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * self.scale).sum()


class Moved(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(3)).to(torch.float64)  # Moved


class Doubled(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(3)) * 2  # Doubled


class Sliced(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(4))[:3]  # Sliced


class Cloned(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(3)).clone()  # Cloned


class Shaped(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(1, 3)).view(3)  # Shaped


class Registered(Scaled):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(3))


class HeldBeside(Scaled):
    """The copy is a view of a Parameter that the module has."""

    def make(self) -> None:
        self.whole = nn.Parameter(torch.ones(4))
        self.scale = self.whole[:3]


class Generated(Scaled):
    """What another network makes is no copy of a leaf."""

    def make(self) -> None:
        self.maker = [nn.Linear(3, 3)]
        self.scale = self.maker[0](torch.ones(3))


@pytest.mark.parametrize("kind", [Moved, Doubled, Sliced, Cloned, Shaped])
def test_the_line_that_makes_the_copy_is_named(kind: type[nn.Module]) -> None:
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = gradkit.diagnose(lambda: model(torch.ones(2, 3)), model=model, optimizer=optimizer).findings
    assert [(one.cause, one.location.line) for one in found] == [
        ("grad_on_non_leaf", line_ending(__file__, kind.__name__))
    ]


@pytest.mark.parametrize("kind", [Registered, HeldBeside])
def test_what_a_module_has_registered_is_no_copy_that_is_lost(kind: type[nn.Module]) -> None:
    model = kind()
    assert gradkit.diagnose(lambda: model(torch.ones(2, 3)), model=model).findings == ()


def test_what_another_network_has_computed_is_not_taken_for_a_copy() -> None:
    model = Generated()
    found = gradkit.diagnose(lambda: model(torch.ones(2, 3)), model=model).findings
    assert "grad_on_non_leaf" not in [one.cause for one in found]
