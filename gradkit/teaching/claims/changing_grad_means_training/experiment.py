import torch
from torch import nn

BELIEVED = {"head_moves": True}


def observe():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(3, 2)
    before, gradients = model[1].weight.detach().clone(), []
    for _ in range(2):
        model.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        gradients.append(model[1].weight.grad.clone())
        optimizer.step()
    return {
        "gradient_changes": not torch.equal(*gradients),
        "head_moves": not torch.equal(model[1].weight, before),
    }
