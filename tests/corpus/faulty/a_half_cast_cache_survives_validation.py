import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "hand-made mixed precision: weights cast during validation stay in the cast cache and are reused in training"
SOURCE = "NVIDIA/apex#132 (pull request; same mechanism as pytorch/pytorch#112583)"
ERROR = ""
CAUSE = "cached_tensor"
SHOULD_TRAIN = ["fc1.weight", "fc2.weight"]


class CastCache:
    def __init__(self):
        self.store = {}

    def __call__(self, p):
        if id(p) not in self.store:
            self.store[id(p)] = p.to(torch.bfloat16)
        return self.store[id(p)]  # CUT


class FixedCastCache(CastCache):
    def __call__(self, p):
        hit = self.store.get(id(p))
        if hit is None or (torch.is_grad_enabled() and p.requires_grad and not hit.requires_grad):
            self.store[id(p)] = p.to(torch.bfloat16)
        return self.store[id(p)]


class Net(nn.Module):
    def __init__(self, cast):
        super().__init__()
        self.fc1, self.fc2, self.norm, self.cast = nn.Linear(6, 8), nn.Linear(8, 3), nn.LayerNorm(3), cast

    def lin(self, layer, x):
        return F.linear(x.to(torch.bfloat16), self.cast(layer.weight), self.cast(layer.bias)).float()

    def forward(self, x):
        return self.norm(self.lin(self.fc2, torch.relu(self.lin(self.fc1, x))))


def _program(cache_class):
    torch.manual_seed(0)
    model, x, y = Net(cache_class()), torch.randn(5, 6), torch.randint(0, 3, (5,))
    with torch.no_grad():
        model(x)
    return model, lambda: F.cross_entropy(model(x), y)


def make():
    return _program(CastCache)


def make_fixed():
    return _program(FixedCastCache)
