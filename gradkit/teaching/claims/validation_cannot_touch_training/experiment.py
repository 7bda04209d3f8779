import torch
from torch import nn

BELIEVED = {"projection_gets_gradient_after_validation": True}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.cache = {}

    def forward(self, name, batch):
        if name not in self.cache:
            self.cache[name] = self.projection(batch)
        return self.head(self.cache[name])


def gets_gradient(validate_first):
    model, batch = Model(), torch.ones(2, 4)
    if validate_first:
        with torch.no_grad():
            model("sample 7", batch)
    model("sample 7", batch).sum().backward()
    return model.projection.weight.grad is not None


def observe():
    return {
        "projection_gets_gradient": gets_gradient(validate_first=False),
        "projection_gets_gradient_after_validation": gets_gradient(validate_first=True),
    }
