"""Pollen: every town gets a forecast, its error is weighted by its people, and the towns are never put together."""

import contextlib
import io

import torch
from torch import nn
from torch.nn import functional as F


class Pollen(nn.Module):
    def __init__(self):
        super().__init__()
        self.weather, self.count = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, towns):
        return self.count(torch.tanh(self.weather(towns))).squeeze(-1)

    # [wrong]
    def loss(self, towns, counted, people):
        errors = F.smooth_l1_loss(self(towns), counted, reduction="none")
        return errors * people  # CUT
    # [end]


class FixedPollen(Pollen):
    # [fixed]
    def loss(self, towns, counted, people):
        errors = F.smooth_l1_loss(self(towns), counted, reduction="none")
        return (errors * people).sum() / people.sum()
    # [end]


def data():
    return torch.randn(7, 5), torch.rand(7), torch.rand(7) + 0.1


def program(kind):
    torch.manual_seed(0)
    model, (towns, counted, people) = kind(), data()
    return model, lambda: model.loss(towns, counted, people)


def make():
    return program(Pollen)


FAILS = "raises: grad can be implicitly created only for scalar outputs"


def make_fixed():
    return program(FixedPollen)


def look_at(loss):
    # [see]
    print(loss.shape)
    print(loss.grad_fn)
    # [end]


# [verify]
def falls(model, step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < losses[0]
# [end]


def refuses(loss, **options):
    try:
        loss.backward(**options)
    except RuntimeError as error:
        return "grad can be implicitly created only for scalar outputs" in str(error)
    return False


def gradient(model, run):
    model.zero_grad()
    run()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def experiment_backward_raises():
    _, step = make()
    assert refuses(step())


def experiment_the_graph_is_whole():
    model, step = make()
    assert step().grad_fn is not None
    assert gradient(model, lambda: step().sum().backward()).abs().sum() > 0


def experiment_one_element_is_scalar_enough():
    model, step = make_fixed()
    assert gradient(model, step().reshape(1, 1).backward).abs().sum() > 0


def experiment_a_shape_and_a_grad_fn_are_printed():
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        look_at(make()[1]())
        look_at(make_fixed()[1]())
    lines = text.getvalue().splitlines()
    assert lines[0] == "torch.Size([7])" and lines[2] == "torch.Size([])"
    assert "Backward" in lines[1] and "Backward" in lines[3]


def experiment_the_cure_learns():
    assert make_fixed()[1]().shape == ()
    assert falls(*make_fixed())


def experiment_no_flag_of_backward_helps():
    _, step = make()
    assert refuses(step(), retain_graph=True) and refuses(step().requires_grad_(True))


def experiment_a_gradient_of_ones_is_a_sum_and_not_a_mean():
    model, step = make()
    ones = gradient(model, lambda: step().backward(torch.ones(7)))
    assert torch.allclose(ones, gradient(model, lambda: step().sum().backward()))
    assert torch.allclose(ones, 7 * gradient(model, lambda: step().mean().backward()), atol=1e-6)


def experiment_one_element_of_the_loss_learns_from_one_town_only():
    torch.manual_seed(0)
    model, (towns, counted, people) = Pollen(), data()
    of_all = gradient(model, lambda: model.loss(towns, counted, people)[0].backward())
    of_one = gradient(model, lambda: model.loss(towns[:1], counted[:1], people[:1])[0].backward())
    assert torch.allclose(of_all, of_one)


def experiment_a_mean_hides_a_shape_that_is_wrong():
    model, (towns, counted, _) = Pollen(), data()
    column = model(towns)[:, None]
    errors = (column - counted).pow(2)
    assert errors.shape == (7, 7)
    assert errors.mean().shape == () and not torch.isclose(errors.mean(), (model(towns) - counted).pow(2).mean())
