"""Where a library calls ``forward``, the condition that a batch does not meet is named: no line of yours gives it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import gradkit

X, IMAGE = torch.ones(2, 4), torch.ones(2, 4)


class Eyed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ear, self.eye = nn.Linear(4, 1), nn.Linear(4, 1)


class Asks(Eyed):
    def forward(self, sound: torch.Tensor, image: torch.Tensor | None = None) -> Any:
        seen = self.ear(sound)
        if image is not None:
            seen = seen + self.eye(image)
        return seen.sum()


class AsksForKey(Eyed):
    def forward(self, scene: dict[str, torch.Tensor]) -> Any:
        seen = self.ear(scene["sound"])
        return (seen + self.eye(scene["image"]) if "image" in scene else seen).sum()


class AsksForMore(Eyed):
    glances = 0

    def forward(self, sound: torch.Tensor, image: torch.Tensor | None = None) -> Any:
        seen = self.ear(sound)
        if image is not None and self.glances:
            seen = seen + self.eye(image)
        return seen.sum()


def _found(model: nn.Module, *given: Any, **named: Any) -> gradkit.types.Finding:
    """Of a step in which no line of the user's calls ``forward``."""
    (finding,) = gradkit.diagnose(partial(model, *given, **named), model=model).findings
    return finding


@pytest.mark.parametrize(
    ("model", "given", "text"),
    [(Asks, X, "if image is not None:"), (AsksForKey, {"sound": X}, 'if "image" in scene else')],
)
def test_the_condition_that_is_not_met_is_named(model: type[nn.Module], given: Any, text: str) -> None:
    found = _found(model(), given)
    assert (found.cause, found.variant, found.facts["name"]) == ("trainable_unused", "unmet", "image")
    assert found.location is not None
    assert text in found.location.text
    assert set(found.parameters) == {"eye.weight", "eye.bias"}


@pytest.mark.parametrize("named", [{}, {"image": IMAGE}])
def test_one_of_two_conditions_is_not_blamed(named: dict[str, torch.Tensor]) -> None:
    assert _found(AsksForMore(), X, **named).variant == ""


def test_the_users_own_call_is_named_before_the_condition() -> None:
    model = Asks()

    def step() -> Any:
        return model(X)

    (found,) = gradkit.diagnose(step, model=model).findings
    assert found.variant == "argument"
    assert found.location is not None
    assert "return model(X)" in found.location.text


def test_a_batch_that_meets_the_condition_is_sound() -> None:
    model = Asks()
    assert gradkit.diagnose(partial(model, X, image=IMAGE), model=model).healthy
