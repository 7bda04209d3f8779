"""Sound programs that look like `integer_cast` and are not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.programs.shared import LABELS, Built, batch, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def gather_with_class_labels() -> Built:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
    return model, lambda: -model(LABELS).log_softmax(-1).gather(1, LABELS[:, None]).mean()


class CodesAndIndices(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, book: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        where = torch.cdist(z, book).argmin(1).to(torch.int32)
        ctx.mark_non_differentiable(where)
        return book[where.long()], where

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


@sound
def a_function_that_hands_out_indices_beside_its_codes() -> Built:
    model, x, book = nn.ModuleDict({"inner": nn.Linear(4, 3), "outer": nn.Linear(3, 1)}), batch(), torch.randn(5, 3)
    weight = torch.rand(5)

    def step() -> torch.Tensor:
        codes, where = CodesAndIndices.apply(model["inner"](x), book)
        return (model["outer"](codes)[:, 0] * weight[where.long()]).square().sum()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_frozen_encoder_quantised_to_int8() -> Built:
    encoder = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    model, x = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(4, 1)}), batch()
    return model, lambda: model["head"](model["encoder"](x)).sum()
