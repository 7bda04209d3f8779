"""Programs that lose the gradient by `grad_disabled_globally`."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, cut, pair

# -- grad mode --------------------------------------------------------------------------------------------------------


@cut("grad_disabled_globally")
def set_grad_enabled_called_in_a_helper() -> Built:
    model, x = pair(), batch()

    def quieten() -> None:
        torch.set_grad_enabled(False)  # CUT

    def step() -> torch.Tensor:
        quieten()
        code = model["inner"](x)
        torch.set_grad_enabled(True)
        return model["outer"](code).sum()

    return model, step
