import torch
from torch import nn

BELIEVED = {"layer_gets_gradient_after_detach": True}


def trained(cure):
    layer, head = nn.Linear(3, 3), nn.Linear(3, 1)
    value = cure(layer(torch.ones(2, 3)).exp())
    value += 1
    try:
        head(value).sum().backward()
    except RuntimeError:
        return False
    return layer.weight.grad is not None


def observe():
    return {
        "layer_gets_gradient": trained(lambda value: value),
        "layer_gets_gradient_after_detach": trained(lambda value: value.detach()),
        "layer_gets_gradient_after_clone": trained(lambda value: value.clone()),
    }
