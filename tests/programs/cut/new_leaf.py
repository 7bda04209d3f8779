"""Programs that lose the gradient by `new_leaf`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.programs.shared import Built, batch, cut, small

# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("new_leaf")
def a_loss_that_is_made_anew() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        return torch.tensor(loss, requires_grad=True)  # CUT

    return model, step


@cut("new_leaf")
def a_variable_made_of_data() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        return torch.autograd.Variable(loss.data, requires_grad=True)  # CUT

    return model, step


# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("new_leaf")
def a_number_made_a_leaf() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        return torch.tensor(loss.item(), requires_grad=True)  # CUT

    return model, step
