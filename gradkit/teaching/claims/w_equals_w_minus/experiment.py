import torch

BELIEVED = {"new_w_requires_grad": True, "w_is_the_same_tensor": True}


def observe():
    w = torch.ones(3, requires_grad=True)
    w.sum().backward()
    first = w
    with torch.no_grad():
        w = w - 0.1 * w.grad
    seen = {"new_w_requires_grad": w.requires_grad, "w_is_the_same_tensor": w is first}
    w = first
    with torch.no_grad():
        w -= 0.1 * w.grad
    seen["after_minus_equals_it_requires_grad"] = w.requires_grad
    return seen
