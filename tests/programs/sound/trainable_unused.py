"""Sound programs that look like `trainable_unused` and are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import LABELS, Built, _one_worker, batch, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def weights_tied_to_an_embedding() -> Built:
    model = nn.Module()
    model.embed, model.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    model.head.weight = model.embed.weight
    return model, lambda: model.head(model.embed(LABELS)).logsumexp(-1).sum()


@sound
def an_adapter_whose_weight_is_the_merged_one() -> Built:
    class Merged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, 4, bias=False).requires_grad_(False)
            self.down, self.up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 2))

        @property
        def weight(self) -> torch.Tensor:
            return self.base.weight + self.up @ self.down

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.weight)

    model, x = Merged(), batch()
    return model, lambda: F.linear(x, model.weight).pow(2).sum()


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_model_in_distributed_data_parallel() -> Built:
    _one_worker()
    model, x = nn.parallel.DistributedDataParallel(small()), batch()
    return model, lambda: model(x).sum()
