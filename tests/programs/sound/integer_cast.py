"""Sound programs that look like `integer_cast` and are not."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import LABELS, Built, batch, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def gather_with_class_labels() -> Built:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
    return model, lambda: -model(LABELS).log_softmax(-1).gather(1, LABELS[:, None]).mean()


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_frozen_encoder_quantised_to_int8() -> Built:
    encoder = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    model, x = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(4, 1)}), batch()
    return model, lambda: model["head"](model["encoder"](x)).sum()
