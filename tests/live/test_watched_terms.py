"""What a watch tells of a loss whose terms or gradients are zero to the end, though every backward runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit


def trained(build: Callable[[], nn.Module], loss_of: Callable[[nn.Module, int], torch.Tensor]) -> list[tuple[str, str]]:
    """The causes and lines that are told of a program of twelve steps."""
    torch.manual_seed(0)
    with gradkit.watch(tell=lambda _: None) as w:
        model = build()
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for step in range(12):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            optimizer.step()
    found = [one for report in w.reports for one in report.findings]
    return [(one.cause, one.location.text.strip() if one.location is not None else "") for one in found]


def layer() -> nn.Module:
    return nn.Linear(4, 3)


def penalty_without_a_history(model: nn.Module, _: int) -> torch.Tensor:
    out = model(torch.randn(5, 4))
    size = out.detach().abs().mean()
    return F.mse_loss(out, torch.ones(5, 3)) + size


def weight_by_whole_number_division(model: nn.Module, step: int) -> torch.Tensor:
    out = model(torch.randn(5, 4))
    ramp = min(1, step // 100)
    size = out.abs().mean()
    return F.mse_loss(out, torch.ones(5, 3)) + ramp * size


def weight_under_another_key(model: nn.Module, _: int) -> torch.Tensor:
    out = model(torch.randn(5, 4))
    shares = {"main": 1.0, "sizes": 0.1}
    size = out.abs().mean()
    return F.mse_loss(out, torch.ones(5, 3)) + shares.get("size", 0.0) * size


def mask_that_lets_nothing_count(model: nn.Module, _: int) -> torch.Tensor:
    x = torch.randn(5, 4)
    mask = (x > 99).float()[:, :3]
    return (mask * model(x).square()).sum()


@pytest.mark.parametrize(
    ("loss_of", "cause", "line"),
    [
        (penalty_without_a_history, "detach", "size = out.detach().abs().mean()"),
        (weight_by_whole_number_division, "zero_gradient", "ramp = min(1, step // 100)"),
        (
            weight_under_another_key,
            "zero_gradient",
            'return F.mse_loss(out, torch.ones(5, 3)) + shares.get("size", 0.0) * size',
        ),
        (mask_that_lets_nothing_count, "zero_gradient", "mask = (x > 99).float()[:, :3]"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_teaches_nothing_to_the_end_is_told_with_its_line(
    loss_of: Callable[[nn.Module, int], torch.Tensor], cause: str, line: str
) -> None:
    assert trained(layer, loss_of) == [(cause, line)]


def weight_that_is_written_as_zero(model: nn.Module, _: int) -> torch.Tensor:
    out = model(torch.randn(5, 4))
    return F.mse_loss(out, torch.ones(5, 3)) + 0.0 * out.abs().mean()


def number_that_is_added(model: nn.Module, _: int) -> torch.Tensor:
    return sum([F.mse_loss(model(torch.randn(5, 4)), torch.ones(5, 3))], torch.tensor(1.0))


@pytest.mark.parametrize("loss_of", [weight_that_is_written_as_zero, number_that_is_added])
def test_what_is_switched_off_in_so_many_words_is_left_in_peace(
    loss_of: Callable[[nn.Module, int], torch.Tensor],
) -> None:
    assert trained(layer, loss_of) == []


class BothZero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.empty(2, 4)), nn.Parameter(torch.empty(3, 2))
        nn.init.zeros_(self.down)
        nn.init.zeros_(self.up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + (x @ self.down.t()) @ self.up.t()
        return out


def test_two_factors_that_hold_each_other_at_zero_are_told_with_the_line_that_was_seen_to_fill_the_first() -> None:
    loss_of = lambda model, _: F.mse_loss(model(torch.randn(5, 4)), torch.ones(5, 3))  # noqa: E731
    assert trained(BothZero, loss_of) == [("zero_gradient", "nn.init.zeros_(self.down)")]


def trained_on_parts(*, logged: bool) -> list[tuple[str, str]]:
    """What is told of a loop that picks one entry of a dictionary of losses, and may log all of them."""
    torch.manual_seed(0)
    log: list[dict[str, float]] = []
    with gradkit.watch(tell=lambda _: None) as w:
        model = layer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (_with_a_log if logged else _without_a_log)(model, optimizer, log)
    found = [one for report in w.reports for one in report.findings]
    return [(one.variant, one.location.text.strip() if one.location is not None else "") for one in found]


def _without_a_log(model: nn.Module, optimizer: torch.optim.Optimizer, _: list[dict[str, float]]) -> None:
    for _step in range(4):
        out = model(torch.randn(5, 4))
        losses = {"fit": F.mse_loss(out, torch.ones(5, 3)), "evenness": out.abs().mean()}
        loss = losses["fit"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _with_a_log(model: nn.Module, optimizer: torch.optim.Optimizer, log: list[dict[str, float]]) -> None:
    for _step in range(4):
        out = model(torch.randn(5, 4))
        losses = {"fit": F.mse_loss(out, torch.ones(5, 3)), "evenness": out.abs().mean()}
        loss = losses["fit"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append({name: float(one) for name, one in losses.items()})


def test_an_entry_of_a_dictionary_of_losses_that_nobody_adds_is_told() -> None:
    assert trained_on_parts(logged=False) == [("unadded", 'loss = losses["fit"]')]


def test_entries_that_are_logged_after_the_step_are_left_in_peace() -> None:
    assert trained_on_parts(logged=True) == []
