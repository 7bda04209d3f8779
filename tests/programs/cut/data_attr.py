"""Programs that lose the gradient by `data_attr`."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, Marked, batch, cut, pair, small

# -- detach and .data -------------------------------------------------------------------------------------------------


@cut("data_attr")
def three_cuts_each_behind_a_layer() -> Built:
    model, x = pair(second=nn.Linear(4, 4), third=nn.Linear(4, 4)), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        code = model["second"](code).data  # CUT
        code = torch.tensor(model["third"](code).tolist())  # CUT
        return model["outer"](code).sum()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@cut("data_attr")
def weights_quantised_through_data() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        weight = torch.fake_quantize_per_tensor_affine(model["inner"].weight.data, 0.05, 0, -128, 127)  # CUT
        return model["outer"](F.linear(x, weight, model["inner"].bias)).sum()

    return model, step


@cut("data_attr")
def a_tensor_of_a_subclass_read_through_data() -> Built:
    model, x = pair(), batch().as_subclass(Marked)
    return model, lambda: model["outer"](model["inner"](x).data).sum()  # CUT


# -- parameters that are made in the step -----------------------------------------------------------------------------


@cut("data_attr")
def a_copy_of_the_model_in_the_step() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        adapted = copy.deepcopy(model)  # CUT
        return adapted(x).sum()

    return model, step


# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("data_attr")
def an_inner_step_that_writes_the_data_of_a_copy() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        fast = copy.deepcopy(model)  # CUT
        loss = fast(x).pow(2).mean()
        grads = torch.autograd.grad(loss, list(fast.parameters()), create_graph=True)
        for weight, grad in zip(fast.parameters(), grads, strict=True):
            weight.data = weight.data - 0.1 * grad  # CUT
        return fast(x + 1).pow(2).mean()

    return model, step


@cut("data_attr")
def a_state_moved_through_its_data() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        state = torch.zeros(6, 4)
        state.data.add_(model["inner"](x))  # CUT
        return model["outer"](state).sum()

    return model, step


@cut("data_attr")
def a_value_that_was_looked_at_before_it_required_grad_and_is_cut_off_later() -> Built:
    model, places = small(), batch()

    def step() -> torch.Tensor:
        at = places.clone()
        at.mean()
        at.requires_grad_()
        energy = model(at.data).sum()  # CUT
        return torch.autograd.grad(energy, at, create_graph=True)[0].square().mean()

    return model, step
