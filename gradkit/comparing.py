"""Two models of the same weights beside each other: whether numbers agree, and who has which weights."""

from __future__ import annotations

import torch
from torch import nn

RELATIVE, ABSOLUTE, STEP = 1e-3, 1e-5, 1e-6
"""How far a gradient, and one step of a weight, may be from the other's: float32, in another order."""

LOSS = 1e-5
"""As :data:`RELATIVE`, for a loss: of one number alone, a wrong one comes this close once in many thousand draws."""


def near(one: torch.Tensor | None, other: torch.Tensor, absolute: float = ABSOLUTE, relative: float = RELATIVE) -> bool:
    """Whether two losses or gradients are the same but for rounding; None is a gradient of nothing but zeros.

    Example:
        >>> near(None, torch.zeros(2)), near(torch.ones(2), 1.00001 * torch.ones(2)), near(None, torch.ones(2))
        (True, True, False)
    """
    if one is None:
        return not other.any()
    return torch.allclose(one.to(other.dtype), other, relative, absolute)


def take_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy every parameter of the target from the parameter of that name in the source."""
    weights = dict(source.named_parameters())
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            parameter.copy_(weights[name])


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the parameters as they are now, by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def clear_grads(model: nn.Module) -> None:
    """Begin with no gradients."""
    for parameter in model.parameters():
        parameter.grad = None
