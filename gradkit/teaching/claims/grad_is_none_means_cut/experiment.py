import torch

BELIEVED = {"leaf_gets_no_gradient": True, "middle_grad_is_none_with_retain_grad": True}


def observe():
    seen = {}
    for keep in (False, True):
        leaf = torch.ones(3, requires_grad=True)
        middle = leaf * 2
        if keep:
            middle.retain_grad()
        middle.sum().backward()
        seen[f"middle_grad_is_none{'_with_retain_grad' if keep else ''}"] = middle.grad is None
        seen["leaf_gets_no_gradient"] = leaf.grad is None
    return seen
