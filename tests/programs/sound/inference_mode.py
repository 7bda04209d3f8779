"""Sound programs that look like `inference_mode` and are not."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def a_frozen_encoder_in_inference_mode_whose_output_is_cloned() -> Built:
    model, x = nn.ModuleDict({"encoder": small().requires_grad_(False), "head": nn.Linear(1, 1)}), batch()

    def step() -> torch.Tensor:
        with torch.inference_mode():
            code = model["encoder"](x)
        return model["head"](code.clone()).sum()

    return model, step
