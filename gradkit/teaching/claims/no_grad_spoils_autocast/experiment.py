import torch
from torch import nn

BELIEVED = {"weight_gets_no_gradient": True}


def observe():
    layer, batch = nn.Linear(4, 1), torch.ones(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            reference = layer(batch)
        loss = (layer(batch) - reference - 1).float().square().mean()
    if loss.requires_grad:
        loss.backward()
    return {"weight_gets_no_gradient": layer.weight.grad is None, "dtype_inside": str(reference.dtype)}
