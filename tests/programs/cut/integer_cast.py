"""Programs that lose the gradient by `integer_cast`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair

# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("integer_cast")
def a_cast_to_int8() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = (model["inner"](x) * 127).to(torch.int8)  # CUT
        return model["outer"](code.to(torch.float32) / 127).sum()

    return model, step


@cut("integer_cast")
def integers_with_a_scale_that_their_function_gives_no_gradient_for() -> Built:
    class ToInt8(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scale = x.abs().max() / 127
            ctx.save_for_backward(scale)
            return (x / scale).round().to(torch.int8), scale  # CUT

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            (scale,) = ctx.saved_tensors
            return grads[0].float() / scale

    class FromInt8(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, code: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(scale)
            return code.float() * scale

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
            (scale,) = ctx.saved_tensors
            return grads[0] * scale, None

    model, x = pair(), batch()
    return model, lambda: model["outer"](FromInt8.apply(*ToInt8.apply(model["inner"](x)))).square().sum()


@cut("integer_cast")
def a_function_with_a_backward_of_its_own_that_hands_out_bools() -> Built:
    class Bits(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return (x.sign() + 1).bool()  # CUT

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0]

    model, x = pair(), batch()
    return model, lambda: model["outer"](Bits.apply(model["inner"](x)).float()).square().sum()


# -- the loss itself --------------------------------------------------------------------------------------------------


@cut(
    "integer_cast",
    short="two cuts on the way of the critic cost more than the detach() of the advantage, which is meant",
)
def a_critic_behind_two_cuts_beside_an_advantage_that_is_detached_on_purpose() -> Built:
    model, x = pair(outer=nn.Linear(4, 2)), batch()

    def step() -> torch.Tensor:
        value = model["inner"](x)
        advantage = (1 - value).detach()
        policy = -(model["outer"](x).log_softmax(-1) * advantage[:, :1]).mean()
        rounded = (value * 100).round().int() / 100  # CUT
        back = torch.from_numpy(rounded.numpy())  # CUT
        return policy + (1 - back).square().mean()

    return model, step
