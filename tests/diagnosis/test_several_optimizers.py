"""A program with an optimizer for each of its parts hands all of them over, as a list or a tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.testing import assert_learns

REAL, NOISE = torch.randn(6, 8), torch.randn(6, 4)
BCE = nn.BCEWithLogitsLoss()


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def losses(self, stopped: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        fake = self.generator(NOISE)
        seen = fake.detach() if stopped else fake
        critic = BCE(self.critic(REAL), torch.ones(6, 1)) + BCE(self.critic(seen), torch.zeros(6, 1))
        return critic, BCE(self.critic(fake), torch.ones(6, 1))


def trained(pair: Pair, ours: Any, theirs: Any) -> torch.Tensor:
    critic, generator = pair.losses()
    theirs.zero_grad()
    critic.backward(retain_graph=True)
    ours.zero_grad()
    generator.backward()
    for one in (theirs, ours):
        one.step()
    return generator


def built() -> tuple[Pair, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    pair = Pair()
    return pair, [torch.optim.SGD(part.parameters(), lr=0.1) for part in (pair.generator, pair.critic)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_several_optimizers_hold_together_is_what_should_learn(kind: Callable[[Any], Any]) -> None:
    pair, both = built()
    report = gradkit.diagnose(lambda: sum(pair.losses()), model=pair, optimizer=kind(both))
    assert report.findings == ()
    assert report.meant.apart == ()


def test_what_none_of_them_holds_is_told_of_the_one_that_stands_nearest() -> None:
    pair = Pair()
    ours = torch.optim.SGD(pair.generator.parameters(), lr=0.1)
    weights = [pair.critic[0].weight, pair.critic[0].bias, pair.critic[2].weight]
    theirs = torch.optim.Adam(weights, lr=0.1)  # HERE
    report = gradkit.diagnose(lambda: sum(pair.losses()), model=pair, optimizer=[ours, theirs], should_train=["*"])
    (finding,) = report.findings
    assert (finding.cause, finding.parameters) == ("optimizer_mismatch", ("critic.2.bias",))
    assert finding.location is not None
    assert finding.location.text.endswith("# HERE")


def test_a_verification_makes_steps_with_each() -> None:
    pair, both = built()
    done = gradkit.verify(lambda: sum(pair.losses()), model=pair, optimizer=both, steps=2)
    assert done.passed
    assert done.holding.kinds == ("SGD", "SGD")
    assert_learns(pair, lambda: sum(pair.losses()), optimizer=both)


def test_a_watch_looks_at_each_of_them() -> None:
    pair, both = built()
    with gradkit.watch(pair, both) as watch:
        for _ in range(2):
            trained(pair, *both)
        assert [watch.takes(one) for one in both] == [True, True]
        assert not watch.takes(torch.optim.SGD([torch.zeros(1, requires_grad=True)]))


def test_what_is_no_optimizer_is_refused_with_a_word_of_the_list() -> None:
    pair, both = built()
    with pytest.raises(gradkit.GradkitError, match="or a list of them"):
        gradkit.diagnose(lambda: sum(pair.losses()), model=pair, optimizer=[both[0], 3])


def test_the_terms_of_two_losses_are_told_apart_and_none_is_left_out() -> None:
    pair, both = built()
    report = gradkit.diagnose(lambda: trained(pair, *both), model=pair, optimizer=both)
    assert [(one.loss, one.name) for one in report.terms] == [
        (0, "BCE(self.critic(REAL), torch.ones(6, 1))"),
        (0, "BCE(self.critic(seen), torch.zeros(6, 1))"),
        (1, "BCE(self.critic(fake), torch.ones(6, 1))"),
    ]
