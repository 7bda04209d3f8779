import torch

BELIEVED = {"enable_grad_outside": True, "set_grad_enabled_outside": True}


@torch.no_grad()
def encode(weight):
    return weight * 2


@torch.no_grad()
def encode_but_this(weight):
    with torch.enable_grad():
        return weight * 2


def observe():
    weight = torch.ones(3, requires_grad=True)
    with torch.enable_grad():
        seen = {"enable_grad_outside": encode(weight).requires_grad}
    with torch.set_grad_enabled(True):
        seen["set_grad_enabled_outside"] = encode(weight).requires_grad
    seen["enable_grad_inside"] = encode_but_this(weight).requires_grad
    return seen
