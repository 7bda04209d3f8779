"""Programs that lose the gradient by `new_leaf`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

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


# -- a copy that is told to require grad on the line that makes it ----------------------------------------------------


@cut("new_leaf")
def a_code_that_is_detached_and_told_to_require_grad() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach().requires_grad_(True)  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("new_leaf")
def a_state_that_is_cloned_and_detached_before_it_requires_grad() -> Built:
    model, x = pair(), batch()

    def fresh(state: torch.Tensor) -> torch.Tensor:
        return state.clone().detach().requires_grad_()  # CUT

    return model, lambda: model["outer"](fresh(model["inner"](x))).pow(2).sum()


@cut("new_leaf")
def a_copy_of_the_data_that_requires_grad() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.tanh(model["inner"](x))
        code = code.data.clone().requires_grad_()  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("new_leaf")
def single_numbers_exported_as_leaves() -> Built:
    class Scene(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.albedo, self.rough = nn.Parameter(torch.tensor(0.2)), nn.Parameter(torch.tensor(0.8))

    def exported(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone().requires_grad_() for name, value in values.items()}  # CUT

    model, x = Scene(), batch()

    def step() -> torch.Tensor:
        found = exported({"albedo": model.albedo.sigmoid(), "rough": model.rough.exp()})
        return (found["albedo"] * x + found["rough"]).pow(2).mean()

    return model, step
