"""Sound programs that look like `zero_gradient` and are not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, pair, small, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def a_zero_weighted_term_that_touches_every_parameter() -> Built:
    model, x = nn.ModuleDict({"a": small(), "b": small()}), batch()
    return model, lambda: model["a"](x).sum() + 0.0 * sum(p.sum() for p in model["b"].parameters())


@sound
def a_grid_that_is_sampled_at_the_nearest_pixel_and_between_pixels() -> Built:
    model = nn.ModuleDict({"theta": nn.Linear(4, 6), "colour": nn.Conv2d(1, 1, 1)})
    x, image = batch(), torch.rand(6, 1, 5, 5)

    def step() -> torch.Tensor:
        grid = F.affine_grid(model["theta"](x).view(6, 2, 3), [6, 1, 5, 5], align_corners=False)
        near = F.grid_sample(model["colour"](image), grid, mode="nearest", align_corners=False)
        return (near + F.grid_sample(image, grid, align_corners=False)).square().mean()

    return model, step


@sound
def what_is_sampled_at_the_nearest_pixel_made_the_grid_as_well() -> Built:
    model, x = nn.ModuleDict({"field": nn.Linear(4, 18)}), batch()

    def step() -> torch.Tensor:
        field = torch.tanh(model["field"](x)).view(6, 3, 3, 2)
        return F.grid_sample(field.permute(0, 3, 1, 2), field, mode="nearest", align_corners=False).square().mean()

    return model, step


# -- gradients that are exactly zero, and rightly so ------------------------------------------------------------------


@sound
def a_low_rank_adapter_that_starts_at_zero() -> Built:
    model, x = pair(down=nn.Linear(4, 2, bias=False), up=nn.Linear(2, 4, bias=False)), batch()
    nn.init.zeros_(model["up"].weight)
    model["inner"].requires_grad_(False)
    model["outer"].requires_grad_(False)
    return model, lambda: model["outer"](model["inner"](x) + model["up"](model["down"](x))).pow(2).mean()


@sound
def a_residual_branch_whose_gate_starts_at_zero() -> Built:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch, self.gate = nn.Linear(4, 4), nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.gate * self.branch(x)

    model, x = Gated(), batch()
    return model, lambda: (model(x) - torch.floor(model(x))).pow(2).mean()


@sound
def the_fractional_part_of_an_activation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x) * 3
        return model["outer"](code - torch.floor(code)).pow(2).mean()

    return model, step


@sound
def a_hinge_loss_that_is_satisfied() -> Built:
    model, x = small(), batch()
    return model, lambda: F.relu(-5 - model(x).tanh()).mean()


@sound
def units_that_are_all_switched_off() -> Built:
    model, x = pair(), batch()
    nn.init.constant_(model["inner"].bias, -50.0)
    return model, lambda: model["outer"](F.relu(model["inner"](x))).pow(2).mean()


@sound
def a_loss_of_zero_times_the_output_where_nothing_counts() -> Built:
    model, x = small(), batch()
    return model, lambda: 0.0 * model(x).sum()


@sound
def a_mask_that_is_all_zero_with_a_divisor_that_is_kept_from_zero() -> Built:
    model, x = small(), batch()
    mask = torch.zeros(6, 1)
    return model, lambda: (model(x).pow(2) * mask).sum() / mask.sum().clamp(min=1)


@sound
def a_batch_in_which_every_label_is_ignored_and_nothing_is_divided() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 5)), batch()
    labels = torch.full((6,), -100)
    return model, lambda: F.cross_entropy(model(x), labels, reduction="sum") / (labels != -100).sum().clamp(min=1)


@sound
def a_branch_dropped_as_a_whole() -> Built:
    model, x = pair(), batch()
    keep = torch.bernoulli(torch.zeros(6, 1))
    return model, lambda: model["outer"](x + model["inner"](x) * keep).pow(2).mean()


@sound
def a_new_layer_that_is_faded_in_from_zero() -> Built:
    model, x = pair(), batch()
    alpha = 0.0
    return model, lambda: model["outer"](alpha * model["inner"](x) + (1 - alpha) * x).pow(2).mean()


@sound
def attention_over_a_single_key() -> Built:
    model, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(3, 1, 4)
    return model, lambda: model(x, x, x, need_weights=False)[0].pow(2).mean()


@sound
def a_loss_that_is_zero_already() -> Built:
    model, x = small(), batch()
    aim = model(x).detach()
    return model, lambda: F.mse_loss(model(x), aim)


# -- several workers --------------------------------------------------------------------------------------------------


@sound
def a_straight_through_function_that_is_saturated_on_this_batch() -> Built:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < 1)

    model, x = pair(), batch() * 1e4
    return model, lambda: model["outer"](Clipped.apply(model["inner"](x) + 1e6)).sum()
