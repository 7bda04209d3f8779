import torch

BELIEVED = dict.fromkeys(["round", "sign", "floor", "bernoulli", "dead_relu", "sigmoid"], True)


def gradient_is_not_zero(operation):
    weight = torch.tensor([0.3, 0.6], requires_grad=True)
    output = operation(weight)
    assert output.grad_fn is not None
    output.sum().backward()
    return bool(weight.grad.any())


def observe():
    torch.manual_seed(0)
    return {
        "round": gradient_is_not_zero(torch.round),
        "sign": gradient_is_not_zero(torch.sign),
        "floor": gradient_is_not_zero(torch.floor),
        "bernoulli": gradient_is_not_zero(torch.bernoulli),
        "dead_relu": gradient_is_not_zero(lambda weight: torch.relu(weight - 1)),
        "sigmoid": gradient_is_not_zero(torch.sigmoid),
    }
