import torch

BELIEVED = {"clone_has_grad_fn": False, "gradient_arrives": False}


def observe():
    weight = torch.ones(3, requires_grad=True)
    copy = weight.clone()
    copy.sum().backward()
    return {
        "clone_has_grad_fn": copy.grad_fn is not None,
        "gradient_arrives": weight.grad is not None,
        "shares_memory": copy.data_ptr() == weight.data_ptr(),
    }
