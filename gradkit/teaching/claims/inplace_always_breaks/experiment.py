import torch

BELIEVED = dict.fromkeys(["relu_after_multiplication", "add_after_add", "exp_then_add", "sigmoid_then_add", "leaf_add"], True)


def breaks(program):
    weight = torch.ones(3, requires_grad=True)
    try:
        program(weight).sum().backward()
    except RuntimeError:
        return True
    return weight.grad is None


def observe():
    return {
        "relu_after_multiplication": breaks(lambda weight: (weight * 2).relu_()),
        "add_after_add": breaks(lambda weight: (weight + 1).add_(1)),
        "exp_then_add": breaks(lambda weight: weight.exp().add_(1)),
        "sigmoid_then_add": breaks(lambda weight: weight.sigmoid().add_(1)),
        "leaf_add": breaks(lambda weight: weight.add_(1)),
    }
