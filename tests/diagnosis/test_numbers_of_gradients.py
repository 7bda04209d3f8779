"""A custom Function whose backward returns too few gradients, too many, or nothing: named is where it returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)
Tensor = torch.Tensor


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.by = by
        return x * by


class TooFew(Scaled):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.by  # too few


class TooMany(Scaled):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if ctx.by == 0:
            return None, None
        return grads[0] * ctx.by, None, grads[0]  # too many


class Nothing(Scaled):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # nothing
        ctx.seen = grads[0].norm()


class TakenOver(TooFew):
    """Its backward is that of its base."""


@pytest.mark.parametrize(
    ("function", "mark"), [(TooFew, "too few"), (TooMany, "too many"), (Nothing, "nothing"), (TakenOver, "too few")]
)
def test_a_wrong_number_of_gradients_is_named_where_they_are_returned(function: Any, mark: str) -> None:
    model = nn.Linear(3, 2)
    (found,) = gradkit.diagnose(lambda: function.apply(model(X), 2.0).sum(), model=model).findings
    assert (found.cause, found.variant, found.call) == ("custom_function", "count", function.__name__)
    assert found.location is not None
    assert found.location.line == line_ending(__file__, mark)


class Probe(torch.autograd.Function):
    """Hands its input on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # only looks
        ctx.seen = grads[0].norm()


def test_a_backward_that_only_looks_is_named_and_not_the_forward() -> None:
    model = nn.Linear(3, 2)
    (found,) = gradkit.diagnose(lambda: Probe.apply(model(X)).sum(), model=model).findings
    assert found.cause == "custom_function"
    assert found.location is not None
    assert found.location.line == line_ending(__file__, "only looks")
