import torch
from torch import nn

BELIEVED = {"grad_fn_in_eval": False, "gradient_in_eval": False, "transformer_gradient_in_eval": False}


def gradient_through(frozen, mode, shape):
    front = nn.Linear(8, 8)
    frozen.requires_grad_(False).train(mode == "train")
    output = frozen(front(torch.randn(shape)))
    output.square().sum().backward()
    return output.grad_fn is not None, bool(front.weight.grad.abs().sum() > 0)


def observe():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    seen = {}
    for mode in ("train", "eval"):
        seen[f"grad_fn_in_{mode}"], seen[f"gradient_in_{mode}"] = gradient_through(layers, mode, (6, 8))
        seen[f"transformer_gradient_in_{mode}"] = gradient_through(attention, mode, (6, 3, 8))[1]
    return seen
