"""Sound programs that look like `create_graph_missing` and are not."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

from tests.programs.shared import Built, batch, small, sound

# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def a_gradient_penalty() -> Built:
    x = batch()
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))

    def step() -> torch.Tensor:
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(point).sum(), point, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean()

    return model, step


def _adapted(model: nn.Module, x: torch.Tensor, *, second_order: bool) -> dict[str, torch.Tensor]:
    weights = dict(model.named_parameters())
    for _ in range(3):
        loss = F.mse_loss(functional_call(model, weights, (x,)), torch.ones(6, 1))
        grads = torch.autograd.grad(loss, weights.values(), create_graph=second_order)
        weights = {name: old - 0.1 * new for (name, old), new in zip(weights.items(), grads, strict=True)}
    return weights


@sound
def meta_learning_of_second_order() -> Built:
    model, x = small(), batch()
    return model, lambda: functional_call(model, _adapted(model, x, second_order=True), (x,)).pow(2).mean()


@sound
def meta_learning_of_first_order() -> Built:
    model, x = small(), batch()
    return model, lambda: functional_call(model, _adapted(model, x, second_order=False), (x,)).pow(2).mean()


@sound
def derivatives_by_torch_func() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        weights = dict(model.named_parameters())
        slopes = vmap(grad(lambda row: functional_call(model, weights, (row,)).sum()))(x)
        return model(x).pow(2).mean() + slopes.pow(2).mean() + jacrev(model)(x[0]).pow(2).sum()

    return model, step


@sound
def a_gradient_of_something_else_that_is_allowed_to_fail() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            torch.autograd.grad(x.sum(), x)
        with contextlib.suppress(RuntimeError):
            x.sum().backward()
        return model(x).sum()

    return model, step


# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_first_order_inner_step() -> Built:
    model, x = nn.Linear(4, 1), batch()

    def step() -> torch.Tensor:
        inner = model(x).pow(2).mean()
        slopes = torch.autograd.grad(inner, list(model.parameters()))
        weight, bias = (p - 0.1 * slope for p, slope in zip(model.parameters(), slopes, strict=True))
        return F.linear(x, weight, bias).pow(2).mean()

    return model, step


# -- torch.func -------------------------------------------------------------------------------------------------------


@sound
def a_step_size_that_vmap_leaves_out_of_the_graph() -> Built:
    model, x = small(), batch()

    def one(row: torch.Tensor) -> torch.Tensor:
        out = model(row)
        return (out * out.detach().abs()).sum()

    return model, lambda: vmap(one)(x).sum()


@sound
def a_jacobian_penalty_by_forward_mode() -> Built:
    model, x = small(), batch()
    return model, lambda: torch.func.jvp(model, (x,), (torch.ones_like(x),))[1].pow(2).sum() + model(x).sum()


@sound
def slopes_for_each_sample_by_vmap_of_grad() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = lambda weights, row: functional_call(model, weights, (row,)).tanh().sum()  # noqa: E731
        slopes = vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x)
        return model(x).sum() + sum(slope.detach().norm() for slope in slopes.values()) * 0.1

    return model, step


@sound
def forces_of_an_energy_whose_last_bias_drops_out() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        (force,) = torch.autograd.grad(model(place).sum(), place, create_graph=True)
        return (force + 1).square().mean()

    return model, step


# -- gradients that backward has filled in ----------------------------------------------------------------------------


@sound
def forces_that_backward_recorded() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1, bias=False)), batch()

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        model(place).sum().backward(create_graph=True)
        forces = -place.grad
        model.zero_grad()
        return (forces - 1).pow(2).mean()

    return model, step


@sound
def a_weight_made_of_a_filled_gradient() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        model(place).sum().backward()
        weight = place.grad.norm(dim=1, keepdim=True)
        model.zero_grad()
        return (weight / weight.mean() * model(x).pow(2)).mean()

    return model, step


@sound
def weights_that_are_moved_by_hand_between_two_losses() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model(x).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return model(x).pow(2).mean()

    return model, step


@sound
def hooks_that_read_gradients_for_a_log() -> Built:
    model, x, log = small(), batch(), list[torch.Tensor]()
    model[0].register_full_backward_hook(lambda module, given, grads: log.append(grads[0].norm()))

    def step() -> torch.Tensor:
        out = model(x.clone().requires_grad_())
        out.register_hook(lambda grad: log.append(grad.abs().mean()))
        first = out.pow(2).mean()
        first.backward(retain_graph=True)
        scale = 1 / (1 + torch.stack(log).sum())
        log.clear()
        return scale * first

    return model, step


@sound
def a_helper_that_is_asked_for_a_weight_without_a_graph_and_for_a_term_with_one() -> Built:
    x = batch().requires_grad_()
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))

    def slope(value: torch.Tensor, create_graph: bool = False) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), x, retain_graph=True, create_graph=create_graph)[0]

    def step() -> torch.Tensor:
        value = model(x)
        weight = 1 / (1 + slope(value).abs().mean())
        return weight * (slope(value, create_graph=True) + value).square().mean()

    return model, step


# -- a flag that an object or a table of settings holds ---------------------------------------------------------------


class Adapting(nn.Module):
    """Adapts its weights in an inner step, of first order unless it is told otherwise."""

    def __init__(self, second_order: bool = False) -> None:
        super().__init__()
        self.net, self.second_order = nn.Linear(4, 1), second_order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = list(self.net.parameters())
        slopes = torch.autograd.grad(self.net(x).square().mean(), weights, create_graph=self.second_order)
        weight, bias = (p - 0.1 * slope for p, slope in zip(weights, slopes, strict=True))
        return F.linear(x, weight, bias).square().mean()


@sound
def an_inner_step_whose_order_an_attribute_decides() -> Built:
    model, x = Adapting(), batch()
    return model, lambda: model(x)


@sound
def a_slope_for_the_log_whose_history_the_settings_switch_off() -> Built:
    model, x = small(), batch().requires_grad_()
    settings, log = {"second_order": False}, list[float]()

    def step() -> torch.Tensor:
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, retain_graph=True, create_graph=settings["second_order"])
        log.append(slope.norm().item())
        return value.mean() / (1 + slope.norm(dim=1)).mean()

    return model, step


@sound
def a_penalty_whose_history_the_settings_switch_on() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False)), batch()
    settings = {"history": True}

    def step() -> torch.Tensor:
        place = x.clone().requires_grad_()
        value = model(place)
        (slope,) = torch.autograd.grad(value.sum(), place, retain_graph=True, create_graph=settings["history"])
        return value.mean() + slope.square().mean()

    return model, step


# -- what a hook keeps for a later step -------------------------------------------------------------------------------


class Listening(nn.Module):
    """Computes of the last gradient where autograd records."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.gate = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 8)
        self.last = torch.ones(8)
        self.inner.register_full_backward_hook(self.keep)

    def keep(self, module: nn.Module, given: object, grads: tuple[torch.Tensor, ...]) -> None:
        self.last = grads[0].mean(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)) * self.gate(self.last).sigmoid())


@sound
def a_mask_made_in_the_step_of_the_gradient_of_the_step_before() -> Built:
    model, x = Listening(), batch()
    model(x).pow(2).mean().backward()
    model.zero_grad()
    return model, lambda: model(x).pow(2).mean()


@sound
def losses_that_are_weighed_by_the_gradients_of_the_step_before() -> Built:
    model, x, seen = small(), batch(), {"norm": torch.ones(())}
    model[2].register_full_backward_hook(lambda module, given, grads: seen.update(norm=given[0].norm()))

    def step() -> torch.Tensor:
        return model(x).pow(2).mean() / (1 + seen["norm"])

    step().backward()
    model.zero_grad()
    return model, step
