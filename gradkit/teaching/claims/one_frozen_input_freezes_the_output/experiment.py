import torch

BELIEVED = {"sum_requires_grad": False, "product_requires_grad": False, "matmul_requires_grad": False}


def observe():
    frozen, weight = torch.ones(3, 3), torch.ones(3, 3, requires_grad=True)
    return {
        "sum_requires_grad": (frozen + weight).requires_grad,
        "product_requires_grad": (frozen * weight).requires_grad,
        "matmul_requires_grad": (frozen @ weight).requires_grad,
        "argmax_requires_grad": weight.argmax().requires_grad,
        "comparison_requires_grad": (weight > 0).requires_grad,
    }
