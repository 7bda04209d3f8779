"""Programs that lose the gradient by `no_grad_block`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.func import vmap

from tests.programs.shared import Built, batch, cut, pair, small

# -- grad mode --------------------------------------------------------------------------------------------------------


@cut("no_grad_block")
def a_block_with_two_context_managers_on_a_line() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](code.float()).sum()

    return model, step


@cut("no_grad_block")
def a_block_whose_context_managers_stand_on_lines_of_their_own() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            torch.no_grad(),  # CUT
        ):
            code = model["inner"](x)
        return model["outer"](code.float()).sum()

    return model, step


@cut("no_grad_block")
def a_block_inside_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():  # noqa: SIM117  # CUT
            with torch.no_grad():  # CUT
                code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def gradients_enabled_again_too_late() -> Built:
    model, x = pair(middle=nn.Linear(4, 4)), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
            with torch.enable_grad():
                code = model["middle"](code)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_context_manager_in_a_variable() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        context = torch.no_grad()
        with context:  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_context_manager_of_the_users_own() -> Built:
    model, x = pair(), batch()

    @contextlib.contextmanager
    def quietly() -> Iterator[None]:
        with torch.no_grad():  # CUT
            yield

    def step() -> torch.Tensor:
        with quietly():
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_block_entered_by_an_exit_stack() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_block_in_the_call_of_an_object() -> Built:
    model, x = pair(), batch()

    class Encoder:
        def __call__(self, given: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():  # CUT
                return model["inner"](given)

    encoder = Encoder()
    return model, lambda: model["outer"](encoder(x)).sum()


@cut("no_grad_block")
def a_decorator_of_the_users_own() -> Built:
    model, x = pair(), batch()

    def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            with torch.no_grad():  # CUT
                return function(*args)

        return inner

    @quiet
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_block")
def set_grad_enabled_as_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with torch.set_grad_enabled(False):  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def assignment_under_no_grad() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.zeros(6, 4)
        with torch.no_grad():  # CUT
            code[:] = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


# -- detach and .data -------------------------------------------------------------------------------------------------


@cut("no_grad_block")
def a_block_inside_a_pool_that_was_there_before() -> Built:
    model, x, pool = pair(), batch(), ThreadPoolExecutor(1)

    def encode() -> torch.Tensor:
        with torch.no_grad():  # CUT
            return model["inner"](x)

    return model, lambda: model["outer"](pool.submit(encode).result()).sum()


@cut("no_grad_block")
def a_block_inside_vmap_over_weights() -> Built:
    model, x = pair(), batch()

    def encode(weight: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # CUT
            return (x * weight).tanh()

    def step() -> torch.Tensor:
        return model["outer"](vmap(encode)(model["inner"].weight).mean(0) + model["inner"].bias).sum()

    return model, step


@cut("no_grad_block")
def an_inner_backward_that_misses_a_layer_and_nothing_returned() -> Built:
    model, x = pair(), batch()

    def step() -> None:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        model["outer"](code).sum().backward()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@cut("no_grad_block")
def a_block_in_a_model_in_data_parallel() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = pair()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():  # CUT
                code = self.net["inner"](x)
            return self.net["outer"](code)

    model, x = nn.DataParallel(Model()), batch()
    return model, lambda: model(x).sum()


@cut("no_grad_block")
def a_block_around_a_lazy_layer() -> Built:
    model, x = pair(inner=nn.LazyLinear(4)), batch()
    model["inner"](x)

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_block_around_a_layer_with_weight_norm() -> Built:
    model, x = pair(inner=nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("no_grad_block")
def a_block_around_a_scripted_module() -> Built:
    model, x = pair(inner=torch.jit.script(nn.Linear(4, 4))), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("no_grad_block")
def a_block_in_front_of_a_custom_function() -> Built:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * 2

    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](Double.apply(code)).sum()

    return model, step


# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("no_grad_block")
def a_layer_run_in_a_block_and_its_output_kept_in_a_buffer() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        buffer = torch.zeros(6, 4)
        with torch.no_grad():  # CUT
            buffer.copy_(model["inner"](x))
        return model["outer"](buffer).sum()

    return model, step


@cut("no_grad_block")
def a_buffer_made_and_filled_in_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        with torch.no_grad():  # CUT
            buffer = torch.zeros(6, 4)
            buffer[:] = code
        return model["outer"](buffer).sum()

    return model, step


# -- where gradients are asked for in the step -------------------------------------------------------------------------


@cut("no_grad_block")
def a_meta_loss_that_was_only_recorded() -> Built:
    model, x = nn.Linear(4, 1), batch()

    def step() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(model(x).square().mean(), [model.weight], create_graph=True)
        fast = model.weight - 0.1 * gradient
        with torch.no_grad():  # CUT
            recorded = (x @ fast.T).square().mean()
        return recorded / 2

    return model, step


@cut("no_grad_block")
def a_gradient_asked_for_through_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        moved = x.clone().requires_grad_()
        with torch.no_grad():  # CUT
            hidden = torch.tanh(moved)
        loss = model["outer"](model["inner"](hidden)).sum()
        (slope,) = torch.autograd.grad(loss, moved, create_graph=True)
        return loss + slope.sum()

    return model, step


@cut("no_grad_block")
def a_samplers_guidance_asked_for_under_no_grad() -> Built:
    model, x = nn.ModuleDict({"score": small(), "scale": nn.Linear(1, 1)}), batch()
    model["score"].requires_grad_(False)

    def guidance(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(model["score"](x).square().sum(), x)[0]

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            moved = x - model["scale"](torch.ones(1)) * guidance(x)
        return moved.square().sum()

    return model, step
