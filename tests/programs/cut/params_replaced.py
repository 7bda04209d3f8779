"""Programs that lose the gradient by `params_replaced`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut

# -- parameters that are made in the step -----------------------------------------------------------------------------


@cut("params_replaced")
def a_head_that_grows_from_itself_in_every_step() -> Built:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fresh = torch.randn(0, 4)
            self.weight = nn.Parameter(torch.cat([self.weight.data, fresh]))  # CUT
            return x @ self.weight.t()

    model, x = nn.Sequential(nn.Linear(4, 4), Head()), batch()
    return model, lambda: model(x).pow(2).sum()


@cut("params_replaced")
def a_parameter_built_in_a_function_that_forward_calls() -> Built:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        gain = nn.Parameter(torch.ones(4))  # CUT
        return x * gain

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(scaled(x)).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)
