"""Sound programs that look like `inplace_under_no_grad` and are not."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F

from tests.programs.shared import Built, batch, small, sound

# -- parameters that are made in the step -----------------------------------------------------------------------------


@sound
def a_moving_average_copied_in_the_step() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        teacher = copy.deepcopy(model).requires_grad_(False)
        return F.mse_loss(model(x), teacher(x) + 1)

    return model, step
