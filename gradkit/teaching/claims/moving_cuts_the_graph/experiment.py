import torch

BELIEVED = {"after_cpu_it_requires_grad": False, "on_another_device_it_requires_grad": False, "it_stays_a_leaf": True}


def observe():
    leaf = torch.ones(3, requires_grad=True)
    moved = leaf.to("cuda" if torch.cuda.is_available() else "meta")
    return {
        "after_cpu_it_requires_grad": (leaf * 2).cpu().requires_grad,
        "on_another_device_it_requires_grad": moved.requires_grad,
        "it_stays_a_leaf": moved.is_leaf,
        "its_history": type(moved.grad_fn).__name__,
    }
