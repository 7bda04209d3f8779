"""Programs that lose the gradient by `built_in_forward`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut

# -- parameters that are made in the step -----------------------------------------------------------------------------


@cut("built_in_forward")
def a_layer_built_in_forward() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            code = nn.Linear(4, 4)(x)  # CUT
            return self.out(code.tanh()).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)
