import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

BELIEVED = {"weight_inside_is_recorded_by_default": True}


def observe():
    layer, batch = nn.Linear(4, 1), torch.ones(2, 4)
    return {
        "weight_inside_is_recorded_by_default": checkpoint(layer, batch).requires_grad,
        "with_use_reentrant_False": checkpoint(layer, batch, use_reentrant=False).requires_grad,
    }
