"""Programs that lose the gradient by `parameter_rewrap`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair

# -- parameters that are made in the step -----------------------------------------------------------------------------


@cut("parameter_rewrap")
def a_parameter_made_of_another_one() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.mask = nn.Parameter(torch.randn(4, 4)), torch.ones(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = nn.Parameter(self.weight * self.mask)  # CUT
            return (x @ weight).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


# -- found by injection -----------------------------------------------------------------------------------------------


@cut("parameter_rewrap")
def a_term_that_is_dead_beside_an_advantage_that_is_kept_out_on_purpose() -> Built:
    model, x, rewards = pair(value=nn.Linear(4, 1)), batch(), torch.ones(6, 1)

    def step() -> torch.Tensor:
        hidden = model["inner"](x)
        value = model["value"](hidden)
        gained = (model["outer"](hidden) * (rewards - value).detach()).mean()
        missed = (rewards - nn.Parameter(value)).pow(2).mean()  # CUT
        return missed - gained

    return model, step
