"""Tides: a net reads the water level off moon and wind; the line that clears the gradients stands one line too low."""

import torch
from torch import nn
from torch.nn import functional as F


class Tides(nn.Module):
    def __init__(self):
        super().__init__()
        self.moon, self.level = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, sky):
        return self.level(torch.tanh(self.moon(sky)))


def train(model, optimizer, sky, level):
    # [wrong]
    loss = F.mse_loss(model(sky), level)
    loss.backward()
    optimizer.zero_grad()  # CUT
    optimizer.step()
    # [end]
    return loss


def train_fixed(model, optimizer, sky, level):
    # [fixed]
    loss = F.mse_loss(model(sky), level)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # [end]
    return loss


def train_clipped(model, optimizer, sky, level):
    loss = F.mse_loss(model(sky), level)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.0)
    optimizer.step()
    return loss


def train_named(model, optimizer, sky, level):
    loss = F.mse_loss(model(sky), level)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step
    return loss


def train_every_tenth(model, optimizer, sky, level, step=1):
    loss = F.mse_loss(model(sky), level) / 10
    loss.backward()
    if step % 10 == 0:
        optimizer.step()
        optimizer.zero_grad()
    return loss


def data():
    sky = torch.randn(20, 5)
    return sky, sky.sum(1, keepdim=True)


def program(train, optimizer=torch.optim.SGD, **settings):
    torch.manual_seed(0)
    model, (sky, level) = Tides(), data()
    optimizer = optimizer(model.parameters(), **{"lr": 0.1, **settings})

    def step():
        return train(model, optimizer, sky, level)

    step.trains_with = optimizer
    return model, step


def make():
    return program(train)


FAILS = "hardly moved"


def make_fixed():
    return program(train_fixed)


# [see]
def watch_steps(optimizer):
    seen = []

    def before_step(optimizer, args, kwargs):
        held = [p for group in optimizer.param_groups for p in group["params"]]
        largest = max((p.grad.abs().max().item() for p in held if p.grad is not None), default=None)
        seen.append((largest, [group["lr"] for group in optimizer.param_groups]))

    optimizer.register_step_pre_hook(before_step)
    return seen
# [end]


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


EVERY = ["moon.weight", "moon.bias", "level.weight", "level.bias"]


def losses(step, times=20):
    return [step().item() for _ in range(times)]


def experiment_the_loss_does_not_change_in_its_last_digit():
    model, step = make()
    assert len(set(losses(step))) == 1
    assert moved(model, step) == []


def experiment_step_passes_over_what_has_no_gradient():
    model, step = make()
    sky, level = data()
    F.mse_loss(model(sky), level).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    step.trains_with.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    before = model.moon.weight.clone()
    step.trains_with.step()
    assert torch.equal(model.moon.weight, before)


def experiment_a_rate_of_zero_looks_the_same():
    model, step = program(train_fixed, lr=0.1 * (64 // 256))
    assert len(set(losses(step))) == 1
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def experiment_a_bound_of_zero_looks_the_same():
    model, step = program(train_clipped)
    assert len(set(losses(step))) == 1
    assert not any(parameter.grad.any() for parameter in model.parameters())


def experiment_what_the_step_gets_is_listed():
    _, step = make()
    seen = watch_steps(step.trains_with)
    step()
    assert seen == [(None, [0.1])]
    _, step = program(train_clipped)
    seen = watch_steps(step.trains_with)
    step()
    assert seen == [(0.0, [0.1])]


def experiment_the_cure_moves_every_weight():
    model, step = make_fixed()
    assert moved(model, step) == EVERY
    kept = losses(step)
    assert kept[-1] < kept[0]


def experiment_clearing_after_the_step_is_fine():
    model, step = make_fixed()

    def cleared_late():
        step()
        step.trains_with.zero_grad()

    assert moved(model, cleared_late) == EVERY


def experiment_weights_that_shrink_have_not_learned():
    model, step = program(train, torch.optim.SGD, weight_decay=0.1)
    assert moved(model, step) == []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = model.moon.weight.clone()
    optimizer.step()
    assert torch.allclose(model.moon.weight, before * 0.99)


def experiment_a_warm_up_leaves_zero():
    def rates(factor):
        optimizer = torch.optim.SGD(Tides().parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        found = []
        for _ in range(5):
            found.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        return found

    assert rates(lambda n: min(1, n / 100))[:2] == [0.0, 0.001]
    assert rates(lambda n: min(1, n // 100)) == [0.0] * 5


def experiment_step_without_parentheses_is_only_named():
    model, step = program(train_named)
    assert len(set(losses(step))) == 1
    assert all(parameter.grad.any() for parameter in model.parameters())


def experiment_a_counter_that_stands_still_never_lets_it_step():
    model, step = program(train_every_tenth)
    assert len(set(losses(step))) == 1
    first = model.moon.weight.grad.clone()
    step()
    assert model.moon.weight.grad.norm() > first.norm()


def experiment_a_rate_may_be_made_zero_after_the_optimizer_was_built():
    model, step = make_fixed()
    for group in step.trains_with.param_groups:
        group["lr"] *= 5 // 10
    assert moved(model, step) == []


def experiment_a_schedule_that_is_not_stepped_stays_where_it_begins():
    model, step = make_fixed()
    schedule = torch.optim.lr_scheduler.LambdaLR(step.trains_with, lambda n: min(1, n / 100))
    assert all(moved(model, step) == [] for _ in range(5))
    schedule.step()
    assert moved(model, step) == EVERY
