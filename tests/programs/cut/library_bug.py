"""Programs that lose the gradient by `library_bug`."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, cut, pair, small

# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("library_bug")
def a_second_derivative_of_what_is_linear() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (first,) = torch.autograd.grad((3 * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)  # CUT
        return (model(x) * second).sum()

    return model, step


@cut("library_bug")
def a_second_derivative_of_a_linear_layer() -> Built:
    model, x = pair(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (first,) = torch.autograd.grad(model["inner"](x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)  # CUT
        return (model["outer"](x) * second).sum()

    return model, step
