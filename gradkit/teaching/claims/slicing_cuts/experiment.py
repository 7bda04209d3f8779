import torch

BELIEVED = dict.fromkeys(["indexing", "slicing", "boolean_mask", "reshape", "transpose", "hstack"], False)


def arrives(cut_out):
    weight = torch.arange(6.0).reshape(2, 3).requires_grad_()
    cut_out(weight).sum().backward()
    return weight.grad is not None and bool(weight.grad.any())


def observe():
    return {
        "indexing": arrives(lambda weight: weight[0]),
        "slicing": arrives(lambda weight: weight[:, 1:]),
        "boolean_mask": arrives(lambda weight: weight[weight > 2]),
        "reshape": arrives(lambda weight: weight.reshape(-1)),
        "transpose": arrives(lambda weight: weight.T),
        "hstack": arrives(lambda weight: torch.hstack([weight, weight])),
    }
