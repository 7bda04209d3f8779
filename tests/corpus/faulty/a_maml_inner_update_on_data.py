import copy

import torch
import torch.nn as nn
from torch.func import functional_call

TITLE = "MAML: the inner step writes param.data of a deep copy, so the meta-loss never reaches the meta-weights"
SOURCE = "KanishJebaMathewM/Truxify#13118"
ERROR = ""
CAUSE = "data_attr"


class Meta:
    def __init__(self, model, inner_lr=0.1):
        self.model, self.inner_lr = model, inner_lr

    # Curing the copy alone gives a first-order gradient; curing .data alone gives none.
    def inner_update(self, x, y):
        adapted = copy.deepcopy(self.model)  # CUT
        loss = nn.functional.mse_loss(adapted(x), y)
        grads = torch.autograd.grad(loss, adapted.parameters(), create_graph=True)
        for param, grad in zip(adapted.parameters(), grads):
            param.data -= self.inner_lr * grad  # CUT
        return adapted

    def meta_loss(self, tasks):
        total = 0.0
        for xs, ys, xq, yq in tasks:
            total = total + nn.functional.mse_loss(self.inner_update(xs, ys)(xq), yq)
        return total / len(tasks)


class FixedMeta(Meta):
    def inner_update(self, x, y):
        fast = dict(self.model.named_parameters())
        loss = nn.functional.mse_loss(functional_call(self.model, fast, (x,)), y)
        grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
        fast = {n: p - self.inner_lr * g for (n, p), g in zip(fast.items(), grads)}
        return lambda q: functional_call(self.model, fast, (q,))


def _program(cls):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    tasks = [tuple(torch.randn(5, 1) for _ in range(4)) for _ in range(2)]
    meta = cls(model)
    return model, lambda: meta.meta_loss(tasks)


def make():
    return _program(Meta)


def make_fixed():
    return _program(FixedMeta)
