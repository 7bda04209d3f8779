"""Sound programs that look like `non_differentiable_op` and are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F

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
