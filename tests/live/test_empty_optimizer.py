"""What is told of an optimizer that was handed no parameters at all."""

from __future__ import annotations

import torch
from torch import nn

from gradkit.core.records import Finding
from gradkit.live import explain
from gradkit.witness.listening import listening


class InForward(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.ReLU()(nn.Linear(4, 2)(x))  # built


class InAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]


def built(model: nn.Module, *, only_open: bool = False) -> Finding:
    try:
        torch.optim.SGD([one for one in model.parameters() if one.requires_grad or not only_open], lr=0.1)
    except ValueError as raised:
        error = raised
    explanation = explain.of_error(error)
    assert explanation is not None
    assert explanation.report is not None
    return explanation.report.findings[0]


def test_layers_that_forward_makes_are_named() -> None:
    found = built(InForward())
    assert found.cause == "built_in_forward"
    assert found.location is not None
    assert found.location.text.endswith("# built")
    assert found.proof == "likely"


def test_layers_in_a_plain_list_are_named() -> None:
    found = built(InAList())
    assert found.cause == "unregistered_parameters"
    assert found.location is not None
    assert "self.layers" in found.location.text


def test_the_line_that_froze_all_of_it_is_named() -> None:
    with listening():
        model = nn.Linear(4, 2)
        model.requires_grad_(False)  # frozen
        found = built(model, only_open=True)
    assert found.cause == "frozen_all"
    assert found.location is not None
    assert found.location.text.endswith("# frozen")


def test_parameters_that_were_used_up_are_a_matter_of_the_optimizers_line() -> None:
    model = nn.Linear(4, 2)
    parameters = model.parameters()
    assert len(list(parameters)) == 2
    try:
        torch.optim.SGD(parameters, lr=0.1)  # empty
    except ValueError as raised:
        error = raised
    explanation = explain.of_error(error)
    assert explanation is not None
    assert explanation.report is not None
    [found] = explanation.report.findings
    assert found.cause == "optimizer_mismatch"
    assert found.location is not None
    assert found.location.text.endswith("# empty")


def test_another_fault_of_an_optimizer_is_none_of_autograds() -> None:
    try:
        torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=-1.0)
    except ValueError as raised:
        error = raised
    assert explain.of_error(error) is None
