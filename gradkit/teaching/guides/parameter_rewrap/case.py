"""An echo: a filter must be the same in both directions, so only its left half is learned, and mirrored."""

import contextlib
import io

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

SHOULD_TRAIN = ["left"]


class Echo(nn.Module):
    # [wrong]
    def __init__(self):
        super().__init__()
        self.left = nn.Parameter(torch.randn(1, 1, 4))
        self.filter = nn.Conv1d(1, 1, 8, bias=False)

    def forward(self, sound):
        whole = torch.cat([self.left, self.left.flip(-1)], dim=-1)
        self.filter.weight = nn.Parameter(whole)  # CUT
        return self.filter(sound)
    # [end]


class FixedEcho(nn.Module):
    # [fixed]
    def __init__(self):
        super().__init__()
        self.left = nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, sound):
        whole = torch.cat([self.left, self.left.flip(-1)], dim=-1)
        return F.conv1d(sound, whole)
    # [end]


# [layer]
class Symmetric(nn.Module):
    def forward(self, weight):
        return (weight + weight.flip(-1)) / 2


def symmetric_filter():
    layer = nn.Conv1d(1, 1, 8, bias=False)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer
# [end]


def program(kind):
    torch.manual_seed(0)
    model, sound = kind(), torch.randn(5, 1, 30)
    echo = F.conv1d(sound, torch.ones(1, 1, 8) / 8)

    def step():
        return (model(sound) - echo).pow(2).mean()

    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, step


def make():
    return program(Echo)


FAILS = "silent"


def make_fixed():
    return program(FixedEcho)


def mirrored(model):
    return torch.cat([model.left, model.left.flip(-1)], dim=-1)


def look_at(whole):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # [see]
        print(whole.grad_fn)
        print(nn.Parameter(whole).grad_fn)
        # [end]
    return text.getvalue().splitlines()


# [verify]
def learned(model, step):
    before, first = model.left.clone(), step().item()
    for _ in range(20):
        step.optimizer.zero_grad()
        step().backward()
        step.optimizer.step()
    return not torch.equal(model.left, before) and step().item() < first
# [end]


def experiment_no_error_and_the_loss_never_changes():
    model, step = make()
    first = step().item()
    assert not learned(model, step)
    assert step().item() == first and model.left.grad is None


def experiment_torch_itself_asks_for_a_parameter():
    model, _ = make()
    try:
        model.filter.weight = mirrored(model)
    except TypeError as error:
        assert "cannot assign 'torch.FloatTensor' as parameter 'weight'" in str(error)
        assert "(torch.nn.Parameter or None expected)" in str(error)
    else:
        raise AssertionError("the tensor was taken")


def experiment_a_parameter_is_always_a_leaf():
    whole = mirrored(make()[0])
    leaf = nn.Parameter(whole)
    assert leaf.is_leaf and torch.equal(leaf, whole)
    before, after = look_at(whole)
    assert "CatBackward" in before and after == "None"


def experiment_the_gradient_ends_in_the_wrapper():
    model, step = make()
    step().backward()
    assert model.filter.weight.grad.abs().sum() > 0 and model.left.grad is None


def experiment_the_cure_learns():
    model, step = make_fixed()
    assert learned(model, step)


def experiment_the_parametrised_layer_learns_and_stays_symmetric():
    torch.manual_seed(0)
    layer, sound = symmetric_filter(), torch.randn(5, 1, 30)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight.clone()
    layer(sound).pow(2).mean().backward()
    optimizer.step()
    assert not torch.equal(layer.weight, before)
    assert torch.allclose(layer.weight, layer.weight.flip(-1))


def experiment_data_and_copy_are_no_way_round():
    model, step = make()
    sound = torch.randn(2, 1, 30)
    model.filter.weight.data = mirrored(model)
    model.filter(sound).sum().backward()
    with torch.no_grad():
        model.filter.weight.copy_(mirrored(model))
    model.filter(sound).sum().backward()
    assert model.left.grad is None


def experiment_all_flags_are_true_already():
    model, step = make()
    assert step().requires_grad
    assert model.left.requires_grad and model.filter.weight.requires_grad


def experiment_a_parameter_made_of_fresh_numbers_is_right():
    model, _ = make_fixed()
    start = nn.Parameter(model.left.detach().clone())
    start.sum().backward()
    assert start.grad is not None
