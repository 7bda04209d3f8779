import torch

BELIEVED = {"second_backward_replaces_the_first": True}


def observe():
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    once = weight.grad.clone()
    weight.sum().backward()
    return {
        "second_backward_replaces_the_first": torch.equal(weight.grad, once),
        "second_backward_adds_up": torch.equal(weight.grad, 2 * once),
    }
