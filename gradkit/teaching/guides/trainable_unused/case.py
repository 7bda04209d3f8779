"""Buses: a layer for the rain was added to the delay model, and forward() never calls it."""

import torch
from torch import nn


class BusDelay(nn.Module):
    # [layers]
    def __init__(self):
        super().__init__()
        self.route = nn.Linear(4, 8)
        self.rain = nn.Linear(2, 8)  # CUT
        self.delay = nn.Linear(8, 1)
    # [end]

    # [wrong]
    def forward(self, route, rain):
        seen = self.route(route)
        return self.delay(torch.tanh(seen)).squeeze(-1)
    # [end]


class FixedBusDelay(BusDelay):
    # [fixed]
    def forward(self, route, rain):
        seen = self.route(route)
        if rain is not None:
            seen = seen + self.rain(rain)
        return self.delay(torch.tanh(seen)).squeeze(-1)
    # [end]


class Seasons(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.winter = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, route):
        return self.base(route) + self.winter(route)


class PassingBusDelay(nn.Module):
    def __init__(self):
        super().__init__()
        self.route, self.delay = Seasons(), nn.Linear(8, 1)

    def forward(self, route, rain):
        seen = nn.functional.linear(route, self.route.base.weight, self.route.base.bias)
        return self.delay(torch.tanh(seen)).squeeze(-1)


class CallingBusDelay(PassingBusDelay):
    def forward(self, route, rain):
        return self.delay(torch.tanh(self.route(route))).squeeze(-1)


class CountingBusDelay(FixedBusDelay):
    def miss(self, route, rain, minutes):
        guess = self(route, rain)
        with torch.no_grad():
            shown = self(route, rain)
            self.late = (shown > 0.5).sum().item()
        return (shown - minutes).pow(2).mean()


class LearningBusDelay(CountingBusDelay):
    def miss(self, route, rain, minutes):
        guess = self(route, rain)
        with torch.no_grad():
            shown = self(route, rain)
            self.late = (shown > 0.5).sum().item()
        return (guess - minutes).pow(2).mean()


def program(kind, dry=False):
    torch.manual_seed(0)
    model, route, rain, minutes = kind(), torch.rand(9, 4), torch.rand(9, 2), torch.rand(9)
    return model, lambda: (model(route, None if dry else rain) - minutes).pow(2).mean()


def make():
    return program(BusDelay)


FAILS = "partial"


def make_fixed():
    return program(FixedBusDelay)


def make_bypass():
    return program(PassingBusDelay)


def make_stopped(kind=CountingBusDelay):
    torch.manual_seed(0)
    model, route, rain, minutes = kind(), torch.rand(9, 4), torch.rand(9, 2), torch.rand(9)
    return model, lambda: model.miss(route, rain, minutes)


# [see]
def never_called(model, step):
    called = set()
    hooks = [module.register_forward_hook(lambda *_, name=name: called.add(name))
             for name, module in model.named_modules()]
    model.zero_grad()
    step().backward()
    for hook in hooks:
        hook.remove()
    return [name for name, module in model.named_modules() if name not in called
            and any(p.requires_grad and p.grad is None for p in module.parameters())]
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


NO_HISTORY = "element 0 of tensors does not require grad and does not have a grad_fn"


def refused(step):
    try:
        step().backward()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("backward ran")


def experiment_the_loss_falls_and_the_layer_has_no_gradient():
    model, step = make()
    first, optimizer = step().item(), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        assert starved(model, step) == ["rain.weight", "rain.bias"]
        optimizer.step()
    assert step().item() < first


def experiment_if_all_else_is_frozen_backward_raises():
    model, step = program(FixedBusDelay, dry=True)
    model.route.requires_grad_(False)
    model.delay.requires_grad_(False)
    assert NO_HISTORY in refused(step)


def experiment_the_flag_is_true_and_the_weights_are_saved():
    model, _ = make()
    assert model.rain.weight.requires_grad and "rain.weight" in model.state_dict()


def experiment_hooks_show_what_was_never_called():
    assert never_called(*make()) == ["rain"]
    assert never_called(*make_fixed()) == []


class Timetable(nn.Module):
    def __init__(self):
        super().__init__()
        self.stops, self.look = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.mixes, self.next_stop = nn.ModuleList([nn.Linear(8, 8)]), nn.Linear(8, 9, bias=False)
        self.next_stop.weight = self.stops.weight

    def forward(self, stops):
        seen = self.stops(stops)
        seen = self.look(seen, seen, seen)[0]
        for mix in self.mixes:
            seen = mix(seen)
        return seen @ self.next_stop.weight.T


def experiment_what_learns_without_being_called_is_not_listed():
    model, stops = Timetable(), torch.randint(0, 9, (4, 5))
    called = set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    assert never_called(model, lambda: model(stops).square().mean()) == []
    assert {name for name, _ in model.named_modules()} - called == {"look.out_proj", "mixes", "next_stop"}
    assert starved(model, lambda: model(stops).square().mean()) == []


def experiment_a_called_layer_has_a_gradient():
    assert starved(*make_fixed()) == []


def experiment_a_batch_without_rain_starves_it_again():
    assert starved(*program(FixedBusDelay, dry=True)) == ["rain.weight", "rain.bias"]


def experiment_the_optimizer_passes_over_none_even_with_weight_decay():
    model, step = make()
    rain = model.rain.weight.clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    step().backward()
    optimizer.step()
    assert torch.equal(model.rain.weight, rain)


def experiment_no_frozen_neighbour_takes_the_gradient_away():
    model, step = make_fixed()
    model.route.requires_grad_(False)
    model.route.eval()
    assert starved(model, step) == []


def experiment_taking_the_weight_goes_past_what_the_layer_adds():
    model, step = make_bypass()
    assert never_called(model, step) == ["route", "route.winter"]
    assert starved(model, step) == ["route.winter.weight", "route.winter.bias"]
    assert starved(*program(CallingBusDelay)) == []


def experiment_of_two_equal_values_the_loss_took_the_one_without_a_history():
    model, step = make_stopped()
    assert NO_HISTORY in refused(step)
    cured, guessed = make_stopped(LearningBusDelay)
    assert torch.equal(step(), guessed()) and model.late == cured.late
    assert starved(cured, guessed) == []
