"""Programs that lose the gradient by `integer_cast`."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, cut, pair

# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("integer_cast")
def a_cast_to_int8() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = (model["inner"](x) * 127).to(torch.int8)  # CUT
        return model["outer"](code.to(torch.float32) / 127).sum()

    return model, step


# -- the loss itself --------------------------------------------------------------------------------------------------


@cut(
    "integer_cast",
    short="two cuts on the way of the critic cost more than the detach() of the advantage, which is meant",
)
def a_critic_behind_two_cuts_beside_an_advantage_that_is_detached_on_purpose() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        value = model["inner"](x)
        advantage = (1 - value).detach()
        policy = -(model["outer"](x).log_softmax(-1) * advantage[:, :1]).mean()
        rounded = (value * 100).round().int() / 100  # CUT
        back = torch.from_numpy(rounded.numpy())  # CUT
        return policy + (1 - back).square().mean()

    return model, step
