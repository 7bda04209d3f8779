"""Programs that lose the gradient by `inplace_modified`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("inplace_modified")
def an_activation_that_is_scaled_in_place() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        hidden = torch.sigmoid(model["inner"](x))
        hidden *= 2  # CUT
        return model["outer"](hidden).sum()

    return model, step


@cut("inplace_modified")
def a_sparse_matrix_that_is_added_to_after_its_use() -> Built:
    model, x = small(), batch()
    edges, loops = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 1, 2], [0, 1, 2]])

    def step() -> torch.Tensor:
        weights = model(x).flatten()[:3]
        graph = torch.sparse_coo_tensor(edges, weights, (3, 3), check_invariants=False)
        spread = torch.sparse.mm(graph, x[:3])
        loops_of = torch.sparse_coo_tensor(loops, torch.ones(3), (3, 3), check_invariants=False)
        graph += loops_of  # CUT
        return spread.sum()

    return model, step


@cut("inplace_modified")
def a_sparse_product_whose_factor_is_scaled_in_a_loop() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        gates = model(x).sigmoid().to_sparse()
        squares = gates * gates
        for _ in range(2):
            gates.mul_(0.5)  # CUT
        return torch.sparse.sum(squares)

    return model, step


@cut("inplace_modified")
def a_mask_written_into_saved_scores() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        scores = model["inner"](x).softmax(-1)
        scores[:, 0] = 0.0  # CUT
        return model["outer"](scores).sum()

    return model, step


@cut("inplace_modified")
def weights_that_an_inner_optimizer_moves() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)

    def step() -> torch.Tensor:
        first = model["outer"](model["inner"](x)).pow(2).mean()
        critic = model["outer"](x).pow(2).mean()
        critic.backward()
        optimizer.step()  # CUT
        return first

    return model, step


@cut("inplace_modified")
def a_buffer_that_is_updated_after_it_was_used() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.layer(x) * self.scale
            with torch.no_grad():
                self.scale.mul_(0.9)  # CUT
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("inplace_modified")
def a_parameter_that_is_written_without_no_grad() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model[0].weight.clamp_(-1, 1)  # CUT
        return model(x).sum()

    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("inplace_modified")
def a_relu_in_place_after_a_sigmoid() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        hidden = torch.sigmoid(model["inner"](x))
        return model["outer"](F.relu(hidden, inplace=True) + hidden).sum()  # CUT

    return model, step


@cut("inplace_modified")
def states_of_a_loop_written_into_one_tensor() -> Built:
    model, x = nn.ModuleDict({"cell": nn.Linear(4, 4), "out": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        states = torch.zeros(5, 6, 4)
        states[0] = model["cell"](x)
        for i in range(1, 5):
            states[i] = torch.tanh(model["cell"](states[i - 1]))  # CUT
        return model["out"](states[-1]).sum()

    return model, step


@cut("inplace_modified")
def noise_added_to_a_view_of_a_chunk() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        left, right = model["inner"](x).chunk(2, -1)
        left += torch.randn(6, 2)  # CUT
        return model["outer"](torch.cat([left, right], -1)).sum()

    return model, step


class _Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * y


@cut("inplace_modified")
def what_a_custom_function_has_saved_is_overwritten() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        y = _Exponential.apply(model(x))
        y.mul_(2)  # CUT
        return y.sum()

    return model, step
