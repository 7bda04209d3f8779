"""Sound programs that look like `custom_function` and are not."""

from __future__ import annotations

from typing import Any

import torch

from tests.programs.shared import Built, batch, small, sound

# -- what wraps a step ------------------------------------------------------------------------------------------------


class Square(torch.autograd.Function):
    """Its forward detaches, and goes through numbers and NumPy: its backward makes up for that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        one = torch.from_numpy(x.detach().numpy() ** 2)
        return torch.tensor([value.item() for value in one.flatten()]).view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


@sound
def a_custom_function_with_its_own_backward() -> Built:
    model, x = small(), batch()
    return model, lambda: Square.apply(model(x)).sum()


class Gains(torch.autograd.Function):
    """Handed each gain, and the whole list once more; what is switched off in it is off anyway."""

    @staticmethod
    @torch.no_grad()
    def forward(ctx: Any, x: torch.Tensor, together: list[torch.Tensor], *gains: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, *gains)
        with torch.no_grad():
            return x * sum(together)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, *gains = ctx.saved_tensors
        return grads[0] * sum(gains), None, *[(grads[0] * x).sum() for _ in gains]


@sound
def a_function_that_is_handed_each_gain_beside_their_list() -> Built:
    model, x = small(), batch()
    gains = [torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.ones(()))]
    for at, gain in enumerate(gains):
        model.register_parameter(f"gain{at}", gain)
    return model, lambda: Gains.apply(model(x), gains, *gains).sum()


@sound
def a_function_that_is_handed_fixed_tensors_in_a_list() -> Built:
    model, x, fixed = small(), batch(), [torch.ones(1), torch.ones(1)]

    class Fixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, by: list[torch.Tensor]) -> torch.Tensor:
            ctx.by = sum(by)
            with torch.no_grad():
                return x * ctx.by

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return grads[0] * ctx.by, None

    return model, lambda: Fixed.apply(model(x), fixed).sum()
