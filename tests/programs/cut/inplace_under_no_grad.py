"""Programs that lose the gradient by `inplace_under_no_grad`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair

# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("inplace_under_no_grad")
def a_buffer_filled_row_by_row_in_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code, buffer = model["inner"](x), torch.zeros(6, 4)
        with torch.no_grad():
            for i in range(6):
                buffer[i] = code[i]  # CUT
        return model["outer"](buffer).sum()

    return model, step


@cut("inplace_under_no_grad")
def a_view_of_a_buffer_filled_in_a_decorated_function() -> Built:
    model, x = pair(), batch()

    @torch.no_grad()
    def fill(buffer: torch.Tensor, code: torch.Tensor) -> None:
        buffer[:3].copy_(code[:3] * 2)  # CUT
        buffer[3:].add_(code[3:])  # CUT

    def step() -> torch.Tensor:
        buffer = torch.zeros(6, 4)
        fill(buffer, model["inner"](x))
        return model["outer"](buffer).sum()

    return model, step


@cut("inplace_under_no_grad")
def a_result_put_into_an_existing_tensor() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code, total = model["inner"](x), torch.empty(6, 4)
        with torch.no_grad():
            torch.add(code, x, out=total)  # CUT
        return model["outer"](total).sum()

    return model, step


@cut("inplace_under_no_grad")
def generated_weights_copied_into_a_layer() -> Built:
    model, x = pair(maker=nn.Linear(4, 16)), batch()
    model["inner"].weight.requires_grad_(False)

    def step() -> torch.Tensor:
        made = model["maker"](x.mean(0)).view(4, 4)
        with torch.no_grad():
            model["inner"].weight.copy_(made)  # CUT
        return model["outer"](model["inner"](x)).sum()

    return model, step
