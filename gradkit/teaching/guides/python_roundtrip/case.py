"""A robot arm: a net turns a target into three joint angles; where the tip ends up is worked out in plain Python."""

import math

import torch
from torch import nn


class Arm(nn.Module):
    def __init__(self):
        super().__init__()
        self.steer = nn.Linear(2, 3)

    # [wrong]
    def tip(self, angles):
        heading, x, y = 0.0, 0.0, 0.0
        for angle in angles:
            heading = heading + angle.item()  # CUT
            x = x + math.cos(heading)
            y = y + math.sin(heading)
        return torch.tensor([x, y])  # CUT
    # [end]

    def forward(self, target):
        return (self.tip(self.steer(target)) - target).pow(2).sum()


class FixedArm(Arm):
    # [fixed]
    def tip(self, angles):
        heading, x, y = 0.0, 0.0, 0.0
        for angle in angles:
            heading = heading + angle
            x = x + torch.cos(heading)
            y = y + torch.sin(heading)
        return torch.stack([x, y])
    # [end]


def program(kind):
    torch.manual_seed(0)
    arm, target = kind(), torch.tensor([1.5, 0.8])
    return arm, lambda: arm(target)


def make():
    return program(Arm)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedArm)


def look_at(arm, target):
    # [see]
    angles = arm.steer(target)
    print(type(angles[0]), angles[0].grad_fn)
    print(type(angles[0].item()), hasattr(angles[0].item(), "grad_fn"))
    # [end]


# [verify]
def train(arm, step, rounds=30):
    optimizer = torch.optim.SGD(arm.parameters(), lr=0.05)
    distances = []
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        distances.append(loss.item())
    return distances
# [end]


def experiment_backward_raises():
    _, step = make()
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_a_python_number_has_no_backward():
    _, step = make_fixed()
    total = sum(step().item() for _ in range(2))
    try:
        total.backward()
    except AttributeError as error:
        assert "'float' object has no attribute 'backward'" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_every_way_to_python_gives_a_bare_number():
    look_at(make()[0], torch.ones(2))
    angle = nn.Parameter(torch.tensor(0.5)) * 2
    for number in (angle.item(), angle.tolist(), float(angle), math.cos(angle)):
        assert type(number) is float


def experiment_the_cure_learns_and_gives_the_same_tip():
    arm, step = make_fixed()
    assert torch.allclose(step(), make()[1]())
    distances = train(arm, step)
    assert distances[-1] < 0.1 * distances[0]


def experiment_loops_indexing_and_sum_keep_the_graph():
    angles = make()[0].steer(torch.ones(2))
    for angle in angles:
        assert angle.grad_fn is not None
    assert angles[1].grad_fn is not None and sum(angles).grad_fn is not None


def experiment_item_for_the_log_is_harmless():
    arm, step = make_fixed()
    loss = step()
    print(f"distance {loss.item():.3f}")
    loss.backward()
    assert arm.steer.weight.grad.abs().sum() > 0


def experiment_requires_grad_on_the_new_tensor_does_not_reach_the_net():
    arm, _ = make()
    tip = arm.tip(arm.steer(torch.ones(2))).requires_grad_(True)
    tip.sum().backward()
    assert tip.grad is not None and arm.steer.weight.grad is None
