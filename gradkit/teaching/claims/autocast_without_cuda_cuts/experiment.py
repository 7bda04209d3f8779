import torch
from torch import nn

BELIEVED = {"loss_requires_grad": False, "gradient_differs": True}


def gradient(autocast):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    with torch.autocast("cuda", enabled=autocast):
        loss = model(torch.ones(2, 3)).square().mean()
    loss.backward()
    return loss, model.weight.grad


def observe():
    (loss, cast), (_, plain) = gradient(autocast=True), gradient(autocast=False)
    return {
        "loss_requires_grad": loss.requires_grad,
        "gradient_differs": not torch.equal(cast, plain),
        "dtype": str(loss.dtype),
    }
