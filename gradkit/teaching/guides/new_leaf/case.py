"""A choir: a net hears the pitch and the length of a note; both errors are packed into torch.tensor, with a flag."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Choir(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.pitch, self.length = nn.Linear(10, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    # [wrong]
    def loss(self, sound, pitch, length):
        heard = torch.tanh(self.ear(sound))
        errors = [F.mse_loss(self.pitch(heard), pitch), F.l1_loss(self.length(heard), length)]
        return torch.tensor(errors, requires_grad=True).sum()  # CUT
    # [end]


class FixedChoir(Choir):
    # [fixed]
    def loss(self, sound, pitch, length):
        heard = torch.tanh(self.ear(sound))
        errors = [F.mse_loss(self.pitch(heard), pitch), F.l1_loss(self.length(heard), length)]
        return torch.stack(errors).sum()
    # [end]


class WatchedChoir(Choir):
    def loss(self, sound, pitch, length):
        # [watch]
        self.heard = torch.tanh(self.ear(sound))
        self.heard.retain_grad()
        # [end]
        return F.mse_loss(self.pitch(self.heard), pitch) + F.l1_loss(self.length(self.heard), length)


def program(kind):
    torch.manual_seed(0)
    model, sound, pitch, length = kind(), torch.randn(6, 10), torch.rand(6, 1), torch.rand(6, 1)
    return model, lambda: model.loss(sound, pitch, length)


def make():
    return program(Choir)


FAILS = "silent"


def make_fixed():
    return program(FixedChoir)


# [see]
def who_learns(model, loss):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    learning, seen, todo = set(), set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
            if hasattr(node, "variable"):
                learning.add(names.get(id(node.variable), "a new leaf"))
    return learning
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


def names(model):
    return [name for name, _ in model.named_parameters()]


def heard_by(model):
    return torch.tanh(model.ear(torch.randn(6, 10)))


def experiment_backward_runs_and_nothing_ever_changes():
    model, step = make()
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), step().item()
    for _ in range(20):
        step().backward()
        optimizer.step()
    assert step().item() == first
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_without_the_flag_the_error_is_back():
    model, _ = make()
    errors = [heard_by(model).mean(), heard_by(model).std()]
    try:
        torch.tensor(errors).sum().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_the_leaf_takes_the_gradient():
    model, _ = make()
    leaf = torch.tensor([heard_by(model).mean(), heard_by(model).std()], requires_grad=True)
    leaf.sum().backward()
    assert leaf.is_leaf and leaf.grad.tolist() == [1.0, 1.0]
    assert model.ear.weight.grad is None


def experiment_every_spelling_does_the_same():
    model, step = make_fixed()
    for spelling in range(4):
        loss = step().detach()
        if spelling == 0:
            loss.requires_grad = True
        elif spelling == 1:
            loss = loss.requires_grad_(True)
        elif spelling == 2:
            loss = torch.autograd.Variable(loss, requires_grad=True)
        else:
            loss = torch.tensor(loss, requires_grad=True)
        assert who_learns(model, loss) == set()
        loss.backward()
        assert loss.grad == 1 and all(parameter.grad is None for parameter in model.parameters())


def experiment_the_graph_ends_in_a_leaf_that_is_no_parameter():
    model, step = make()
    assert who_learns(model, step()) == {"a new leaf"}


def experiment_the_cure_ends_in_the_parameters():
    model, step = make_fixed()
    assert who_learns(model, step()) == set(names(model))
    assert starved(model, step) == []


def experiment_the_advice_of_the_warning_cuts_too():
    model, _ = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.tensor(heard_by(model))
    advice = {"sourceTensor.detach().clone().requires_grad_(True)", "sourceTensor.clone().detach().requires_grad_(True)"}
    assert any(one in str(warning.message) for warning in seen for one in advice)
    heard = heard_by(model).detach().clone().requires_grad_(True)
    model.pitch(heard).sum().backward()
    assert heard.grad is not None and model.ear.weight.grad is None


def experiment_retain_grad_shows_the_gradient_and_cuts_nothing():
    model, step = program(WatchedChoir)
    assert starved(model, step) == []
    assert model.heard.grad.abs().sum() > 0


def experiment_on_a_value_with_a_history_the_flag_does_nothing():
    model, _ = make()
    heard = heard_by(model)
    assert heard.requires_grad_(True).grad_fn is not None and not heard.is_leaf


def experiment_on_an_input_the_flag_is_right():
    model, _ = make()
    sound = torch.randn(6, 10, requires_grad=True)
    model.pitch(torch.tanh(model.ear(sound))).sum().backward()
    assert sound.grad is not None and model.ear.weight.grad is not None
