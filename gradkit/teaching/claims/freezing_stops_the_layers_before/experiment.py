import torch
from torch import nn

BELIEVED = {"first_layer_gets_gradient": False}


def observe():
    torch.manual_seed(0)
    first, middle, last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
    middle.requires_grad_(False)
    last(middle(first(torch.randn(3, 4)))).sum().backward()
    return {
        "first_layer_gets_gradient": bool(first.weight.grad.abs().sum() > 0),
        "middle_layer_gets_gradient": middle.weight.grad is not None,
        "last_layer_gets_gradient": bool(last.weight.grad.abs().sum() > 0),
    }
