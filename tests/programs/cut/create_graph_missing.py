"""Programs that lose the gradient by `create_graph_missing`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, small

# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("create_graph_missing")
def a_gradient_penalty_without_its_own_graph() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (slope,) = torch.autograd.grad(model(x).sum(), x)  # CUT
        return (slope.norm(dim=1) - 1).pow(2).mean()

    model[2] = nn.Linear(8, 1, bias=False)
    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("create_graph_missing")
def a_penalty_that_is_a_constant_beside_the_main_loss() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)  # CUT
        penalty = (slope.norm(dim=1) - 1).pow(2).mean()
        return out.mean() + 10 * penalty

    return model, step
