import torch
from torch import nn

BELIEVED = {"weight_gets_gradient": True, "weight_moves": True}


def observe():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    loss = model(torch.ones(2, 3)).detach().square().mean()
    loss.requires_grad = True
    loss.backward()
    optimizer.step()
    return {
        "weight_gets_gradient": model.weight.grad is not None,
        "weight_moves": not torch.equal(model.weight, before),
        "loss_gets_gradient": loss.grad.item(),
    }
