import torch
from torch.nn.functional import cross_entropy

BELIEVED = {"gradient_is_zero": True}


def gradient(double):
    logits = torch.tensor([[0.0, 8.0, 0.0]], requires_grad=True)
    cross_entropy(logits.softmax(-1) if double else logits, torch.tensor([0])).backward()
    return float(logits.grad.norm())


def observe():
    return {
        "gradient_is_zero": gradient(double=True) == 0,
        "gradient_norm": round(gradient(double=False), 4),
        "gradient_norm_with_softmax_twice": round(gradient(double=True), 4),
    }
