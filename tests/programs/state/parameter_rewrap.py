"""Programs whose fault, or what looks like one, is `parameter_rewrap` and stands outside of the step."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, pair

# -- layers and parameters that the step makes ----------------------------------------------------------------------


@faulty("parameter_rewrap")
def weights_wrapped_in_a_parameter_by_a_hypernetwork() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        layer = nn.Linear(4, 4, bias=False)
        layer.weight = nn.Parameter(model["inner"](x)[:4])  # CUT
        return model["outer"](layer(x)).sum()

    return model, step
