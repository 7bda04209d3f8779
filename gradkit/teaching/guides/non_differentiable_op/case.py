"""A greenhouse: one layer decides whether a plant gets water, another how much; the decision is a comparison."""

import torch
from torch import nn
from torch.nn import functional as F


class Greenhouse(nn.Module):
    def __init__(self):
        super().__init__()
        self.thirst, self.flow = nn.Linear(5, 1), nn.Linear(5, 1)

    # [wrong]
    def forward(self, sensors):
        valve = (self.thirst(sensors) > 0).float()  # CUT
        return valve * F.softplus(self.flow(sensors))
    # [end]


class FixedGreenhouse(Greenhouse):
    # [fixed]
    def forward(self, sensors):
        valve = torch.sigmoid(self.thirst(sensors))
        return valve * F.softplus(self.flow(sensors))
    # [end]


# [straight]
def hard_valve(thirst):
    soft = torch.sigmoid(thirst)
    hard = (soft > 0.5).float()
    return hard + soft - soft.detach()
# [end]


def program(kind):
    torch.manual_seed(0)
    model, sensors, water = kind(), torch.randn(16, 5), torch.rand(16, 1)
    return model, lambda: (model(sensors) - water).pow(2).mean()


def make():
    return program(Greenhouse)


FAILS = "partial"


def make_fixed():
    return program(FixedGreenhouse)


def look_at(model, sensors):
    # [see]
    thirst = model.thirst(sensors)
    print(thirst.grad_fn)
    print((thirst > 0).grad_fn, (thirst > 0).dtype)
    # [end]
    return thirst


# [verify]
def gradient_norms(model, step):
    model.zero_grad()
    step().backward()
    return {name: None if p.grad is None else p.grad.norm().item() for name, p in model.named_parameters()}
# [end]


def experiment_backward_runs_and_the_decision_never_learns():
    norms = gradient_norms(*make())
    assert norms["thirst.weight"] is None and norms["thirst.bias"] is None
    assert norms["flow.weight"] > 0


def experiment_a_comparison_has_no_grad_fn():
    thirst = look_at(make()[0], torch.randn(2, 5))
    assert thirst.grad_fn is not None and (thirst > 0).grad_fn is None


def experiment_positions_and_yes_no_answers_carry_no_gradient():
    score = nn.Parameter(torch.rand(4)) * 2
    for answer in (score.argmax(), score.argsort(), score.topk(2).indices, score > 0.5, score == score, score.isnan()):
        assert not answer.requires_grad


def experiment_the_cure_feeds_every_weight():
    assert all(norm is not None and norm > 0 for norm in gradient_norms(*make_fixed()).values())


def experiment_straight_through_is_hard_forward_and_soft_backward():
    thirst = torch.tensor([-1.0, 2.0], requires_grad=True)
    valve = hard_valve(thirst)
    assert torch.allclose(valve, torch.tensor([0.0, 1.0]))
    valve.sum().backward()
    assert (thirst.grad > 0).all()


def experiment_float_after_the_comparison_brings_nothing_back():
    thirst = look_at(make()[0], torch.randn(2, 5))
    assert not (thirst > 0).float().requires_grad


def experiment_masks_and_routing_by_an_index_pass_gradient_through_the_values():
    torch.manual_seed(0)
    wilted, share = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(5, 3))
    ((wilted - 1).square() * (wilted > 0)).sum().backward()
    assert torch.equal(wilted.grad != 0, wilted > 0)
    taken = share.argmax(dim=1, keepdim=True)
    share.softmax(dim=1).gather(1, taken).log().sum().backward()
    assert share.grad.all()
    answers, unlearned = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5, 3))
    answers.gather(1, unlearned.argmax(dim=1, keepdim=True)).sum().backward()
    assert answers.grad.any() and unlearned.grad is None


def experiment_relu_clamp_and_max_values_stay_in_the_graph():
    leaf = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    thirst = leaf * 2
    for value in (torch.relu(thirst), thirst.clamp(0), thirst.max(dim=0).values):
        assert value.grad_fn is not None
    torch.relu(thirst).sum().backward()
    assert leaf.grad is not None and not leaf.grad.any()


def experiment_round_keeps_a_grad_fn_but_its_gradient_is_zero():
    thirst = torch.randn(3, requires_grad=True)
    rounded = thirst.round()
    rounded.sum().backward()
    assert rounded.grad_fn is not None and torch.equal(thirst.grad, torch.zeros(3))
