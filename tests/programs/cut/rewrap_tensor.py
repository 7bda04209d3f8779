"""Programs that lose the gradient by `rewrap_tensor`."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, cut, small

# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("rewrap_tensor")
def a_tensor_made_of_losses() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        losses = [model(row).sum() for row in x]
        return torch.tensor(losses).mean()  # CUT

    return model, step


@cut("rewrap_tensor")
def a_float_tensor_made_of_losses() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        losses = [model(row).sum() for row in x]
        return torch.FloatTensor(losses).mean()  # CUT

    return model, step
