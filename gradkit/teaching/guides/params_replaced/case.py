"""Ferries: the crossings of a day are read in order, from a first state that should be learned; forward() renews it."""

import torch
from torch import nn

SHOULD_TRAIN = ["start"]


class Ferry(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, 1, 6))
        self.crossings, self.guests = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 1)

    # [wrong]
    def forward(self, days):
        self.start = nn.Parameter(torch.zeros(1, len(days), 6))  # CUT
        _, last = self.crossings(days, self.start)
        return self.guests(last[0]).squeeze(-1)
    # [end]


class FixedFerry(Ferry):
    # [fixed]
    def forward(self, days):
        start = self.start.repeat(1, len(days), 1)
        _, last = self.crossings(days, start)
        return self.guests(last[0]).squeeze(-1)
    # [end]


class ZeroedFerry(FixedFerry):
    def forward(self, days):
        nn.init.zeros_(self.start)
        return super().forward(days)


class PlainFerry(FixedFerry):
    def __init__(self):
        super().__init__()
        del self.start

    def forward(self, days):
        _, last = self.crossings(days, torch.zeros(1, len(days), 6))
        return self.guests(last[0]).squeeze(-1)


def scaled_loss(guess, guests):
    scale = nn.Parameter(torch.ones(()))
    return (scale * guess - guests).pow(2).mean()


class ScaledFerry(FixedFerry):
    def forward(self, days, guests):
        return scaled_loss(super().forward(days), guests)


class HeldFerry(FixedFerry):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, days, guests):
        return (self.scale * super().forward(days) - guests).pow(2).mean()


def program(kind):
    torch.manual_seed(0)
    model, days, guests = kind(), torch.randn(7, 5, 3), torch.rand(7)

    def step():
        return (model(days) - guests).pow(2).mean()

    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, step


def make():
    return program(Ferry)


FAILS = "silent"


def make_fixed():
    return program(FixedFerry)


def make_unknown(kind=ScaledFerry):
    torch.manual_seed(0)
    model, days, guests = kind(), torch.randn(7, 5, 3), torch.rand(7)

    def step():
        return model(days, guests)

    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step.should_train = None
    return model, step


# [see]
def replaced(model, step):
    before = dict(model.named_parameters())
    step()
    return [name for name, parameter in model.named_parameters() if parameter is not before.get(name)]
# [end]


# [verify]
def moved(model, step):
    before = {name: (parameter, parameter.clone()) for name, parameter in model.named_parameters()}
    step.optimizer.zero_grad()
    step().backward()
    step.optimizer.step()
    return [name for name, (parameter, value) in before.items() if not torch.equal(parameter, value)]
# [end]


def train(step, steps=20):
    for _ in range(steps):
        step.optimizer.zero_grad()
        step().backward()
        step.optimizer.step()


def experiment_a_gradient_at_every_step_and_zeros_for_ever():
    model, step = make()
    first = step().item()
    train(step)
    assert step().item() < first
    step().backward()
    assert model.start.grad.abs().sum() > 0 and not model.start.any()


def experiment_the_optimizer_holds_one_that_is_no_longer_in_the_model():
    model, step = make()
    old = model.start
    step().backward()
    assert old.grad is None and model.start is not old
    assert any(p is old for p in step.optimizer.param_groups[0]["params"])
    assert not any(p is model.start for p in step.optimizer.param_groups[0]["params"])


def experiment_the_replaced_name_is_listed():
    assert replaced(*make()) == ["start"]
    assert replaced(*make_fixed()) == []


def experiment_the_cure_moves_every_weight():
    model, step = make_fixed()
    assert moved(model, step) == [name for name, _ in model.named_parameters()]


def experiment_one_start_fits_every_batch_and_keeps_its_history():
    model, _ = make_fixed()
    assert model.start.repeat(1, 4, 1).grad_fn is not None and model.start.expand(1, 4, 6).grad_fn is not None
    assert [len(model(torch.randn(size, 5, 3))) for size in (1, 4)] == [1, 4]


def experiment_an_optimizer_built_later_comes_too_late_again():
    model, step = make()
    step()
    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(step)
    assert not model.start.any()


def experiment_resetting_in_place_gives_a_gradient_and_forgets_what_was_learned():
    model, step = program(ZeroedFerry)
    assert replaced(model, step) == [] and "start" in moved(model, step)
    step()
    assert not model.start.any()


def experiment_a_constant_start_needs_no_parameter():
    model, step = program(PlainFerry)
    assert moved(model, step) == [name for name, _ in model.named_parameters()]


def leaves(loss):
    seen, todo = set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return [node.variable for node in seen if hasattr(node, "variable")]


def experiment_a_parameter_of_a_loss_function_begins_anew_in_each_step():
    model, step = make_unknown()
    assert replaced(model, step) == []
    mine = {id(parameter) for parameter in model.parameters()}
    for _ in range(3):
        loss = step()
        loss.backward()
        [scale] = [leaf for leaf in leaves(loss) if id(leaf) not in mine]
        step.optimizer.step()
        assert scale.grad != 0 and scale == 1
    assert "scale" in moved(*make_unknown(HeldFerry))
