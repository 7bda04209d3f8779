"""Layers that are frozen by the first digit of their number, where a pattern takes no more of it."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.records import Finding


class Net(nn.Module):
    def __init__(self, depth: int = 13) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(3, 3) for _ in range(depth)), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x).pow(2).mean()


def freeze_below(model: nn.Module, bound: int) -> None:
    for name, parameter in model.named_parameters():
        found = re.match(r"layers\.(\d)", name)
        if found is not None and int(found.group(1)) < bound:
            parameter.requires_grad = False


def found_in(model: nn.Module) -> tuple[Finding, ...]:
    x = torch.randn(4, 3)
    return gradkit.diagnose(lambda: model(x), model=model).findings


@pytest.mark.parametrize(("bound", "numbers"), [(10, {10, 11, 12}), (2, {10, 11, 12})])
def test_a_pattern_of_one_digit_takes_layers_of_two_for_others(bound: int, numbers: Collection[int]) -> None:
    model = Net()
    freeze_below(model, bound)
    (finding,) = found_in(model)
    assert (finding.cause, finding.variant) == ("frozen_all", "number")
    assert {int(name.split(".")[1]) for name in finding.parameters} == numbers
    assert finding.location is not None
    assert finding.location.function == "freeze_below"


@pytest.mark.parametrize("numbers", [range(6, 13), range(1, 13, 2), range(5), (1,)])
def test_what_such_a_pattern_would_not_have_frozen_so_is_meant(numbers: Collection[int]) -> None:
    model = Net()
    for number in numbers:
        model.layers[number].requires_grad_(False)
    assert found_in(model) == ()
