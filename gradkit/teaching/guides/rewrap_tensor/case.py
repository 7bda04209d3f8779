"""Bees: a hive is heard by several microphones; each gives a score, and torch.tensor makes one tensor of them."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Hive(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.mood = nn.Linear(8, 6), nn.Linear(6, 1)

    def score(self, sound):
        return self.mood(torch.tanh(self.ear(sound))).squeeze()

    # [wrong]
    def forward(self, sounds):
        scores = [self.score(sound) for sound in sounds]
        return torch.tensor(scores).mean()  # CUT
    # [end]


class FixedHive(Hive):
    # [fixed]
    def forward(self, sounds):
        scores = [self.score(sound) for sound in sounds]
        return torch.stack(scores).mean()
    # [end]


def program(kind):
    torch.manual_seed(0)
    hive, sounds, swarming = kind(), torch.randn(4, 8), torch.tensor(1.0)
    return hive, lambda: F.binary_cross_entropy_with_logits(hive(sounds), swarming)


def make():
    return program(Hive)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedHive)


def look_at(hive, sounds):
    scores = [hive.score(sound) for sound in sounds]
    # [see]
    print(scores[0].grad_fn)
    print(torch.tensor(scores).grad_fn)
    # [end]
    return scores


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


def experiment_torch_tensor_copies_the_numbers_only():
    scores = look_at(make()[0], torch.randn(3, 8))
    assert all(score.grad_fn is not None for score in scores)
    assert torch.tensor(scores).grad_fn is None and torch.FloatTensor(scores).grad_fn is None
    assert torch.equal(torch.tensor(scores), torch.stack(scores).detach())


def experiment_a_single_tensor_gives_a_warning_a_list_gives_none():
    score = make()[0].score(torch.randn(8))
    for data, count in [(score, 1), ([score, score], 0)]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.tensor(data)
        assert sum("To copy construct from a tensor" in str(warning.message) for warning in seen) == count


def experiment_stack_reaches_every_weight():
    assert starved(*make_fixed()) == []


def experiment_requires_grad_true_silences_the_error_and_starves_the_net():
    hive, _ = make()
    scores = torch.tensor([hive.score(sound) for sound in torch.randn(3, 8)], requires_grad=True)
    scores.mean().backward()
    assert scores.grad is not None
    assert all(parameter.grad is None for parameter in hive.parameters())


def experiment_as_tensor_keeps_a_tensor_but_cuts_a_list():
    score = make()[0].score(torch.randn(8))
    assert torch.as_tensor(score).grad_fn is not None
    assert torch.as_tensor([score, score]).grad_fn is None


def experiment_a_parameter_made_of_a_result_is_a_new_leaf():
    hive, _ = make()
    leaf = nn.Parameter(hive.score(torch.randn(8)))
    leaf.backward()
    assert leaf.is_leaf and leaf.grad is not None and hive.mood.weight.grad is None


def experiment_casts_and_moves_keep_the_graph():
    score = make()[0].score(torch.randn(8))
    assert all(kept.grad_fn is not None for kept in (score.double(), score.half(), score.to("cpu"), score.reshape(1)))
