import torch

BELIEVED = {"straight_line_raises": False}


def second_derivative_raises(curve):
    x = torch.tensor([2.0], requires_grad=True)
    (slope,) = torch.autograd.grad(curve(x).sum(), x, create_graph=True)
    try:
        torch.autograd.grad(slope.sum(), x)
    except RuntimeError as error:
        return "does not require grad" in str(error)
    return False


def observe():
    return {
        "straight_line_raises": second_derivative_raises(lambda x: 3 * x),
        "parabola_raises": second_derivative_raises(lambda x: 3 * x**2),
    }
