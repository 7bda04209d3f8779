import torch

BELIEVED = {"original_is_safe_from_writes": True}


def observe():
    value = torch.zeros(3, requires_grad=True)
    detached = value.detach()
    detached[0] = 7.0
    return {
        "original_is_safe_from_writes": value[0].item() == 0.0,
        "shares_memory": detached.data_ptr() == value.data_ptr(),
        "detached_requires_grad": detached.requires_grad,
    }
