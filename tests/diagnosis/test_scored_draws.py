"""A policy gradient whose draw keeps its history: the gradients of the mean cancel to exactly zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import gradkit
from tests.marks import line_ending

OBS = torch.linspace(-1, 1, 32).view(8, 4)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_std = nn.Linear(4, 2), nn.Parameter(torch.zeros(2))


def reward(action: torch.Tensor) -> torch.Tensor:
    return -(action.detach() - 1).square().sum(-1)


def by_distribution(policy: Policy) -> torch.Tensor:
    pi = Independent(Normal(policy.mean(OBS), policy.log_std.exp()), 1)
    action = pi.rsample()  # drawn
    return -(reward(action) * pi.log_prob(action)).mean()


def by_hand(policy: Policy) -> torch.Tensor:
    mean = policy.mean(OBS)
    action = mean + 0.5 * torch.randn_like(mean)  # drawn by hand
    score = -((action - mean) ** 2).sum(-1) / 0.5 - policy.log_std.sum()
    return -(reward(action) * score).mean()


@pytest.mark.parametrize(("loss", "mark"), [(by_distribution, "drawn"), (by_hand, "drawn by hand")])
def test_a_draw_that_is_scored_with_its_history_is_named_where_it_is_drawn(
    loss: Callable[[Policy], torch.Tensor], mark: str
) -> None:
    policy = Policy()
    found = gradkit.diagnose(lambda: loss(policy), model=policy, should_train=["mean.*"]).findings
    assert [(one.cause, one.variant) for one in found] == [("zero_gradient", "scored")]
    assert found[0].location is not None
    assert found[0].location.line == line_ending(__file__, mark)


def sampled(policy: Policy) -> torch.Tensor:
    pi = Normal(policy.mean(OBS), policy.log_std.exp())
    action = pi.sample()
    return -(reward(action) * pi.log_prob(action).sum(-1)).mean()


def pathwise(policy: Policy) -> torch.Tensor:
    pi = Normal(policy.mean(OBS), policy.log_std.exp())
    action = pi.rsample()
    return (0.1 * pi.log_prob(action).sum(-1) + (action - 1).square().sum(-1)).mean()


@pytest.mark.parametrize("loss", [sampled, pathwise])
def test_a_draw_without_history_and_one_that_the_loss_takes_itself_are_sound(
    loss: Callable[[Policy], torch.Tensor],
) -> None:
    policy = Policy()
    assert not gradkit.diagnose(lambda: loss(policy), model=policy, should_train=["mean.*"]).findings
