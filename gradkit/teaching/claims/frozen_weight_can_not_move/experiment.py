import torch

BELIEVED = {
    "frozen_from_the_start": True,
    "frozen_with_an_old_gradient": True,
    "frozen_and_grad_cleared": True,
}


def stands_still(train_first, clear):
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    if train_first:
        weight.sum().backward()
        optimizer.step()
    weight.requires_grad_(False)
    if clear:
        weight.grad = None
    before = weight.clone()
    optimizer.step()
    return torch.equal(weight, before)


def observe():
    return {
        "frozen_from_the_start": stands_still(train_first=False, clear=False),
        "frozen_with_an_old_gradient": stands_still(train_first=True, clear=False),
        "frozen_and_grad_cleared": stands_still(train_first=True, clear=True),
    }
