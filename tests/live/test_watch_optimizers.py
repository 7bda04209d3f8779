"""Optimizers that hold something else than what runs: of a layer or a model that is gone, or nothing at all."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import gradkit
from gradkit.live.explain import Explanation


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 1))


def train(model: nn.Module, optimizer: Optimizer) -> None:
    for x in torch.ones(5, 4, 2):
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()


def layer_replaced_after() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())  # BUILT
    model[2] = nn.Linear(3, 1)
    train(model, optimizer)


def model_copied_after() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())  # BUILT
    train(copy.deepcopy(model), optimizer)


def generator_used_up() -> None:
    model = net()
    head = model[2].parameters()
    sum(one.numel() for one in head)
    optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": head}])  # BUILT
    train(model, optimizer)


def head_alone_on_purpose() -> None:
    model = net()
    optimizer = torch.optim.Adam(model[2].parameters())
    train(model, optimizer)


def found_of(program: Callable[[], None]) -> list[Explanation]:
    told: list[Explanation] = []
    with gradkit.watch(tell=told.append):
        program()
    return told


@pytest.mark.parametrize("program", [layer_replaced_after, model_copied_after, generator_used_up])
def test_an_optimizer_without_what_runs_is_told_at_the_line_that_built_it(program: Callable[[], None]) -> None:
    (explanation,) = found_of(program)
    assert explanation.report is not None
    (finding,) = explanation.report.findings
    assert finding.cause == "optimizer_mismatch"
    assert finding.location is not None
    assert finding.location.text.endswith("# BUILT")
    assert finding.location.function == program.__name__


def test_an_optimizer_of_the_head_alone_is_no_fault() -> None:
    assert found_of(head_alone_on_purpose) == []
