import torch
from torch import nn

BELIEVED = {"head_trains_on_inference_features": True}


def head_trains(switch):
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 1)
    with switch():
        features = encoder(torch.ones(2, 4))
    try:
        head(features).sum().backward()
    except RuntimeError:
        return False
    return head.weight.grad is not None


def observe():
    return {
        "head_trains_on_no_grad_features": head_trains(torch.no_grad),
        "head_trains_on_inference_features": head_trains(torch.inference_mode),
    }
