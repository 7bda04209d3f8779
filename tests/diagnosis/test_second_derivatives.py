"""Custom Functions whose backward is differentiated, and which keep what their forward has computed on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from tests.programs.shared import Built, batch, cut, pair


def _slopes(model: nn.ModuleDict, act: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    points = x.clone().requires_grad_()
    total = model["outer"](act(model["inner"](points))).sum()
    return torch.autograd.grad(total, points, create_graph=True)[0]


@cut("custom_function")
def a_slope_of_what_forward_has_saved_on_the_way() -> Built:
    class LogCosh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            bent = x.tanh()
            ctx.save_for_backward(bent)
            return x.cosh().log()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (bent,) = ctx.saved_tensors
            return grad * bent  # CUT

    model, x = pair(), batch()
    model["outer"] = nn.Linear(4, 1, bias=False)
    return model, lambda: (_slopes(model, LogCosh.apply, x) - 1).square().mean()


@cut("custom_function")
def a_gradient_penalty_through_an_attribute_that_a_helper_uses() -> Built:
    def _weighed(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return grad * weight

    class SoftPlus(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.share = torch.sigmoid(x)
            return torch.log1p(x.exp())

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            share = ctx.share.view_as(grad)
            return _weighed(grad, share)  # CUT

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 1, bias=False)
            self.norm = nn.Parameter(torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(SoftPlus.apply(self.inner(x) + self.norm))

    model, real = Critic(), batch()

    def step() -> torch.Tensor:
        mixed = (0.5 * real + 0.1).requires_grad_()
        grads = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=True)[0]
        return (grads.norm(dim=1) - 1).square().mean()

    return model, step


@cut("custom_function")
def forces_of_distances_that_forward_takes_itself() -> Built:
    class Bumps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, distance: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
            away = distance.unsqueeze(-1) - centres
            bumps = torch.exp(-away.square())
            ctx.save_for_backward(away, bumps)
            return bumps.sum(0)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            away, bumps = ctx.saved_tensors
            slope = -2 * away * bumps * grad  # CUT
            return slope.sum(-1), -slope.sum(0)

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres, self.weights = nn.Parameter(torch.linspace(0, 2, 5)), nn.Parameter(torch.randn(5))

        def forward(self, places: torch.Tensor) -> torch.Tensor:
            return (Bumps.apply(places.norm(dim=1), self.centres) * self.weights).sum()

    model, at, forces = Field(), torch.rand(6, 3), torch.randn(6, 3)

    def step() -> torch.Tensor:
        places = at.clone().requires_grad_()
        pulled = -torch.autograd.grad(model(places), places, create_graph=True)[0]
        return (pulled - forces).square().mean()

    return model, step


@cut("custom_function")
def a_penalty_on_the_slope_at_a_latent_that_has_no_history_at_all() -> Built:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            twice = 2 * x
            ctx.save_for_backward(twice)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (twice,) = ctx.saved_tensors
            return grad * twice  # CUT

    model = nn.Embedding(3, 4)

    def step() -> torch.Tensor:
        slope = torch.autograd.grad(Doubled.apply(model.weight).sum(), model.weight, create_graph=True)[0]
        return slope.square().sum()

    return model, step


@cut("custom_function")
def two_functions_of_which_one_saves_what_it_has_computed() -> Built:
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (out,) = ctx.saved_tensors
            return grad * out

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x.cos())
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return ctx.saved_tensors[0] * grad  # CUT

    model, x = pair(), batch()
    model["outer"] = nn.Linear(4, 1, bias=False)

    def step() -> torch.Tensor:
        plain = Exp.apply(model["outer"].weight).square().mean()
        return plain + _slopes(model, Sine.apply, x).square().mean()

    return model, step


PROGRAMS = [
    a_slope_of_what_forward_has_saved_on_the_way, a_gradient_penalty_through_an_attribute_that_a_helper_uses,
    forces_of_distances_that_forward_takes_itself, a_penalty_on_the_slope_at_a_latent_that_has_no_history_at_all,
    two_functions_of_which_one_saves_what_it_has_computed,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda one: one.__name__)
def test_the_line_of_the_backward_that_computes_with_an_intermediate_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.variant, finding.proof) == ("custom_function", "intermediate", "proven")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


def _bent(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(x.abs() ** 1.5))


class _ByItsCopy(torch.autograd.Function):
    """Takes its slope by a copy that its forward has kept."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return torch.autograd.grad(ctx.out, ctx.x, grad, create_graph=True)[0]


def _penalised(bent: type[torch.autograd.Function]) -> Built:
    model, x = pair(), batch()
    model["outer"] = nn.Linear(4, 1, bias=False)
    return model, lambda: (_slopes(model, bent.apply, x) - 1).square().mean()


@cut("custom_function")
def a_slope_by_a_copy_that_forward_keeps() -> Built:
    class Bent(_ByItsCopy):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.x = x.detach().requires_grad_()  # CUT
            with torch.enable_grad():
                ctx.out = _bent(ctx.x)
            kept: torch.Tensor = ctx.out
            return kept.detach()

    return _penalised(Bent)


@cut("custom_function")
def a_slope_by_a_copy_that_is_made_where_forward_records() -> Built:
    class Bent(_ByItsCopy):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                ctx.x = x.detach().clone().requires_grad_()  # CUT
                ctx.out = _bent(ctx.x)
            kept: torch.Tensor = ctx.out
            return kept.detach()

    return _penalised(Bent)


@pytest.mark.parametrize(
    "build", [a_slope_by_a_copy_that_forward_keeps, a_slope_by_a_copy_that_is_made_where_forward_records],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_the_line_of_the_forward_that_keeps_a_copy_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.variant) == ("custom_function", "copied")
    assert finding.location is not None
    assert {finding.location.line} == vars(build)["faulty"].lines


def test_a_copy_by_which_a_first_derivative_alone_is_taken_is_sound() -> None:
    class Bent(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.x = x.detach().requires_grad_()
            with torch.enable_grad():
                ctx.out = _bent(ctx.x)
            kept: torch.Tensor = ctx.out
            return kept.detach()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return torch.autograd.grad(ctx.out, ctx.x, grad)[0]

    model, x = pair(), batch()
    model["outer"] = nn.Linear(4, 1, bias=False)

    def step() -> torch.Tensor:
        slopes = _slopes(model, torch.tanh, x).square().mean()
        made: torch.Tensor = slopes + Bent.apply(model["inner"](x)).square().mean()
        return made

    assert gradkit.diagnose(step, model=model).healthy


def test_a_function_whose_apply_has_been_given_a_name_before_is_heard_too() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.slope = 2 * x
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * ctx.slope

    model, x, square = pair(), batch(), Square.apply
    model["outer"] = nn.Linear(4, 1, bias=False)
    (finding,) = gradkit.diagnose(lambda: (_slopes(model, square, x) - 1).square().mean(), model=model).findings
    assert (finding.cause, finding.variant) == ("custom_function", "intermediate")


def test_forwards_that_are_run_once_more_draw_nothing_from_the_generator() -> None:
    model, step = a_slope_of_what_forward_has_saved_on_the_way()
    before = torch.get_rng_state()
    gradkit.diagnose(step, model=model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_value_that_comes_out_otherwise_the_second_time_is_not_given_a_history() -> None:
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.noisy = x + torch.rand_like(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * ctx.noisy

    model, x = pair(), batch()
    model["outer"] = nn.Linear(4, 1, bias=False)
    found = gradkit.diagnose(lambda: (_slopes(model, Noisy.apply, x) - 1).square().mean(), model=model).findings
    assert [one.variant for one in found if one.cause == "custom_function"] == []
