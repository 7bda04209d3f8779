"""A module of the user's own that takes no part: the line that makes it part of the model, not those inside of it."""

from __future__ import annotations

import torch
from torch import nn

import gradkit
from tests.marks import line_ending


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)  # inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


class Half(Mixer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x)


class Net(nn.Module):
    def __init__(self, mixer: type[nn.Module], *, use: bool) -> None:
        super().__init__()
        self.use = use
        self.mixer = mixer()  # outside
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.mixer(x) if self.use else x).sum()


def found(mixer: type[nn.Module], *, use: bool) -> list[tuple[str, int, int]]:
    model = Net(mixer, use=use)
    report = gradkit.diagnose(lambda: model(torch.ones(2, 4)), model=model)
    return [(one.cause, one.location.line, len(one.parameters)) for one in report.findings]


def test_a_module_that_never_ran_is_named_where_it_is_made() -> None:
    assert found(Mixer, use=False) == [("trainable_unused", line_ending(__file__, "outside"), 4)]


def test_of_a_module_that_ran_the_layer_is_named_that_it_left_out() -> None:
    assert found(Half, use=True) == [("trainable_unused", line_ending(__file__, "inside"), 2)]
