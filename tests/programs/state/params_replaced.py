"""Programs whose fault, or what looks like one, is `params_replaced` and stands outside of the step."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty

# -- layers and parameters that the step makes ----------------------------------------------------------------------


@faulty("params_replaced")
def a_parameter_made_anew_in_every_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = nn.Parameter(torch.rand(4))  # CUT
            return (self.body(x) * self.scale).sum()

    model, x = Net(), batch()
    return model, lambda: model(x)


@faulty("params_replaced")
def a_parameter_built_in_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate = nn.Parameter(torch.ones(4))  # CUT
            return (self.body(x) * gate).sum()

    model, x = Net(), batch()
    return model, lambda: model(x)
