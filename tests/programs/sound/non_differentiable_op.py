"""Sound programs that look like `non_differentiable_op` and are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, pair, small, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def masks_from_the_output_itself() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        out = model(x)
        positive = out > 0
        return torch.where(positive, out, out * 0.1).sum() + out[positive].sum() + out.masked_fill(positive, 0).sum()

    return model, step


# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def hard_gumbel_softmax() -> Built:
    model, x = pair(), batch()
    return model, lambda: model["outer"](F.gumbel_softmax(model["inner"](x), hard=True)).sum()


# -- gradients that are exactly zero, and rightly so ------------------------------------------------------------------


@sound
def rounding_with_a_straight_through_estimate() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        return model["outer"](code + (code.round() - code).detach()).pow(2).mean()

    return model, step


@sound
def a_drawn_action_with_its_log_probability() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        chance = torch.sigmoid(model(x))
        action = torch.bernoulli(chance)
        reward = action.sum()
        return -(torch.distributions.Bernoulli(chance).log_prob(action) * reward).mean()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def weights_rounded_by_fake_quantisation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        weight = torch.fake_quantize_per_tensor_affine(model["inner"].weight, 0.05, 0, -128, 127)
        return model["outer"](F.linear(x, weight, model["inner"].bias)).sum()

    return model, step


# -- weights of what was chosen ---------------------------------------------------------------------------------------


@sound
def experts_weighed_by_their_scores_in_the_places_of_the_chosen() -> Built:
    model = nn.ModuleDict({"router": nn.Linear(4, 3), "experts": nn.ModuleList(nn.Linear(4, 2) for _ in range(3))})
    x = batch()

    def step() -> torch.Tensor:
        scores = model["router"](x).softmax(-1)
        values, chosen = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(1, chosen, values)
        outputs = torch.stack([expert(x) for expert in model["experts"]], 1)
        return torch.einsum("be,bed->bd", weights, outputs).pow(2).mean()

    return model, step


@sound
def experts_weighed_by_a_choice_that_hands_the_gradient_straight_through() -> Built:
    model = nn.ModuleDict({"router": nn.Linear(4, 3), "experts": nn.ModuleList(nn.Linear(4, 2) for _ in range(3))})
    x = batch()

    def step() -> torch.Tensor:
        scores = model["router"](x).softmax(-1)
        weights = F.one_hot(scores.argmax(-1), 3).float() + scores - scores.detach()
        return sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(model["experts"])).pow(2).mean()

    return model, step


@sound
def a_sample_that_is_scored_by_a_term_of_weight_zero() -> Built:
    model, x = pair(value=nn.Linear(5, 1)), batch()

    def step() -> torch.Tensor:
        policy = torch.distributions.Normal(model["inner"](x), 1.0)
        action = policy.sample()
        value = model["value"](torch.cat([action, model["outer"](x)], dim=1))
        return (value - 1).pow(2).mean() - 0.0 * policy.log_prob(action).mean()

    return model, step


@sound
def a_normal_draw_that_is_scored_by_a_term_of_weight_zero() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        mean = model["inner"](x)
        action = torch.normal(mean, torch.ones_like(mean))
        return model["outer"](action).pow(2).mean() + 0.0 * (action.detach() - mean).pow(2).mean()

    return model, step
