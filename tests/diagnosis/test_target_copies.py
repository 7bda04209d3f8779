"""A copy of what learns, such as a target network, is not expected to learn, though it requires grad."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit

Built = tuple[nn.Module, Callable[[], torch.Tensor], object]
S, NEXT = torch.randn(8, 4), torch.randn(8, 4)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def whose_optimizer_holds_the_other_alone() -> Built:
    both = nn.ModuleList([net(), net()])

    def step() -> torch.Tensor:
        with torch.no_grad():
            best = both[1](NEXT).max(1).values
        return F.mse_loss(both[0](S).max(1).values, best)

    return both, step, torch.optim.Adam(both[0].parameters())


def that_is_named_a_target() -> Built:
    q = net()
    target = copy.deepcopy(q)
    agent = nn.ModuleDict({"q": q, "target": target})

    def step() -> torch.Tensor:
        return F.mse_loss(q(S).max(1).values, target(NEXT).max(1).values.detach())

    return agent, step, None


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.online, self.frozen = net(), net()
        self.frozen.load_state_dict(self.online.state_dict())

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            best = self.frozen(NEXT).max(1).values
        return F.mse_loss(self.online(S).max(1).values, best)


def that_loads_what_the_other_holds() -> Built:
    agent = Agent()
    return agent, agent, None


class Averaged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student, self.mean = net(), net()

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            wanted = self.mean(S)
        return F.mse_loss(self.student(S), wanted)

    def average(self) -> None:
        for ours, theirs in zip(self.mean.parameters(), self.student.parameters(), strict=True):
            ours.data.mul_(0.9).add_(0.1 * theirs.data)


def that_is_an_average() -> Built:
    model = Averaged()
    return model, model, None


COPIES = (
    whose_optimizer_holds_the_other_alone, that_is_named_a_target, that_loads_what_the_other_holds,
    that_is_an_average,
)  # fmt: skip


@pytest.mark.parametrize("build", COPIES)
def test_no_line_is_accused_of_a_copy(build: Callable[[], Built]) -> None:
    model, step, kept = build()
    report = gradkit.diagnose(step, model=model)
    assert report.findings == ()
    assert len(report.meant.copies) == 4
    assert report.meant.copies[0] in report.text("en")
    assert "副本" in report.text("zh")
    del kept


@pytest.mark.parametrize("build", COPIES)
def test_a_copy_that_is_named_should_learn(build: Callable[[], Built]) -> None:
    model, step, kept = build()
    report = gradkit.diagnose(step, model=model, should_train=["*"])
    assert report.findings[0].cause in ("no_grad_block", "detach")
    del kept


def the_one_that_is_copied() -> Built:
    q = net()
    target = copy.deepcopy(q)
    agent = nn.ModuleDict({"q": q, "target": target})

    def step() -> torch.Tensor:
        with torch.no_grad():
            value = q(S).max(1).values
        return F.mse_loss(value, target(NEXT).max(1).values)

    return agent, step, torch.optim.Adam(q.parameters())


def a_decoder_that_began_as_the_encoder() -> Built:
    encoder = net()
    decoder = copy.deepcopy(encoder)
    both = nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def step() -> torch.Tensor:
        with torch.no_grad():
            out = decoder(NEXT)
        return F.mse_loss(encoder(S), out)

    return both, step, torch.optim.Adam(both.parameters())


def the_second_of_two_views() -> Built:
    both = nn.ModuleDict({"left": net(), "right": net()})

    def step() -> torch.Tensor:
        with torch.no_grad():
            out = both["right"](NEXT)
        return F.mse_loss(both["left"](S), out)

    return both, step, None


@pytest.mark.parametrize(
    "build", [the_one_that_is_copied, a_decoder_that_began_as_the_encoder, the_second_of_two_views]
)
def test_what_is_no_copy_is_accused_as_ever(build: Callable[[], Built]) -> None:
    model, step, kept = build()
    report = gradkit.diagnose(step, model=model)
    assert [one.cause for one in report.findings] == ["no_grad_block"]
    assert report.meant.copies == ()
    del kept
