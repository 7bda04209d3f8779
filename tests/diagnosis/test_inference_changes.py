"""What is proposed where inference_mode stands in the way: no_grad() where that is enough, else its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Report

X = torch.linspace(-1, 1, 12).view(4, 3)


class Cached(nn.Module):
    """Its table is made when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(3.0).view(3, 1)
        return self.layer(x) @ self.table

    @torch.inference_mode()
    def validate(self) -> float:
        return float(self(X).sum())

    def validate_in_a_block(self) -> float:
        with torch.inference_mode():
            return float(self(X).sum())


def after_validating(validate: Callable[[Cached], float]) -> Report:
    model = Cached()

    def step() -> torch.Tensor:
        model.table = None
        validate(model)
        return model(X).square().mean()

    return gradkit.diagnose(step, model=model)


@pytest.mark.parametrize("validate", [Cached.validate, Cached.validate_in_a_block], ids=["decorator", "block"])
def test_no_grad_is_proposed_where_only_values_are_used_in_training(validate: Callable[[Cached], float]) -> None:
    (found,) = after_validating(validate).findings
    assert found.tried is not None
    assert (found.cause, found.tried.outcome, found.tried.kind) == ("inference_mode", "cures", "no_grad")
    assert any("torch.no_grad()" in change.text for change in found.tried.changes if change.sign == "+")


class Served(Cached):
    @torch.inference_mode()
    def loss(self) -> torch.Tensor:
        return self.layer(X).square().mean()


def test_the_end_of_inference_mode_is_proposed_where_the_loss_itself_is_computed_in_it() -> None:
    model = Served()
    (found,) = gradkit.diagnose(model.loss, model=model).findings
    assert found.tried is not None
    assert (found.tried.outcome, found.tried.kind) == ("cures", "decorator")
