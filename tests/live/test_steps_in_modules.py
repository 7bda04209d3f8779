"""A module whose call is the whole training step, its backward and its optimizer's step included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.core.records import Finding
from gradkit.live.explain import Explanation


class Fast(nn.Module):
    """Learns weights from which one step of descent leads to good ones."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.net = nn.Linear(3, 2)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.cut = cut

    def forward(self, seen: torch.Tensor, asked: torch.Tensor) -> float:
        losses = []
        for x, y in zip(seen, asked, strict=True):
            weights = list(self.net.parameters())
            slopes = torch.autograd.grad(F.linear(x, *weights).square().mean(), weights, create_graph=not self.cut)
            moved = [w - 0.1 * s for w, s in zip(weights, slopes, strict=True)]
            if self.cut:
                moved = [one.detach().requires_grad_() for one in moved]  # CUT of Fast
            losses.append(F.linear(y, *moved).square().mean())
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Encoding(nn.Module):
    """An autoencoder that trains itself with every batch."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 2), nn.Linear(2, 3)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.cut = cut

    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        code = self.body(x)
        code = code.data if self.cut else code  # CUT of Encoding
        loss = F.mse_loss(self.head(torch.tanh(code)), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


class Playing(nn.Module):
    """Two networks against each other, each with an optimizer of its own."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.maker, self.judge = nn.Linear(3, 3), nn.Linear(3, 1)
        self.of_maker = torch.optim.Adam(self.maker.parameters(), lr=0.01)
        self.of_judge = torch.optim.Adam(self.judge.parameters(), lr=0.01)
        self.cut = cut

    def judged(self, real: torch.Tensor, made: torch.Tensor) -> None:
        loss = self.judge(made).mean() - self.judge(real).mean()
        self.of_judge.zero_grad()
        loss.backward()
        self.of_judge.step()

    def forward(self, real: torch.Tensor, noise: torch.Tensor) -> None:
        made = self.maker(noise)
        self.judged(real, made.detach())
        shown = torch.from_numpy(made.detach().numpy()) if self.cut else made  # CUT of Playing
        self.of_maker.zero_grad()
        (-self.judge(shown)).mean().backward()
        self.of_maker.step()


MODULES: list[Callable[..., nn.Module]] = [Fast, Encoding, Playing]


def trained(model: nn.Module) -> list[Finding]:
    found: list[Explanation] = []
    with gradkit.watch(tell=found.append):
        for x, y in zip(torch.randn(6, 4, 5, 3), torch.randn(6, 4, 5, 3), strict=True):
            model(x, y)
    return [finding for one in found if one.report is not None for finding in one.report.findings]


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


@pytest.mark.parametrize("kind", MODULES)
def test_what_such_a_module_loses_is_told_with_its_line(kind: Any) -> None:
    found = trained(kind(cut=True))
    assert [one.location and one.location.line for one in found] == [line_of(f"CUT of {kind.__name__}")]


@pytest.mark.parametrize("kind", MODULES)
def test_such_a_module_is_sound_where_nothing_is_cut(kind: Any) -> None:
    assert trained(kind(cut=False)) == []


def test_such_a_module_comes_to_the_same_weights() -> None:
    def weights(*, watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = Encoding(cut=True)
        torch.manual_seed(2)
        if watched:
            trained(model)
        else:
            for x, y in zip(torch.randn(6, 4, 5, 3), torch.randn(6, 4, 5, 3), strict=True):
                model(x, y)
        return [one.detach().clone() for one in model.parameters()]

    for one, other in zip(weights(watched=True), weights(watched=False), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
