"""A gradient of nan is traced to every line that makes it by itself, and to no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit

X = torch.linspace(-2, 2, 12).view(6, 2)


class Piecewise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift, self.gain = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = x + self.shift
        right = at.sqrt()
        left = torch.log(-at) * self.gain
        return torch.where(at > 0, right, left)


class TwoTerms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.points, self.sizes = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gaps = (self.points[:, None] - self.points[None]).square().sum(-1).sqrt()
        spread = (self.sizes - self.sizes.mean()).square().mean() ** 0.5
        return gaps.sum() + spread + x.sum()


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.rows / (self.rows.square().sum(-1, keepdim=True).sqrt() + 1e-6)
        second = first / (first.square().sum(-1, keepdim=True).pow(0.5) + 1e-6)
        return second + x[:3]


class Divided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gaps = (self.points[:, None] - self.points[None]).square().sum(-1).sqrt()
        pull = x.mean() / gaps
        return torch.where(gaps > 0, pull, torch.zeros_like(pull))


class Masked(nn.Module):
    """Attention in which the last row sees nothing; where the value that it gives is left out afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.ones(4, 4, dtype=torch.bool).tril(-1).flip(0)
        scores = self.masked(self.rows @ self.rows.T, seen) / 3**0.5
        weights = torch.softmax(scores.float(), dim=-1)
        return torch.where(seen.any(1, keepdim=True), weights @ self.rows, torch.zeros(1))

    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(~seen, -torch.inf)


class MaskedByIndex(Masked):
    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[~seen] = -torch.inf
        return scores


class MaskedByChoice(Masked):
    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return torch.where(seen, scores, -torch.inf)


class MaskedByALogarithm(Masked):
    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        bias = seen.float().log()
        return scores + bias[:, :]


class MaskedByABias(Masked):
    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return scores + torch.ones(1) + self.bias(seen)

    def bias(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.where(seen, torch.zeros(()), -torch.inf)


class MaskedByALargeNumber(Masked):
    def masked(self, scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min)


def lines(build: Callable[[], nn.Module]) -> set[str]:
    torch.manual_seed(0)
    model = build()
    report = gradkit.diagnose(lambda: model(X).square().mean(), model=model)
    assert {one.cause for one in report.findings} == {"nan_gradient"}
    return {one.location.text.strip() for one in report.findings if one.location is not None}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (Piecewise, {"right = at.sqrt()", "left = torch.log(-at) * self.gain"}),
        (
            TwoTerms,
            {
                "gaps = (self.points[:, None] - self.points[None]).square().sum(-1).sqrt()",
                "spread = (self.sizes - self.sizes.mean()).square().mean() ** 0.5",
            },
        ),
        (
            Stacked,
            {
                "first = self.rows / (self.rows.square().sum(-1, keepdim=True).sqrt() + 1e-6)",
                "second = first / (first.square().sum(-1, keepdim=True).pow(0.5) + 1e-6)",
            },
        ),
    ],
    ids=["both_branches_of_where", "two_terms", "one_behind_the_other"],
)
def test_every_line_that_makes_nan_by_itself_is_named(build: Callable[[], nn.Module], expected: set[str]) -> None:
    assert lines(build) == expected


def test_a_root_behind_a_division_by_it_is_not_named_beside_it() -> None:
    assert lines(Divided) == {"pull = x.mean() / gaps"}


def test_a_line_tells_of_those_parameters_alone_that_its_nan_reaches() -> None:
    torch.manual_seed(0)
    model = TwoTerms()
    found = gradkit.diagnose(lambda: model(X), model=model).findings
    assert found[-1].parameters == ("points",)


def test_of_a_loss_that_is_nan_itself_one_line_is_named() -> None:
    model = Piecewise()
    report = gradkit.diagnose(lambda: model(X).sum() * torch.tensor(-1.0).sqrt(), model=model)
    assert len([one for one in report.findings if one.cause == "nan_gradient"]) == 1


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (Masked, "return scores.masked_fill(~seen, -torch.inf)"),
        (MaskedByIndex, "scores[~seen] = -torch.inf"),
        (MaskedByChoice, "return torch.where(seen, scores, -torch.inf)"),
        (MaskedByALogarithm, "bias = seen.float().log()"),
        (MaskedByABias, "return torch.where(seen, torch.zeros(()), -torch.inf)"),
    ],
)
def test_of_a_softmax_over_a_row_of_which_nothing_is_seen_the_line_that_masks_is_named(
    build: Callable[[], nn.Module], line: str
) -> None:
    assert lines(build) == {line}


def test_a_row_that_is_masked_with_a_large_number_gives_a_finite_gradient() -> None:
    torch.manual_seed(0)
    model = MaskedByALargeNumber()
    assert gradkit.diagnose(lambda: model(X).square().mean(), model=model).healthy
