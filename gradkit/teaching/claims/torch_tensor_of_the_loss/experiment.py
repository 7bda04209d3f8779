import torch
from torch import nn

BELIEVED = {"weight_gets_gradient": True}


def observe():
    model = nn.Linear(3, 1)
    loss = model(torch.ones(2, 3)).square().mean()
    wrapped = torch.tensor(loss.item(), requires_grad=True)
    wrapped.backward()
    return {
        "weight_gets_gradient": model.weight.grad is not None,
        "loss_has_grad_fn": loss.grad_fn is not None,
        "wrapped_loss_has_grad_fn": wrapped.grad_fn is not None,
    }
