"""Tempo: a net counts the beats of a drum track; the decorator meant for predict() sits on forward()."""

import torch
from torch import nn


class Tempo(nn.Module):
    def __init__(self):
        super().__init__()
        self.listen, self.count = nn.Conv1d(1, 6, 9), nn.Linear(6, 1)

    # [wrong]
    @torch.no_grad()  # CUT
    def forward(self, onsets):
        pulse = torch.tanh(self.listen(onsets)).mean(dim=-1)
        return self.count(pulse).squeeze(-1)

    def predict(self, onsets):
        return self(onsets).round()
    # [end]


class FixedTempo(Tempo):
    # [fixed]
    def forward(self, onsets):
        pulse = torch.tanh(self.listen(onsets)).mean(dim=-1)
        return self.count(pulse).squeeze(-1)

    @torch.no_grad()
    def predict(self, onsets):
        return self(onsets).round()
    # [end]


def program(kind):
    torch.manual_seed(0)
    model, onsets, beats = kind(), torch.rand(5, 1, 40), 2 * torch.rand(5)
    return model, lambda: (model(onsets) - beats).abs().mean()


def make():
    return program(Tempo)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedTempo)


# [see]
def is_decorated(function):
    return hasattr(function, "__wrapped__")
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


def experiment_backward_raises():
    _, step = make()
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_the_decorator_wins_over_the_caller():
    _, step = make()
    with torch.enable_grad():
        torch.set_grad_enabled(True)
        assert not step().requires_grad


def experiment_every_parameter_still_requires_grad():
    model, _ = make()
    assert all(parameter.requires_grad for parameter in model.parameters())


def experiment_the_plain_function_lies_under_the_decorator():
    model, _ = make()
    onsets = torch.rand(1, 1, 40)
    assert is_decorated(type(model).forward) and not is_decorated(FixedTempo.forward)
    assert not model(onsets).requires_grad
    assert type(model).forward.__wrapped__(model, onsets).requires_grad


def experiment_without_the_decorator_all_learn_and_predict_stays_cheap():
    model, step = make_fixed()
    assert starved(model, step) == []
    assert not model.predict(torch.rand(1, 1, 40)).requires_grad


def experiment_train_mode_does_not_lift_it():
    model, step = make()
    model.train()
    assert not step().requires_grad


def experiment_parentheses_make_no_difference():
    model, _ = make_fixed()
    plain = torch.no_grad(model.forward)
    assert not plain(torch.rand(1, 1, 40)).requires_grad


def experiment_enable_grad_inside_does_lift_it():
    model, _ = make_fixed()

    @torch.no_grad()
    def both(onsets):
        with torch.enable_grad():
            return model(onsets)

    assert both(torch.rand(1, 1, 40)).requires_grad
