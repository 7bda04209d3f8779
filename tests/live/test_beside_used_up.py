"""A module's generator of parameters that was used up before the optimizer got it, beside a module that it holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.core.records import Finding

Y = torch.tensor([0, 1, 2, 0, 1, 2])


def two() -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(4, 5), nn.Linear(5, 3)


def trained(body: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for x in torch.randn(4, 6, 4):
        optimizer.zero_grad()
        F.cross_entropy(head(torch.relu(body(x))), Y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def counted(parameters: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() for one in parameters)


def in_a_group_of_its_own() -> None:
    body, head = two()
    params = body.parameters()  # MADE
    counted(params)
    trained(body, head, torch.optim.SGD([{"params": params}, {"params": head.parameters()}], lr=0.1))


def in_one_list_with_the_heads() -> None:
    body, head = two()
    params = (p for p in body.parameters() if p.requires_grad)  # MADE
    counted(params)
    trained(body, head, torch.optim.SGD([*params, *head.parameters()], lr=0.1))


def of_two_modules_in_a_chain() -> None:
    body, head = two()
    last = nn.Linear(3, 3)
    params = itertools.chain(body.parameters(), head.parameters())  # MADE
    counted(params)
    optimizer = torch.optim.SGD([*params, *last.parameters()], lr=0.1)
    for x in torch.randn(4, 6, 4):
        optimizer.zero_grad()
        F.cross_entropy(last(head(torch.relu(body(x)))), Y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def in_a_function_that_builds_the_optimizer() -> None:
    def build(first: nn.Module, second: nn.Module) -> torch.optim.Optimizer:
        params = first.parameters()  # MADE
        counted(params)
        return torch.optim.SGD([*params, *second.parameters()], lr=0.1)

    body, head = two()
    trained(body, head, build(body, head))


def as_an_attribute() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.body, self.head = two()
            mine = filter(lambda p: p.requires_grad, self.body.parameters())  # MADE
            counted(mine)
            self.optimizer = torch.optim.SGD(itertools.chain(mine, self.head.parameters()), lr=0.1)

        def fit(self) -> None:
            trained(self.body, self.head, self.optimizer)

    Trainer().fit()


def beside_a_tensor_that_is_no_models() -> None:
    body, _ = two()
    parameters = (one for one in body.parameters())  # MADE
    counted(parameters)
    stray = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": parameters}, {"params": [stray]}], lr=0.1)
    for x in torch.randn(4, 6, 4):
        optimizer.zero_grad()
        body(x).square().mean().backward()
        optimizer.step()


def found_of(program: Callable[[], object]) -> list[Finding]:
    with gradkit.watch(tell=lambda told: None) as watch:
        program()
    return [finding for report in watch.reports for finding in report.findings]


@pytest.mark.parametrize(
    "program",
    [
        in_a_group_of_its_own, in_one_list_with_the_heads, of_two_modules_in_a_chain,
        in_a_function_that_builds_the_optimizer, as_an_attribute, beside_a_tensor_that_is_no_models,
    ],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_the_line_that_makes_the_generator_is_told(program: Callable[[], None]) -> None:
    (finding,) = found_of(program)
    assert (finding.cause, finding.variant) == ("optimizer_mismatch", "used_up")
    assert finding.location is not None
    assert finding.location.text.endswith("# MADE")


# -- what is handed over, or is not meant to be -----------------------------------------------------------------------


def a_list() -> None:
    body, head = two()
    params = list(body.parameters())
    counted(params)
    trained(body, head, torch.optim.SGD([*params, *head.parameters()], lr=0.1))


def a_head_alone() -> None:
    body, head = two()
    params = body.parameters()
    counted(params)
    trained(body, head, torch.optim.SGD(head.parameters(), lr=0.1))


def where_a_flag_decides(tunes: bool = False) -> None:
    body, head = two()
    params = body.parameters()
    counted(params)
    groups = [{"params": head.parameters()}]
    if tunes:
        groups += [{"params": params}]
    trained(body, head, torch.optim.SGD(groups, lr=0.1))


def where_an_expression_decides(tunes: bool = False) -> None:
    body, head = two()
    params = body.parameters()
    counted(params)
    trained(body, head, torch.optim.SGD([*(params if tunes else ()), *head.parameters()], lr=0.1))


def where_the_function_is_handed_the_head() -> None:
    def optimizer_of(body: nn.Module) -> torch.optim.Optimizer:
        params = body.parameters()
        return torch.optim.SGD(params, lr=0.1)

    body, head = two()
    trained(body, head, optimizer_of(head))


def what_names_pick() -> None:
    body, head = two()
    adapters = (p for name, p in body.named_parameters() if "lora" in name)
    trained(body, head, torch.optim.SGD([*adapters, *head.parameters()], lr=0.1))


def one_after_the_other() -> None:
    body, head = two()
    params = body.parameters()
    optimizer = torch.optim.SGD(params, lr=0.1)
    trained(body, head, optimizer)
    params = head.parameters()
    optimizer = torch.optim.SGD(params, lr=0.1)
    trained(body, head, optimizer)


def what_is_frozen() -> None:
    body, head = two()
    params = (p for p in body.requires_grad_(False).parameters() if p.requires_grad)
    trained(body, head, torch.optim.SGD([*params, *head.parameters()], lr=0.1))


SOUND = [
    a_list, a_head_alone, where_a_flag_decides, where_an_expression_decides, where_the_function_is_handed_the_head,
    what_names_pick, one_after_the_other, what_is_frozen,
]  # fmt: skip


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.__name__)
def test_what_may_be_meant_as_it_is_is_left_alone(program: Callable[[], None]) -> None:
    assert found_of(program) == []
