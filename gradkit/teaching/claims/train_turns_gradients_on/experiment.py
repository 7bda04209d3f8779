import torch
from torch import nn

BELIEVED = {"frozen_weight_requires_grad": True, "no_grad_is_lifted": True}


def observe():
    model = nn.Linear(3, 1).requires_grad_(False)
    model.train()
    seen = {"frozen_weight_requires_grad": model.weight.requires_grad}
    model.requires_grad_(True)
    with torch.no_grad():
        model.train()
        seen["no_grad_is_lifted"] = model(torch.ones(2, 3)).requires_grad
    return seen
