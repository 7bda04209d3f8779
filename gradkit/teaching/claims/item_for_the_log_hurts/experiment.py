import torch
from torch import nn

BELIEVED = {"gradient_is_lost": True, "gradient_changes": True}


def gradient(log):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    loss = model(torch.ones(2, 3)).square().mean()
    if log:
        loss.item()
    loss.backward()
    return model.weight.grad


def observe():
    logged, plain = gradient(log=True), gradient(log=False)
    return {"gradient_is_lost": logged is None, "gradient_changes": not torch.equal(logged, plain)}
