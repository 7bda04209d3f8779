import torch

BELIEVED = {
    "cat_has_grad_fn": False,
    "gradient_through_cat": False,
    "gradient_through_stack": False,
    "gradient_through_slice_assignment": False,
}


def gradient(join):
    weight = torch.ones(3, requires_grad=True)
    joined = join(torch.zeros(3, requires_grad=False), weight)
    joined.sum().backward()
    return joined.grad_fn is not None, torch.equal(weight.grad, torch.ones(3))


def assigned(pad, weight):
    both = torch.zeros(6)
    both[3:] = weight
    return both


def observe():
    has_grad_fn, through_cat = gradient(lambda pad, weight: torch.cat([pad, weight]))
    return {
        "cat_has_grad_fn": has_grad_fn,
        "gradient_through_cat": through_cat,
        "gradient_through_stack": gradient(lambda pad, weight: torch.stack([pad, weight]))[1],
        "gradient_through_slice_assignment": gradient(assigned)[1],
    }
