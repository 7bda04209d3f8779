"""A number that left torch and came back into the loss as a bare one is followed by what the loss does without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.types import Finding

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.side = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 5)
        self.log: list[float] = []
        self.best = 1e9

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        return F.cross_entropy(self.head(h), Y), self.side(h)


def spread(rows: Any) -> Any:
    unit = [row / np.linalg.norm(row) for row in rows]
    return sum(np.dot(a, b) for a in unit for b in unit) / len(unit)


def a_term_made_a_float(net: Net) -> Any:
    loss, side = net(X)
    hint = float(side.square().mean())  # CUT
    return loss + 0.3 * hint


def a_term_computed_in_numpy(net: Net) -> Any:
    loss, side = net(X)
    return 0.4 * spread(side.cpu().detach().numpy()) + 0.6 * loss  # CUT


def a_weight_computed_of_a_list(net: Net) -> Any:
    loss, side = net(X)
    scores = [float(str(one)) for one in side.sigmoid().mean(1).tolist()]  # CUT
    return loss * (sum(scores) / len(scores))


def a_term_taken_where_nothing_is_recorded(net: Net) -> Any:
    loss, side = net(X)
    with torch.no_grad():
        penalty = float(side.norm())  # CUT
    return loss - 0.01 * penalty


BACK = [
    (a_term_made_a_float, "python_roundtrip"), (a_term_computed_in_numpy, "numpy_roundtrip"),
    (a_weight_computed_of_a_list, "python_roundtrip"), (a_term_taken_where_nothing_is_recorded, "python_roundtrip"),
]  # fmt: skip


def a_metric_beside_a_schedule(net: Net) -> Any:
    loss, side = net(X)
    net.log.append(float((side.argmax(1) == Y).float().mean()))
    net.log.append(float(side.norm().detach().numpy()))
    warm = min(1.0, 3 / 10)
    return warm * loss + (1 - warm)


def a_best_value_that_is_kept(net: Net) -> Any:
    loss, side = net(X)
    now = float(side.square().mean())
    if now < net.best:
        net.best = now
    return loss * 2


def a_number_that_stops_a_loop(net: Net) -> Any:
    loss, side = net(X)
    error = side.detach()
    while float(error.abs().max()) > 1e-2:
        error = error / 2
    return loss


UNUSED = [a_metric_beside_a_schedule, a_best_value_that_is_kept, a_number_that_stops_a_loop]


def found(step: Callable[[Net], Any]) -> tuple[Finding, ...]:
    torch.manual_seed(0)
    net = Net()
    return gradkit.diagnose(lambda: step(net), model=net).findings


def test_a_reward_of_what_was_chosen_is_no_number_that_lost_its_history() -> None:
    def step(net: Net) -> Any:
        with torch.no_grad():
            chosen = net.head(torch.tanh(net.body(X))).argmax(1)
        reward = float((chosen % 2).float().mean() + 0.5)
        return torch.tensor(-reward, requires_grad=True)

    assert found(step)[0].cause == "constant_loss"


@pytest.mark.parametrize(("step", "cause"), BACK)
def test_the_line_where_the_number_leaves_torch_is_named_and_proven(step: Callable[[Net], Any], cause: str) -> None:
    one = found(step)[-1]
    assert (one.cause, one.proof, set(one.parameters)) == (cause, "proven", {"side.weight", "side.bias"})
    assert one.location is not None
    assert one.location.text.rstrip().endswith("# CUT")


def test_the_line_that_takes_the_number_in_has_a_note() -> None:
    (one,) = found(a_term_made_a_float)
    (note,) = (note for note in one.notes if note.kind == "comes_back")
    assert note.location is not None
    assert note.location.text.strip() == "return loss + 0.3 * hint"


@pytest.mark.parametrize("step", UNUSED)
def test_a_number_that_the_loss_does_not_depend_on_leaves_the_layer_unused(
    step: Callable[[Net], Any],
) -> None:
    (one,) = found(step)
    assert one.cause == "trainable_unused"
    assert one.location is not None
    assert "self.side" in one.location.text


def test_what_the_step_has_logged_is_as_it_was() -> None:
    torch.manual_seed(0)
    net = Net()
    a_metric_beside_a_schedule(net)
    before = list(net.log)
    gradkit.diagnose(lambda: a_metric_beside_a_schedule(net), model=net)
    assert net.log == before


def test_a_loss_that_is_another_in_every_run_tells_nothing() -> None:
    noise = iter(np.random.default_rng(0).normal(size=100))

    def step(net: Net) -> Any:
        loss, side = net(X)
        net.log.append(float(side.norm()))
        return loss + float(next(noise))

    (one,) = found(step)
    assert one.cause == "trainable_unused"
