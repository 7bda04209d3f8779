import torch
from torch import nn

BELIEVED = {"requires_grad": True, "has_grad_fn": True, "has_grad_fn_with_hook": True}


def observe():
    embedding, words = nn.Embedding(10, 4).requires_grad_(False), torch.tensor([[1, 2, 3]])
    output = embedding(words)
    seen = {"requires_grad": output.requires_grad, "has_grad_fn": output.grad_fn is not None}
    embedding.register_forward_hook(lambda module, inputs, output: output.requires_grad_(True))
    hooked = embedding(words)
    seen["requires_grad_with_hook"] = hooked.requires_grad
    seen["has_grad_fn_with_hook"] = hooked.grad_fn is not None
    return seen
