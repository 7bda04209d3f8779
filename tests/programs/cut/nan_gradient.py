"""Programs that lose the gradient by `nan_gradient`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("nan_gradient")
def a_row_of_a_softmax_that_is_masked_whole_and_left_out_of_the_loss() -> Built:
    model, x = pair(), batch()
    kept = torch.arange(len(x)) > 0

    def step() -> torch.Tensor:
        scores = model["inner"](x).masked_fill(~kept[:, None], float("-inf"))  # CUT
        attention = scores.softmax(-1)
        losses = model["outer"](attention).square().sum(-1)
        return torch.where(kept, losses, torch.zeros_like(losses)).sum()

    return model, step


@cut("nan_gradient")
def a_square_root_at_zero() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        difference = model(x) - model(x)
        return difference.pow(2).sum().sqrt()  # CUT

    return model, step


@cut("nan_gradient")
def a_square_root_in_a_criterion_that_holds_a_buffer() -> Built:
    class Bending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            cosine = (x - x).cos()
            limited = cosine.clamp(-2, 2)
            return (1 - limited).sqrt().mean()  # CUT

    model, x, bending = small(), batch(), Bending()
    return model, lambda: bending(model(x))
