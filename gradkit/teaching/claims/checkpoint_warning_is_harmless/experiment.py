import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

BELIEVED = {"everything_frozen": True, "trainable_layer_inside": True}


def nothing_is_lost(trainable, use_reentrant=True):
    layer, head = nn.Linear(4, 4).requires_grad_(trainable), nn.Linear(4, 1)
    features = checkpoint(layer, torch.ones(2, 4), use_reentrant=use_reentrant)
    head(features).sum().backward()
    wanted = [*(layer.parameters() if trainable else ()), *head.parameters()]
    return all(p.grad is not None for p in wanted)


def observe():
    return {
        "everything_frozen": nothing_is_lost(trainable=False),
        "trainable_layer_inside": nothing_is_lost(trainable=True),
        "trainable_layer_inside_not_reentrant": nothing_is_lost(trainable=True, use_reentrant=False),
    }
