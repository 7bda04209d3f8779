"""A loss that goes through a copy of the network that the optimizer trains is named where it asks the copy."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.core.records import Finding
from gradkit.live.explain import Explanation


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def asks_the_target() -> None:
    online = network()
    optimizer = torch.optim.Adam(online.parameters(), lr=0.01)
    target = network()
    target.load_state_dict(online.state_dict())
    for now, then in torch.randn(6, 2, 5, 3):
        with torch.no_grad():
            wanted = 1.0 + 0.9 * target(then).amax(1)
        value = target(now)[:, 0]  # LINE
        loss = F.mse_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Agent:
    """Keeps a slow copy of its network, and asks that where it ought to ask the network."""

    def __init__(self) -> None:
        self.policy = network()
        self.slow = copy.deepcopy(self.policy)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.1)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.slow(x)  # LINE
        return F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))

    def update(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(x).backward()
        self.optimizer.step()


def asks_the_slow_one() -> None:
    agent = Agent()
    for x in torch.randn(6, 5, 3):
        agent.update(x)


def trains_the_teacher_that_is_a_copy() -> None:
    student = network()
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=0.01)  # LINE
    for x in torch.randn(6, 5, 3):
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(student(x + 1.0), wanted).backward()
        optimizer.step()


def has_loaded_other_weights() -> None:
    kept = {name: one.clone() for name, one in network().state_dict().items()}
    first, second = network(), network()
    second.load_state_dict(kept)
    optimizer = torch.optim.Adam(first.parameters(), lr=0.01)  # LINE
    for x in torch.randn(6, 5, 3):
        optimizer.zero_grad()
        second(x).square().mean().backward()
        optimizer.step()


def asks_both_as_meant() -> None:
    online = network()
    optimizer = torch.optim.Adam(online.parameters(), lr=0.01)
    target = network()
    target.load_state_dict(online.state_dict())
    for now, then in torch.randn(6, 2, 5, 3):
        wanted = 1.0 + 0.9 * target(then).amax(1)
        loss = F.mse_loss(online(now)[:, 0], wanted.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def pulls_at_the_average_too() -> None:
    online = network()
    average = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=0.01)
    for x in torch.randn(6, 5, 3):
        optimizer.zero_grad()
        F.mse_loss(online(x), average(x)).backward()
        optimizer.step()


def found_of(program: Callable[[], None]) -> list[Finding]:
    found: list[Explanation] = []
    with gradkit.watch(tell=found.append):
        program()
    return [finding for one in found if one.report is not None for finding in one.report.findings]


@pytest.mark.parametrize(
    ("program", "where"),
    [
        (asks_the_target, asks_the_target), (asks_the_slow_one, Agent),
        (trains_the_teacher_that_is_a_copy, trains_the_teacher_that_is_a_copy),
        (has_loaded_other_weights, has_loaded_other_weights),
    ],
)  # fmt: skip
def test_what_is_to_change_is_named(program: Callable[[], None], where: Callable[..., object]) -> None:
    lines, first = inspect.getsourcelines(where)
    marked = next(number for number, line in enumerate(lines, first) if line.rstrip().endswith("# LINE"))
    assert [(one.cause, one.location and one.location.line) for one in found_of(program)] == [
        ("optimizer_mismatch", marked)
    ]


def test_the_copy_and_what_it_is_a_copy_of_are_named() -> None:
    (finding,) = found_of(asks_the_target)
    assert (finding.variant, finding.facts["copy"], finding.facts["original"]) == ("asked_copy", "target", "online")


@pytest.mark.parametrize("program", [asks_both_as_meant, pulls_at_the_average_too])
def test_a_copy_that_is_asked_beside_the_network_is_no_fault(program: Callable[[], None]) -> None:
    assert found_of(program) == []
