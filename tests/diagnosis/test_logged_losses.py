"""A step that goes backward by itself and returns what it logs of its losses has trained already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit

X, Y = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(18).reshape(3, 6) % 3
Steps = dict[str, Callable[[nn.Module], torch.Tensor]]


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _walked(model: nn.Module, keep: bool = False) -> list[torch.Tensor]:
    losses = [F.cross_entropy(model(x), y) for x, y in zip(X, Y, strict=True)]
    for loss in losses:
        loss.backward(retain_graph=keep)
    return losses


def _running(model: nn.Module) -> torch.Tensor:
    total = torch.zeros(())
    for x, y in zip(X, Y, strict=True):
        loss = F.cross_entropy(model(x), y) / 3
        loss.backward()
        total = total + loss
    return total


def _with_terms(model: nn.Module) -> torch.Tensor:
    out = model(X[0])
    loss, penalty = F.cross_entropy(out, Y[0]), out.pow(2).mean()
    (loss + 0.1 * penalty).backward()
    return loss + penalty


def _scaled(model: nn.Module) -> torch.Tensor:
    loss = F.cross_entropy(model(X[0]), Y[0]) / 4
    loss.backward()
    return loss * 4


def _stacked(model: nn.Module) -> torch.Tensor:
    losses = torch.stack([F.cross_entropy(model(x), y) for x, y in zip(X, Y, strict=True)])
    losses.mean().backward()
    return losses[0] + losses[1]


def _kept_then_freed(model: nn.Module) -> torch.Tensor:
    out = model(X[0])
    loss, penalty = F.cross_entropy(out, Y[0]), out.pow(2).mean()
    loss.backward(retain_graph=True)
    penalty.backward()
    return loss + 4 * penalty


SOUND: Steps = {
    "their sum": lambda model: sum(_walked(model), torch.zeros(())),
    "their mean": lambda model: torch.stack(_walked(model)).mean(),
    "a running total": _running,
    "the terms, unweighted": _with_terms,
    "the loss as it was before it was scaled": _scaled,
    "the perplexity": lambda model: _walked(model)[-1].exp(),
    "some of a stack": _stacked,
    "losses whose graphs were kept and freed in turn": _kept_then_freed,
}


@pytest.mark.parametrize("what", SOUND)
def test_what_is_logged_of_losses_is_no_loss_to_go_backward_of(what: str) -> None:
    model = _net()
    report = gradkit.diagnose(lambda: SOUND[what](model), model=model)
    assert report.healthy
    assert not report.findings


def test_a_mean_that_runs_on_from_step_to_step_is_logged_as_well() -> None:
    model = _net()
    kept: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        loss = F.cross_entropy(model(X[0]), Y[0])
        loss.backward()
        kept[:] = [0.9 * kept[0] + 0.1 * loss if kept else loss]
        return kept[0]

    step()
    assert not gradkit.diagnose(step, model=model).findings


def test_all_parameters_that_any_of_the_losses_reached_have_a_gradient() -> None:
    model = nn.ModuleDict({"one": nn.Linear(4, 3), "other": nn.Linear(4, 3)})

    def step() -> torch.Tensor:
        losses = [F.cross_entropy(layer(X[0]), Y[0]) for layer in model.values()]
        for loss in losses:
            loss.backward()
        return losses[0] + losses[1]

    assert {row.name for row in gradkit.diagnose(step, model=model).parameters if row.grad_norm} == {
        "one.weight", "one.bias", "other.weight", "other.bias",
    }  # fmt: skip


def test_a_cut_on_the_way_to_any_of_the_losses_is_still_named() -> None:
    enter, leave = nn.Linear(4, 5), nn.Linear(5, 3)
    model = nn.Sequential(enter, leave)

    def step() -> torch.Tensor:
        losses = [F.cross_entropy(leave(enter(x).detach()), y) for x, y in zip(X, Y, strict=True)]  # cut
        for loss in losses:
            loss.backward()
        return losses[0] + losses[1] + losses[2]

    found = gradkit.diagnose(step, model=model).findings
    assert [(one.cause, one.location and one.location.line) for one in found] == [("detach", _line("cut"))]


def test_a_term_that_was_walked_before_it_is_added_to_the_loss_is_needed_once_more() -> None:
    model = _net()

    def step() -> torch.Tensor:
        hidden = model[1](model[0](X[0]))
        penalty = hidden.pow(2).mean()
        penalty.backward()
        return F.cross_entropy(model[2](hidden), Y[0]) + 0.1 * penalty

    assert [one.cause for one in gradkit.diagnose(step, model=model).findings] == ["double_backward"]


def test_a_loss_that_uses_more_of_a_freed_graph_than_its_end_is_needed_once_more() -> None:
    make, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    model = nn.ModuleDict({"make": make, "judge": judge})

    def step() -> torch.Tensor:
        made = make(X[0]).tanh()
        F.softplus(judge(made)).mean().backward()
        return F.softplus(-judge(made)).mean()

    assert [one.cause for one in gradkit.diagnose(step, model=model).findings] == ["double_backward"]


def test_the_terms_of_the_losses_are_not_told_twice() -> None:
    model = _net()

    def step() -> torch.Tensor:
        out = model(X[0])
        loss = F.cross_entropy(out, Y[0]) + 0.1 * out.pow(2).mean()
        loss.backward()
        other = F.cross_entropy(model(X[1]), Y[1])
        other.backward()
        return loss + other

    terms = gradkit.diagnose(step, model=model).terms
    assert len(terms) == len({(one.name, one.location) for one in terms}) == 3


def _line(word: str) -> int:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(text, 1) if line.endswith(f"  # {word}"))
