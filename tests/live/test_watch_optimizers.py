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
    head = model[2].parameters()  # MADE
    sum(one.numel() for one in head)
    optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": head}])
    train(model, optimizer)


def copies_in_their_place() -> None:
    model = net()
    copies = [one.detach().clone().requires_grad_() for one in model.parameters()]  # COPIED
    train_by_hand(model, torch.optim.SGD(copies, lr=0.1))


def copies_that_are_handed_the_gradients() -> None:
    model = net()
    copies = [one.detach().double().requires_grad_() for one in model.parameters()]
    optimizer = torch.optim.SGD(copies, lr=0.1)
    for x in torch.ones(5, 4, 2):
        model.zero_grad()
        model(x).pow(2).sum().backward()
        for copied, one in zip(copies, model.parameters(), strict=True):
            copied.grad = one.grad.double() if one.grad is not None else None
        optimizer.step()
        with torch.no_grad():
            for copied, one in zip(copies, model.parameters(), strict=True):
                one.copy_(copied)


def train_by_hand(model: nn.Module, optimizer: Optimizer) -> None:
    for x in torch.ones(5, 4, 2):
        model.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()


def some_unused_by_adagrad() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "spare": nn.Linear(2, 1)})
    optimizer = torch.optim.Adagrad(model.parameters())
    for x in torch.ones(5, 4, 2):
        optimizer.zero_grad()
        model["used"](x).pow(2).sum().backward()
        optimizer.step()


def head_alone_on_purpose() -> None:
    model = net()
    optimizer = torch.optim.Adam(model[2].parameters())
    train(model, optimizer)


def found_of(program: Callable[[], None]) -> list[Explanation]:
    told: list[Explanation] = []
    with gradkit.watch(tell=told.append):
        program()
    return told


@pytest.mark.parametrize("program", [layer_replaced_after, model_copied_after])
def test_an_optimizer_without_what_runs_is_told_at_the_line_that_built_it(program: Callable[[], None]) -> None:
    (explanation,) = found_of(program)
    assert explanation.report is not None
    (finding,) = explanation.report.findings
    assert finding.cause == "optimizer_mismatch"
    assert finding.location is not None
    assert finding.location.text.endswith("# BUILT")
    assert finding.location.function == program.__name__


def test_a_generator_that_was_used_up_is_told_where_it_was_made() -> None:
    (explanation,) = found_of(generator_used_up)
    assert explanation.report is not None
    (finding,) = explanation.report.findings
    assert (finding.cause, finding.variant) == ("optimizer_mismatch", "used_up")
    assert finding.location is not None
    assert finding.location.text.endswith("# MADE")


def test_an_optimizer_of_the_head_alone_is_no_fault() -> None:
    assert found_of(head_alone_on_purpose) == []


def test_copies_that_an_optimizer_holds_are_told_at_the_line_that_makes_them() -> None:
    (explanation,) = found_of(copies_in_their_place)
    assert explanation.report is not None
    (finding,) = explanation.report.findings
    assert (finding.cause, finding.variant) == ("optimizer_mismatch", "held_copies")
    assert finding.location is not None
    assert finding.location.text.endswith("# COPIED")


def test_copies_in_another_precision_that_are_handed_the_gradients_are_no_fault() -> None:
    assert found_of(copies_that_are_handed_the_gradients) == []


def test_what_adagrad_never_trained_is_missing_although_it_has_a_state() -> None:
    (explanation,) = found_of(some_unused_by_adagrad)
    assert explanation.report is not None
    (finding,) = explanation.report.findings
    assert finding.parameters == ("spare.weight", "spare.bias")
