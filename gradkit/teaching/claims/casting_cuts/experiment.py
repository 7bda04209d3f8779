import torch

BELIEVED = {"to_double": False, "to_half_and_back": False, "to_bfloat16": False, "to_long": False}


def observe():
    weight = torch.ones(3, requires_grad=True)
    return {
        "to_double": weight.double().requires_grad,
        "to_half_and_back": weight.half().float().requires_grad,
        "to_bfloat16": weight.to(torch.bfloat16).requires_grad,
        "to_long": weight.long().requires_grad,
    }
