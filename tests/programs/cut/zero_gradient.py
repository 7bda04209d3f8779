"""Programs that lose the gradient by `zero_gradient`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

# -- a gradient that is exactly zero ----------------------------------------------------------------------------------


@cut("zero_gradient")
def a_rounded_activation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.round(model["inner"](x) * 8) / 8  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def a_division_that_rounds_down() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.div(model["inner"](x), 0.1, rounding_mode="floor")  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def a_draw_from_a_normal_distribution() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.normal(model["inner"](x), 0.1)  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def a_grid_that_is_sampled_at_the_nearest_pixel() -> Built:
    model = nn.ModuleDict({"theta": nn.Linear(4, 6), "colour": nn.Conv2d(1, 1, 1)})
    x, image = batch(), torch.rand(6, 1, 5, 5)

    def step() -> torch.Tensor:
        grid = F.affine_grid(model["theta"](x).view(6, 2, 3), [6, 1, 5, 5], align_corners=False)
        warped = F.grid_sample(model["colour"](image), grid, mode="nearest", align_corners=False)  # CUT
        return warped.sub(image).square().mean()

    return model, step


@cut("zero_gradient")
def the_sign_of_a_copysign() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.copysign(torch.ones(6, 4), model["inner"](x))  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def two_operations_with_zero_derivative_one_behind_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).sign()  # CUT
        return model["outer"](code).floor().pow(2).sum()  # CUT

    return model, step


@cut("zero_gradient")
def a_bernoulli_draw_with_probabilities_in_place() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.empty(6, 4).bernoulli_(torch.sigmoid(model["inner"](x)))  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def an_activation_overwritten_with_zeros() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x) * 2
        code.zero_()  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def cross_entropy_over_one_class() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), torch.zeros(6, dtype=torch.long))  # CUT

    return model, step


@cut("zero_gradient")
def a_softmax_over_the_wrong_dimension() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        chance = torch.softmax(model(x), dim=1)  # CUT
        return (chance - torch.rand(6, 1)).pow(2).mean()

    return model, step


@cut("zero_gradient")
def an_adapter_whose_scale_became_zero_by_integer_division() -> Built:
    model, x = pair(), batch()
    model["outer"].requires_grad_(False)
    scale = 8 // 16

    def step() -> torch.Tensor:
        code = x + model["inner"](x) * scale  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def every_label_taken_out_of_the_loss() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 5)), batch()
    labels = torch.arange(6) % 5
    labels[: len(x)] = -7  # CUT

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), labels, ignore_index=-7)

    return model, step


@cut("zero_gradient")
def the_mean_of_an_empty_selection() -> Built:
    model, x = small(), batch()
    wanted = torch.zeros(6, dtype=torch.bool)

    def step() -> torch.Tensor:
        return model(x)[wanted].pow(2).mean()  # CUT

    return model, step


@cut("zero_gradient")
def a_softmax_sharpened_until_one_place_takes_all() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 5)), batch()

    def step() -> torch.Tensor:
        place = torch.softmax(1e5 * model(x), dim=-1)  # CUT
        return F.smooth_l1_loss(place @ torch.arange(5.0), torch.rand(6))

    return model, step


# -- a draw, while all that would teach what it is drawn from is weighed by 0 -----------------------------------------


@cut("zero_gradient")
def a_normal_draw_beside_a_penalty_that_is_switched_off() -> Built:
    model, x, beta = pair(), batch(), 0.0

    def step() -> torch.Tensor:
        mean = model["inner"](x)
        code = torch.normal(mean, torch.ones_like(mean))  # CUT
        return model["outer"](code).pow(2).mean() + beta * mean.pow(2).mean()

    return model, step


@cut("zero_gradient")
def drawn_gates_beside_a_sparsity_that_is_switched_off() -> Built:
    model, x = nn.ModuleDict({"gates": nn.Linear(4, 4), "outer": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        chance = torch.sigmoid(model["gates"](x))
        kept = torch.bernoulli(chance) * x  # CUT
        return model["outer"](kept).pow(2).mean() + 0.0 * chance.sum()

    return model, step
