"""Programs that lose the gradient by `constant_loss`."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, cut, small

# -- not connected at all ---------------------------------------------------------------------------------------------


@cut("constant_loss")
def a_loss_of_zero() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model(x)
        return torch.zeros(())  # CUT

    return model, step


@cut("constant_loss")
def a_total_to_which_nothing_was_added() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = torch.tensor(0.0)  # CUT
        for row in x[:0]:
            total = total + model(row).sum()
        return total / 6

    return model, step
