import torch

BELIEVED = {"float16_gradient_is_zero": True, "bfloat16_gradient_is_zero": False, "scaled_float16_gradient_is_zero": False}


def gradient(dtype, scale=1.0):
    weight = torch.ones(3, dtype=dtype, requires_grad=True)
    (weight * 1e-4 * 1e-4 * scale).sum().backward()
    return weight.grad


def observe():
    return {
        "float16_gradient_is_zero": not gradient(torch.float16).any(),
        "bfloat16_gradient_is_zero": not gradient(torch.bfloat16).any(),
        "scaled_float16_gradient_is_zero": not gradient(torch.float16, scale=65536.0).any(),
    }
