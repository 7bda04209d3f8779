import torch

BELIEVED = {"weight_carries_history_after_step": True, "result_differs": True}


def stepped(wrap):
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.square().sum().backward()
    with torch.no_grad() if wrap else torch.enable_grad():
        optimizer.step()
    return weight


def stepped_differentiably():
    weight = torch.ones(3, requires_grad=True).clone()
    weight.retain_grad()
    optimizer = torch.optim.SGD([weight], lr=0.1, differentiable=True)
    weight.square().sum().backward()
    optimizer.step()
    return weight


def observe():
    plain = stepped(wrap=False)
    return {
        "weight_carries_history_after_step": plain.grad_fn is not None,
        "history_after_a_differentiable_step": stepped_differentiably().grad_fn.name() != "CloneBackward0",
        "result_differs": not torch.equal(plain, stepped(wrap=True)),
    }
