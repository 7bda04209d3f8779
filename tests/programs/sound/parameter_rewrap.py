"""Sound programs that look like `parameter_rewrap` and are not."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- gradients that are exactly zero, and rightly so ------------------------------------------------------------------


@sound
def a_variable_around_the_input() -> Built:
    model, x = small(), batch()
    return model, lambda: model(torch.autograd.Variable(x)).sum()


# -- several workers --------------------------------------------------------------------------------------------------


@sound
def a_batch_that_becomes_a_parameter_in_forward() -> Built:
    class Saliency(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = nn.Parameter(x * 2)
            return self.layer(seen)

    model, x = Saliency(), batch()
    return model, lambda: model(x).sum()
