"""Programs that lose the gradient by `create_graph_missing`."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, small

# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("create_graph_missing")
def a_gradient_penalty_without_its_own_graph() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (slope,) = torch.autograd.grad(model(x).sum(), x)  # CUT
        return (slope.norm(dim=1) - 1).pow(2).mean()

    model[2] = nn.Linear(8, 1, bias=False)
    return model, step


@cut("create_graph_missing")
def forces_that_backward_has_filled_in() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        model(place).sum().backward(retain_graph=True)
        forces = -place.grad  # CUT
        model.zero_grad()
        return (forces - 1).pow(2).mean()

    model[2] = nn.Linear(8, 1, bias=False)
    return model, step


@cut("create_graph_missing")
def a_gradient_that_a_hidden_value_has_kept() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hidden = model[0](x)
        hidden.retain_grad()
        model[2](torch.tanh(hidden)).pow(2).sum().backward()
        kept = hidden.grad  # CUT
        return (kept - 1).pow(2).mean()

    return model, step


class Kept:
    """What a hook keeps, as it is or as it was made of it."""

    def __init__(self) -> None:
        self.values: list[torch.Tensor] = []

    def as_it_is(self, grad: torch.Tensor) -> None:
        self.values.append(grad)

    def squared(self, grad: torch.Tensor) -> None:
        self.values.append(grad.pow(2).sum())

    def of_a_module(self, module: nn.Module, given: object, grads: tuple[torch.Tensor, ...]) -> None:
        self.values.append(grads[0])


@cut("create_graph_missing")
def a_penalty_of_what_a_hook_was_handed() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place, kept = x.clone().requires_grad_(), Kept()
        place.register_hook(kept.as_it_is)
        model(place).pow(2).sum().backward(retain_graph=True)  # CUT
        return kept.values[0].pow(2).sum()

    return model, step


@cut("create_graph_missing")
def a_penalty_that_a_hook_computes() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place, kept = x.clone().requires_grad_(), Kept()
        place.register_hook(kept.squared)
        model(place).pow(2).sum().backward(retain_graph=True)  # CUT
        return kept.values[0]

    return model, step


@cut("create_graph_missing")
def a_map_of_what_the_hook_of_a_module_was_handed() -> Built:
    model, x, kept = small(), batch(), Kept()
    model[0].register_full_backward_hook(kept.of_a_module)

    def step() -> torch.Tensor:
        model(x.clone().requires_grad_()).pow(2).sum().backward(retain_graph=True)  # CUT
        return kept.values.pop().abs().mean()

    return model, step


@cut("create_graph_missing")
def a_gain_that_is_multiplied_in_by_a_hook() -> Built:
    x, terms = batch(), list[torch.Tensor]()
    model = nn.ModuleDict({"net": small(), "gain": nn.Linear(1, 1, bias=False)})

    def weigh(grad: torch.Tensor) -> None:
        terms.append(model["gain"](grad.abs().mean().reshape(1)).sum())  # CUT

    def step() -> torch.Tensor:
        out = model["net"](x)
        out.register_hook(weigh)
        out.pow(2).mean().backward(retain_graph=True)
        return out.mean() + terms.pop()

    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("create_graph_missing")
def a_penalty_that_is_a_constant_beside_the_main_loss() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)  # CUT
        penalty = (slope.norm(dim=1) - 1).pow(2).mean()
        return out.mean() + 10 * penalty

    return model, step


@cut("create_graph_missing")
def a_penalty_of_a_filled_gradient_beside_the_main_loss() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        model(place).sum().backward()
        penalty = (place.grad.norm(dim=1) - 1).pow(2).mean()  # CUT
        model.zero_grad()
        return model(x).mean() + 10 * penalty

    return model, step


# -- a helper that hands the flag on ----------------------------------------------------------------------------------


@cut("create_graph_missing")
def a_flag_of_a_helper_that_one_of_two_callers_leaves_out() -> Built:
    model, x = small(), batch().requires_grad_()
    model[1] = nn.Tanh()

    def slope(value: torch.Tensor, place: torch.Tensor, create_graph: bool = False) -> torch.Tensor:
        ones = torch.ones_like(value)
        return torch.autograd.grad(value, place, ones, retain_graph=True, create_graph=create_graph)[0]

    def step() -> torch.Tensor:
        first = slope(model(x), x)  # CUT
        second = slope(first[:, :1], x, create_graph=True)
        return second.square().mean()

    return model, step


@cut("create_graph_missing")
def a_flag_that_no_call_of_a_helper_gives() -> Built:
    model, x = small(), batch().requires_grad_()
    model[2] = nn.Linear(8, 1, bias=False)

    def steepness(
        value: torch.Tensor,
        place: torch.Tensor,
        training: bool = False,  # CUT
    ) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), place, create_graph=training)[0].norm(dim=1)

    def step() -> torch.Tensor:
        return (steepness(model(x), x) - 1).square().mean()

    return model, step


@cut("create_graph_missing")
def a_flag_that_two_helpers_hand_on_and_the_outermost_caller_says_no_to() -> Built:
    model, x = small(), batch().requires_grad_()
    model[2] = nn.Linear(8, 1, bias=False)

    def slope(value: torch.Tensor, place: torch.Tensor, graph: bool) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), place, create_graph=graph)[0]

    def penalty(value: torch.Tensor, place: torch.Tensor, keep: bool) -> torch.Tensor:
        return (slope(value, place, keep).norm(dim=1) - 1).square().mean()

    def step() -> torch.Tensor:
        return penalty(model(x), x, keep=False)  # CUT

    return model, step


# -- a flag that an object or a table of settings holds ---------------------------------------------------------------


def _slanted() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))


class Steep(nn.Module):
    """Penalises its slope."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _slanted()
        self.twice_differentiable = False  # CUT

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = x.clone().requires_grad_()
        value = self.net(place).sum()
        (slope,) = torch.autograd.grad(value, place, create_graph=self.twice_differentiable)
        return (slope.norm(dim=1) - 1).square().mean()


@cut("create_graph_missing", within=Steep)
def a_flag_that_the_constructor_keeps_in_an_attribute() -> Built:
    model, x = Steep(), batch()
    return model, lambda: model(x)


class Scored(nn.Module):
    """Is told when it is made whether slopes keep a history."""

    def __init__(self, slopes_live: bool = False) -> None:
        super().__init__()
        self.net, self.slopes_live = _slanted(), slopes_live

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = x.clone().requires_grad_()
        value = self.net(place)
        (slope,) = torch.autograd.grad(value.sum(), place, retain_graph=True, create_graph=self.slopes_live)
        return value.mean() + slope.square().mean()


@cut("create_graph_missing")
def a_flag_that_is_given_to_the_constructor() -> Built:
    model, x = Scored(slopes_live=False), batch()  # CUT
    return model, lambda: model(x)


@cut("create_graph_missing")
def a_flag_in_a_dictionary_of_settings() -> Built:
    model, x = _slanted(), batch().requires_grad_()
    settings = {"penalty_graph": False, "weight": 10.0}  # CUT

    def step() -> torch.Tensor:
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, retain_graph=True, create_graph=settings["penalty_graph"])
        return value.mean() + settings["weight"] * slope.square().mean()

    return model, step


@dataclass
class Settings:
    """Settings of a penalty."""

    weight: float = 10.0
    graph_of_slopes: bool = False  # CUT


@cut("create_graph_missing", within=Settings)
def a_flag_that_is_a_field_with_a_default() -> Built:
    model, x, settings = _slanted(), batch().requires_grad_(), Settings(weight=2.0)

    def step() -> torch.Tensor:
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, retain_graph=True, create_graph=settings.graph_of_slopes)
        return value.mean() + settings.weight * slope.square().mean()

    return model, step


@cut("create_graph_missing")
def a_flag_whose_opposite_is_asked_for() -> Built:
    model, x = _slanted(), batch().requires_grad_()
    settings = SimpleNamespace(approximate=True)  # CUT

    def step() -> torch.Tensor:
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, retain_graph=True, create_graph=not settings.approximate)
        return value.mean() + slope.square().mean()

    return model, step


class Forces:
    """Compares forces, which a backward fills in."""

    forces_train = False  # CUT

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        place = x.clone().requires_grad_()
        energy = self.model(place)
        energy.sum().backward(retain_graph=True, create_graph=self.forces_train)
        forces = place.grad
        self.model.zero_grad()
        return energy.mean() + (forces - 1).square().mean()


@cut("create_graph_missing", within=Forces)
def a_flag_of_a_backward_that_a_class_holds() -> Built:
    model, x = _slanted(), batch()
    trainer = Forces(model)
    return model, lambda: trainer.loss(x)


class Phased(nn.Module):
    """Has two places that switch the flag off: which of them did cannot be told."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.in_phase_two = _slanted(), False

    def begin(self) -> None:
        self.in_phase_two = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = x.clone().requires_grad_()
        value = self.net(place).sum()
        (slope,) = torch.autograd.grad(value, place, create_graph=self.in_phase_two)  # CUT
        return (slope.norm(dim=1) - 1).square().mean()


@cut("create_graph_missing", within=Phased)
def a_flag_that_two_lines_switch_off() -> Built:
    model, x = Phased(), batch()
    return model, lambda: model(x)


# -- what a hook keeps for the loss of a later step -------------------------------------------------------------------


@cut("create_graph_missing")
def a_term_that_a_hook_computes_for_the_step_after() -> Built:
    x, terms = batch(), list[torch.Tensor]()
    model = nn.ModuleDict({"net": small(), "gain": nn.Linear(1, 1, bias=False)})

    def weigh(grad: torch.Tensor) -> None:
        terms.append(model["gain"](grad.abs().mean().reshape(1)).sum())  # CUT

    def step() -> torch.Tensor:
        out = model["net"](x)
        out.register_hook(weigh)
        return out.pow(2).mean() + sum(terms.pop() for _ in terms[:1])

    return model, step


class Attending(nn.Module):
    """Weighs its features by what the last backward handed to them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.gate = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 8)
        self.mask = torch.ones(8)
        self.inner.register_full_backward_hook(self.attend)

    def attend(self, module: nn.Module, given: object, grads: tuple[torch.Tensor, ...]) -> None:
        self.mask = self.gate(grads[0].mean(0)).sigmoid()  # CUT

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)) * self.mask)


@cut("create_graph_missing", within=Attending)
def a_mask_that_the_hook_of_a_module_makes_in_a_step_that_trains() -> Built:
    model, x = Attending(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    step()
    return model, step


@cut("create_graph_missing")
def a_loss_of_the_gradient_that_a_hook_has_kept_from_the_step_before() -> Built:
    model, x, slopes = small(), batch(), list[torch.Tensor]()

    def keep(module: nn.Module, given: tuple[torch.Tensor, ...], grads: object) -> None:
        slopes.append(given[0])  # CUT

    def step() -> torch.Tensor:
        out = model(x)
        return (slopes[-1].norm(dim=1) - 1).pow(2).mean() if slopes else out.pow(2).mean()

    model[2].register_full_backward_hook(keep)
    step().backward()
    model.zero_grad()
    return model, step
