import torch
from torch import nn

BELIEVED = {
    "frozen_part_stands_still": True,
    "last_layer_gets_gradient": True,
    "first_layer_gets_gradient": True,
}


def observe():
    first, middle, last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
    hidden = first(torch.ones(3, 4))
    with torch.no_grad():
        hidden = middle(hidden)
    last(hidden).sum().backward()
    return {
        "frozen_part_stands_still": middle.weight.grad is None,
        "last_layer_gets_gradient": last.weight.grad is not None,
        "first_layer_gets_gradient": first.weight.grad is not None,
    }
