"""Sound programs that look like `numpy_roundtrip` and are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.programs.shared import Built, batch, pair, small, sound

# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_custom_function_that_works_in_numpy() -> Built:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.detach().numpy() * 2)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * 2

    model, x = pair(), batch()
    return model, lambda: model["outer"](Doubled.apply(model["inner"](x))).sum()


@sound
def a_step_that_trains_and_returns_an_array_of_its_errors() -> Built:
    model, x = small(), batch()

    def train_one_step() -> Any:
        errors = (model(x) - 1).pow(2)
        errors.mean().backward()
        return np.sort(errors.detach().numpy(), axis=0)

    return model, train_one_step
