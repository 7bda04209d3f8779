import torch

BELIEVED = {"grad_is_a_tensor_of_zeros": True}


def observe():
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.zero_grad()
    seen = {"grad_is_a_tensor_of_zeros": weight.grad is not None}
    weight.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    seen["with_set_to_none_False"] = weight.grad is not None
    return seen
