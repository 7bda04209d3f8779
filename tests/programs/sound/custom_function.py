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
