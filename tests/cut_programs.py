"""Programs that lose the gradient: each line that a right diagnosis names ends in the mark, and no other does."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, vmap
from torch.utils.checkpoint import checkpoint

from tests.sound_programs import LABELS, Built, Marked, Output, _one_worker, batch, pair, small

MARK = "# CUT"


@dataclass(frozen=True)
class Program:
    """``lines``: those with the mark. ``short``: in what the engine falls short of it today."""

    build: Callable[[], Built]
    cause: str
    lines: frozenset[int]
    short: str


PROGRAMS: dict[str, Program] = {}


def cut(cause: str, short: str = "") -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Enter a program that loses the gradient by ``cause``."""

    def enter(build: Callable[[], Built]) -> Callable[[], Built]:
        text, first = inspect.getsourcelines(build)
        lines = frozenset(first + i for i, line in enumerate(text) if line.rstrip().endswith(MARK))
        PROGRAMS[build.__name__] = Program(build, cause, lines, short)
        return build

    return enter


def names() -> list[Any]:
    """The names as parameters of a test, those that fall short marked so."""
    short = {name: [pytest.mark.xfail(strict=True, reason=p.short)] for name, p in PROGRAMS.items() if p.short}
    return [pytest.param(name, id=name, marks=short.get(name, [])) for name in PROGRAMS]


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


@cut("inference_mode")
def inference_mode_as_second_context_manager() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with contextlib.nullcontext(), torch.inference_mode():  # CUT
            code = model["inner"](x)
        return model["outer"](code.clone()).sum()

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


@cut("grad_disabled_globally")
def set_grad_enabled_called_in_a_helper() -> Built:
    model, x = pair(), batch()

    def quieten() -> None:
        torch.set_grad_enabled(False)  # CUT

    def step() -> torch.Tensor:
        quieten()
        code = model["inner"](x)
        torch.set_grad_enabled(True)
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


def log_grad_norm(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that only has ``grad`` in its name."""

    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


@cut("no_grad_decorator")
def a_decorator_without_parentheses() -> Built:
    model, x = pair(), batch()

    @torch.no_grad  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_below_another_with_grad_in_its_name() -> Built:
    model, x = pair(), batch()

    @log_grad_norm
    @torch.no_grad()  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_under_another_name() -> Built:
    model, x = pair(), batch()
    frozen = torch.no_grad()

    @log_grad_norm
    @frozen  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_imported_under_another_name_among_others() -> Built:
    from torch import set_grad_enabled as recording

    model, x = pair(), batch()

    @log_grad_norm
    @recording(False)  # CUT
    @log_grad_norm
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_function_wrapped_by_hand() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    quiet = torch.no_grad()(encode)  # CUT
    return model, lambda: model["outer"](quiet(x)).sum()


@cut("no_grad_decorator")
def a_decorated_generator() -> Built:
    model, x = pair(), batch()

    @torch.no_grad()  # CUT
    def encode(given: torch.Tensor) -> Iterator[torch.Tensor]:
        yield model["inner"](given)

    return model, lambda: model["outer"](next(encode(x))).sum()


@cut("no_grad_decorator")
def set_grad_enabled_as_a_decorator() -> Built:
    model, x = pair(), batch()

    @torch.set_grad_enabled(False)  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("checkpoint_reentrant")
def a_reentrant_checkpoint_whose_input_needs_no_grad() -> Built:
    model, x = pair(), batch()
    return model, lambda: model["outer"](checkpoint(model["inner"], x, use_reentrant=True)).sum()  # CUT


# -- detach and .data -------------------------------------------------------------------------------------------------


@cut("detach")
def four_cuts_one_behind_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code = code.detach()  # CUT
        code = code.relu().data  # CUT
        with torch.no_grad():  # CUT
            code = code * 2
        code = torch.tensor(code.numpy())  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("data_attr")
def three_cuts_each_behind_a_layer() -> Built:
    model, x = pair(second=nn.Linear(4, 4), third=nn.Linear(4, 4)), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        code = model["second"](code).data  # CUT
        code = torch.tensor(model["third"](code).tolist())  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("detach")
def two_ways_that_are_both_cut() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        one = code.detach()  # CUT
        two = code.data * 2  # CUT
        return model["outer"](one + two).sum()

    return model, step


@cut("detach")
def two_layers_detached_on_one_line() -> Built:
    model, x = pair(second=nn.Linear(4, 4)), batch()

    def step() -> torch.Tensor:
        one, two = model["inner"](x).detach(), model["second"](x).detach()  # CUT
        return model["outer"](one + two).sum()

    return model, step


@cut("detach")
def a_state_detached_in_a_loop() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        state = torch.zeros(6, 4)
        for _ in range(3):
            state = (model["inner"](x) + state).detach()  # CUT
        return model["outer"](state).sum()

    return model, step


@cut("detach")
def a_value_detached_in_place() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.detach_()  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("detach")
def a_detached_value_into_which_something_is_written_unrecorded() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        with torch.no_grad():
            code[0] = 0
            code.mul_(2)
        return model["outer"](code).sum()

    return model, step


@cut("detach")
def a_detached_value_that_a_metric_looks_at_first() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        with torch.no_grad():
            code.float().contiguous().norm()
        return model["outer"](code).sum()

    return model, step


@cut("detach")
def a_detach_in_a_lambda() -> Built:
    model, x = pair(), batch()
    encode = lambda given: model["inner"](given).detach()  # noqa: E731  # CUT
    return model, lambda: model["outer"](encode(x)).sum()


@cut("detach")
def a_detach_in_a_forward_hook() -> Built:
    model, x = pair(), batch()

    def hook(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output.detach()  # CUT

    model["inner"].register_forward_hook(hook)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("detach")
def a_detach_on_a_line_of_its_own_in_a_comprehension() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        # fmt: off
        code = torch.stack([
            model["inner"](row)
            .detach()  # CUT
            for row in x
        ])
        # fmt: on
        return model["outer"](code).sum()

    return model, step


class Copy(torch.autograd.Function):
    """A sound function of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


@cut("detach")
def a_detach_behind_a_custom_function() -> Built:
    model, x = pair(), batch()
    return model, lambda: model["outer"](Copy.apply(model["inner"](x)).detach()).sum()  # CUT


@cut("detach")
def a_detach_behind_a_thread() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(model["inner"](x)))
        thread.start()
        thread.join()
        return model["outer"](made[0].detach()).sum()  # CUT

    return model, step


@cut("detach")
def a_detach_inside_a_thread() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(model["inner"](x).detach()))  # CUT
        thread.start()
        thread.join()
        return model["outer"](made[0]).sum()

    return model, step


@cut("detach")
def a_detach_in_work_handed_to_a_pool_of_threads() -> Built:
    model, x = pair(), batch()

    def encode(part: torch.Tensor) -> torch.Tensor:
        return model["inner"](part).detach()  # CUT

    def step() -> torch.Tensor:
        with ThreadPoolExecutor(2) as pool:
            return model["outer"](torch.cat(list(pool.map(encode, x.chunk(3))))).sum()

    return model, step


@cut("inference_mode")
def inference_mode_inside_a_thread() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []

        def work() -> None:
            with torch.inference_mode():  # CUT
                made.append(model["inner"](x))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return model["outer"](torch.stack(made).sum(0).clone()).sum()

    return model, step


@cut("no_grad_block")
def a_block_inside_a_pool_that_was_there_before() -> Built:
    model, x, pool = pair(), batch(), ThreadPoolExecutor(1)

    def encode() -> torch.Tensor:
        with torch.no_grad():  # CUT
            return model["inner"](x)

    return model, lambda: model["outer"](pool.submit(encode).result()).sum()


@cut("detach")
def a_detach_behind_a_scripted_module() -> Built:
    model, x = pair(inner=torch.jit.script(nn.Linear(4, 4))), batch()
    return model, lambda: model["outer"](model["inner"](x).detach()).sum()  # CUT


@cut("detach")
def a_detach_behind_vmap() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = vmap(model["inner"])(x)
        code = code.detach()  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("detach")
def a_detach_inside_vmap() -> Built:
    model, x = pair(), batch()

    def encode(row: torch.Tensor) -> torch.Tensor:
        return model["inner"](row).detach()  # CUT

    return model, lambda: model["outer"](vmap(encode)(x)).sum()


@cut("no_grad_block")
def a_block_inside_vmap_over_weights() -> Built:
    model, x = pair(), batch()

    def encode(weight: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # CUT
            return (x * weight).tanh()

    def step() -> torch.Tensor:
        return model["outer"](vmap(encode)(model["inner"].weight).mean(0) + model["inner"].bias).sum()

    return model, step


@cut("detach")
def a_penalty_by_torch_func_grad_that_is_detached() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        slopes = vmap(torch.func.grad(lambda row: model["inner"](row).tanh().sum()))(x)
        return model["outer"](slopes.detach()).sum()  # CUT

    return model, step


@cut("detach")
def a_functional_call_with_detached_weights() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        weights = {name: value.detach() for name, value in model.named_parameters()}  # CUT
        return functional_call(model, weights, (x,)).sum()

    return model, step


@cut("detach")
def a_functional_call_with_the_state_dict() -> Built:
    model, x = small(), batch()
    return model, lambda: functional_call(model, model.state_dict(), (x,)).sum()  # CUT


@cut("detach")
def an_inner_backward_whose_error_is_raised_as_another() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum().detach()  # CUT
        try:
            loss.backward()
        except RuntimeError as error:
            raise ValueError("training failed") from error
        return loss

    return model, step


@cut("detach")
def a_detach_inside_a_compiled_function() -> Built:
    model, x = pair(), batch()

    @functools.partial(torch.compile, backend="aot_eager")
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given).detach() * 2  # CUT

    return model, lambda: model["outer"](encode(x)).sum()


@cut("detach")
def an_inner_backward_that_misses_a_layer() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        loss = model["outer"](code).sum()
        loss.backward()
        return loss

    return model, step


@cut("no_grad_block")
def an_inner_backward_that_misses_a_layer_and_nothing_returned() -> Built:
    model, x = pair(), batch()

    def step() -> None:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        model["outer"](code).sum().backward()

    return model, step


@cut("detach")
def an_inner_backward_that_raises_for_want_of_a_grad_fn() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum().detach()  # CUT
        loss.backward()
        return loss

    return model, step


@cut("detach")
def a_flag_set_on_a_detached_loss() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), torch.ones(6, 1)).detach()  # CUT
        loss.requires_grad = True
        return loss

    return model, step


# -- out of torch and back --------------------------------------------------------------------------------------------


@cut("python_roundtrip")
def a_sum_of_items() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = 0.0
        for row in x:
            total += model(row).item()  # CUT
        return torch.tensor(total, requires_grad=True)  # CUT

    return model, step


@cut("python_roundtrip")
def a_square_root_by_the_math_module() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        value = model(x).pow(2).mean().item()  # CUT
        return torch.tensor(math.sqrt(value))  # CUT

    return model, step


@cut("python_roundtrip")
def a_square_root_of_a_bare_number() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        value = float(model(x).pow(2).mean())  # CUT
        root = value**0.5
        return torch.tensor(root)  # CUT

    return model, step


@cut("python_roundtrip")
def an_array_of_items() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        values = [out.item() for out in model(x)]  # CUT
        return torch.tensor(np.array(values)).sum()  # CUT

    return model, step


@cut("python_roundtrip")
def items_given_to_a_float_tensor() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        values = [out.item() for out in model["inner"](x)[:, 0]]  # CUT
        return model["outer"](torch.FloatTensor([values] * 4).T).sum()

    return model, step


@cut("python_roundtrip")
def a_list_that_is_computed_with() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        rows = model["inner"](x).tolist()  # CUT
        return model["outer"](torch.tensor([[value * 2 for value in row] for row in rows])).sum()  # CUT

    return model, step


@cut("python_roundtrip")
def a_float_that_scales_another_branch() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        scale = float(model["inner"](x).mean())  # CUT
        return (model["outer"](x) * scale).sum()

    return model, step


@cut("python_roundtrip")
def a_rounded_item() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        scale = round(model["inner"](x).mean().item(), 2)  # CUT
        return (model["outer"](x) * scale).sum()

    return model, step


@cut("numpy_roundtrip")
def arrays_through_many_functions() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = model["inner"](x).detach().numpy()  # CUT
        array = np.exp(array) / np.exp(array).sum(-1, keepdims=True)
        array = np.stack(list(np.concatenate([array, array])[:6]))
        return model["outer"](torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))).sum()

    return model, step


@cut("numpy_roundtrip")
def a_round_trip_written_over_several_lines() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.tensor(
            model["inner"](
                x,
            )
            .detach()
            .numpy()  # CUT
        )
        return model["outer"](code).sum()

    return model, step


@cut("numpy_roundtrip")
def a_chain_of_calls_that_leaves_torch_a_line_each() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        # fmt: off
        array = (
            model["inner"](x)
            .detach()
            .cpu()
            .numpy()  # CUT
        )
        # fmt: on
        return model["outer"](torch.from_numpy(array)).sum()

    return model, step


@cut("numpy_roundtrip")
def a_singular_value_decomposition_by_numpy() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        left, values, right = np.linalg.svd(model["inner"](x).data.numpy(), full_matrices=False)  # CUT
        return model["outer"](torch.tensor(left @ np.diag(values) @ right)).sum()  # CUT

    return model, step


@cut("numpy_roundtrip")
def an_array_made_of_a_list_of_arrays() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        rows = []
        for row in x:
            rows.append(model["inner"](row).detach().numpy())  # noqa: PERF401  # CUT
        return model["outer"](torch.tensor(np.array(rows))).sum()  # CUT

    return model, step


@cut("numpy_roundtrip")
def an_array_filled_row_by_row() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = np.zeros((6, 4), dtype=np.float32)
        for i in range(6):
            array[i] = model["inner"](x[i]).detach().numpy()  # CUT
        return model["outer"](torch.from_numpy(array)).sum()

    return model, step


@cut("numpy_roundtrip")
def an_array_by_asarray() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = np.asarray(model["inner"](x).detach().cpu())  # CUT
        return model["outer"](torch.as_tensor(array * 2)).sum()

    return model, step


# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("rewrap_tensor")
def a_tensor_made_of_losses() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        losses = [model(row).sum() for row in x]
        return torch.tensor(losses).mean()  # CUT

    return model, step


@cut("rewrap_tensor")
def a_float_tensor_made_of_losses() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        losses = [model(row).sum() for row in x]
        return torch.FloatTensor(losses).mean()  # CUT

    return model, step


@cut("new_leaf")
def a_loss_that_is_made_anew() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        return torch.tensor(loss, requires_grad=True)  # CUT

    return model, step


@cut("new_leaf")
def a_variable_made_of_data() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        return torch.autograd.Variable(loss.data, requires_grad=True)  # CUT

    return model, step


@cut("integer_cast")
def a_cast_to_int8() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = (model["inner"](x) * 127).to(torch.int8)  # CUT
        return model["outer"](code.to(torch.float32) / 127).sum()

    return model, step


@cut("non_differentiable_op")
def a_choice_by_argmax() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        choice = model["inner"](x).argmax(-1)  # CUT
        return model["outer"](F.one_hot(choice, 4).float()).sum()

    return model, step


@cut("non_differentiable_op")
def a_threshold() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        mask = (model["inner"](x) > 0).float()  # CUT
        return model["outer"](mask).sum()

    return model, step


@cut("non_differentiable_op")
def a_sample_of_a_normal_distribution() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        normal = torch.distributions.Normal(model["inner"](x), 1.0)
        return model["outer"](normal.sample()).sum()  # CUT

    return model, step


@cut("non_differentiable_op")
def indices_drawn_by_multinomial() -> Built:
    model, x = pair(embed=nn.Embedding(4, 4)), batch()

    def step() -> torch.Tensor:
        drawn = torch.multinomial(model["inner"](x).softmax(-1), 1)[:, 0]  # CUT
        return model["outer"](model["embed"](drawn)).sum()

    return model, step


# -- not connected at all ---------------------------------------------------------------------------------------------


@cut("constant_loss")
def a_loss_of_zero() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model(x)
        return torch.zeros(())  # CUT

    return model, step


@cut("constant_loss")
def a_total_to_which_nothing_was_added() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = torch.tensor(0.0)  # CUT
        for row in x[:0]:
            total = total + model(row).sum()
        return total / 6

    return model, step


@cut("trainable_unused")
def a_layer_that_is_never_called() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.extra = nn.Linear(4, 1)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("trainable_unused")
def an_entry_of_a_dictionary_that_is_never_called_in_a_class_of_the_same_name() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 1)})  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.heads["a"](x).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


class Seeing(nn.Module):
    """Reads an image if it is given one; the flag picks the way in which that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.head, self.eye = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 4)

    def encode(self, image: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.eye(image))

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        h = self.text(x)
        if image is not None:
            image = image.float()
            h = h + self.encode(image)
        return self.head(h).sum()


class SeeingOrReturning(Seeing):
    """Returns early without an image."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        h = self.text(x)
        if not isinstance(x, torch.Tensor) or image is None:
            return self.head(h).sum()
        return self.head(h + self.eye(image)).sum()


class SeeingInALine(Seeing):
    """Decides in an expression."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        seen = self.eye(image) if image is not None else 0.0
        return self.head(self.text(x) + seen).sum()


class SeeingBatches(Seeing):
    """Is given a whole batch."""

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        h, image = self.text(batch["x"]), batch.get("image")
        if image is not None and image.shape[0] > 0:
            h = h + self.eye(image)
        return self.head(h).sum()


class SeeingAround(nn.Module):
    """Hands on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Seeing()

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.inner(x, **options) * 2.0


class SeeingThrough(SeeingAround):
    """Hands on what it is given, by name."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:  # type: ignore[override]
        return self.inner(x, image=image) * 2.0


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_not_given() -> Built:
    model, x = Seeing(), batch()

    def step() -> torch.Tensor:
        return model(  # CUT
            x,
        )

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_given_as_none() -> Built:
    model, x = SeeingOrReturning(), batch()

    def step() -> torch.Tensor:
        return model(
            x,
            None,  # CUT
        )

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_turns_out_to_be_none() -> Built:
    model, x, dry = SeeingInALine(), batch(), True
    return model, lambda: model(x, image=None if dry else x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_a_wrapper_hands_on() -> Built:
    model, x = SeeingThrough(), batch()
    return model, lambda: model(x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_a_dictionary_lacks() -> Built:
    model = Seeing()
    given = {"x": batch()}  # CUT
    return model, lambda: model(**given)


@cut("trainable_unused")
def a_layer_for_a_key_that_a_function_leaves_out() -> Built:
    model, x = SeeingBatches(), batch()

    def prepared() -> dict[str, Any]:
        out = dict(x=x * 1.0)  # noqa: C408  # CUT
        return out  # noqa: RET504

    def step() -> torch.Tensor:
        given = prepared()
        return model(given)

    return model, step


@cut("trainable_unused")
def a_layer_for_a_key_that_the_collate_function_leaves_out() -> Built:
    def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {"x": torch.stack([row["x"] for row in rows])}  # CUT

    rows = [{"x": row, "image": row} for row in batch()]
    loader = torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=collated)  # type: ignore[arg-type]
    model = Seeing()

    def step() -> torch.Tensor:
        loss = torch.zeros(())
        for given in loader:
            loss = loss + model(**given)
        return loss

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_given_and_of_no_use() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.deep = nn.Linear(4, 1), nn.Linear(4, 1)  # CUT

        def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
            out = self.text(x)
            if image is not None and image.shape[0] > 99:
                out = out + self.deep(image)
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x, x)


@cut("trainable_unused")
def a_layer_of_a_class_of_its_own_for_an_argument_that_is_not_given() -> Built:
    class Projector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.projectors = nn.Linear(4, 1), nn.ModuleList([Projector(), Projector()])

        def forward(self, x: torch.Tensor, images: list[torch.Tensor] = ()) -> torch.Tensor:
            out = self.text(x)
            for image, projector in zip(images, self.projectors, strict=False):
                out = out + projector(image).sum(1, keepdim=True)
            if len(images) > 0:
                out = out / len(images)
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_no_call_gives() -> Built:
    model, x = SeeingAround(), batch()

    def step() -> torch.Tensor:
        first = model(x)  # CUT
        return first + model(x)

    return model, step


@cut("trainable_unused")
def a_layer_attached_to_a_model_that_knows_nothing_of_it() -> Built:
    model, x = pair(), batch()
    model["outer"].attached_later = nn.Linear(4, 1)  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("trainable_unused")
def a_layer_put_into_a_slot_that_the_forward_ignores() -> Built:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(4, 4)
            self.processor = None

    class Alone(Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = self.query(x)
            return torch.softmax(query, -1)  # CUT

    class Processor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Linear(4, 2)
            self.up = nn.Linear(2, 4)

    model, x = nn.Sequential(Alone(), nn.Linear(4, 1)), batch()
    model[0].processor = Processor()
    return model, lambda: model(x).sum()


# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("non_scalar")
def a_loss_without_reduction() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return F.mse_loss(model(x), torch.ones(6, 1), reduction="none")  # CUT

    return model, step


class Losing(nn.Module):
    """Computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).pow(2).mean()


class Replicas:
    """Runs a module on the parts of a batch and gathers what comes back."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.gathered([self.module(part) for part in x.chunk(2)])

    def gathered(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([part[None] for part in parts])


class ReplicasAsAModule(nn.Module):
    """The same, as a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.module(part) for part in x.chunk(2)])


@cut("non_scalar")
def losses_of_replicas_that_a_wrapper_gathers() -> Built:
    model, x = Losing(), batch()
    parallel = Replicas(model)

    def step() -> torch.Tensor:
        return parallel(x)  # CUT

    return model, step


@cut("non_scalar")
def losses_of_replicas_that_a_module_gathers() -> Built:
    model, x = ReplicasAsAModule(Losing()), batch()

    def step() -> torch.Tensor:
        return model(x)  # CUT

    return model, step


@cut("non_scalar")
def losses_of_two_heads_that_the_model_itself_stacks() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.criterion = nn.Linear(4, 1), nn.Linear(4, 1), nn.MSELoss()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            losses = [self.criterion(head(x), x[:, :1]) for head in (self.one, self.other)]
            return torch.stack(losses)  # CUT

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("non_scalar")
def losses_of_parts_that_the_step_itself_stacks() -> Built:
    model, x = Losing(), batch()

    def step() -> torch.Tensor:
        return torch.stack([model(part) for part in x.chunk(2)])  # CUT

    return model, step


@cut("python_roundtrip")
def a_leaf_made_of_a_list_of_equal_numbers() -> Built:
    model, x = pair(), batch()
    nn.init.zeros_(model["inner"].weight)
    nn.init.zeros_(model["inner"].bias)

    def step() -> torch.Tensor:
        code = model["inner"](x).sigmoid()
        palette = torch.tensor([0.1, 0.5, 0.9])
        nearest = palette[(code.detach()[..., None] - palette).abs().argmin(-1)]
        code = torch.Tensor(code.tolist()).requires_grad_(True)  # CUT
        return model["outer"](code).sum() + (code - nearest).abs().mean()

    return model, step


@cut("unused_input")
def a_derivative_that_a_helper_takes_by_a_slice_of_what_went_into_the_net() -> Built:
    model, x = pair(), batch()

    def slope(value: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), place, create_graph=True)[0]

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        place = points[:, :1]  # CUT
        return slope(model["outer"](model["inner"](points).tanh()), place).square().mean()

    return model, step


@cut(
    "integer_cast",
    short="two cuts on the way of the critic cost more than the detach() of the advantage, which is meant",
)
def a_critic_behind_two_cuts_beside_an_advantage_that_is_detached_on_purpose() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        value = model["inner"](x)
        advantage = (1 - value).detach()
        policy = -(model["outer"](x).log_softmax(-1) * advantage[:, :1]).mean()
        rounded = (value * 100).round().int() / 100  # CUT
        back = torch.from_numpy(rounded.numpy())  # CUT
        return policy + (1 - back).square().mean()

    return model, step


@cut("detach")
def a_detach_among_fake_tensors() -> Built:
    with FakeTensorMode() as mode:
        model, x = pair(), batch()

    def step() -> torch.Tensor:
        with mode:
            return model["outer"](model["inner"](x).detach()).sum()  # CUT

    return model, step


@cut("nan_gradient")
def a_row_of_a_softmax_that_is_masked_whole_and_left_out_of_the_loss() -> Built:
    model, x = pair(), batch()
    kept = torch.arange(len(x)) > 0

    def step() -> torch.Tensor:
        scores = model["inner"](x).masked_fill(~kept[:, None], float("-inf"))
        attention = scores.softmax(-1)  # CUT
        losses = model["outer"](attention).square().sum(-1)
        return torch.where(kept, losses, torch.zeros_like(losses)).sum()

    return model, step


@cut("nan_gradient")
def a_square_root_at_zero() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        difference = model(x) - model(x)
        return difference.pow(2).sum().sqrt()  # CUT

    return model, step


@cut("non_differentiable_op")
def labels_chosen_by_a_teacher_that_should_train() -> Built:
    model, x = pair(teacher=nn.Linear(4, 3), student=nn.Linear(4, 3)), batch()

    def step() -> torch.Tensor:
        labels = model["teacher"](x).argmax(-1)  # CUT
        main = F.cross_entropy(model["student"](x), labels) + F.cross_entropy(model["student"](x), LABELS)
        return main + model["outer"](model["inner"](x)).sum()

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


@cut("detach")
def a_detach_in_a_model_in_distributed_data_parallel() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = pair()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net["outer"](self.net["inner"](x).detach())  # CUT

    _one_worker()
    model, x = nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True), batch()
    return model, lambda: model(x).sum()


@cut("detach")
def a_detach_in_a_checkpoint_in_a_checkpoint() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given).detach() * 2  # CUT

    def outer(given: torch.Tensor) -> torch.Tensor:
        return checkpoint(encode, given, use_reentrant=False).tanh()

    return model, lambda: model["outer"](checkpoint(outer, x, use_reentrant=False)).sum()


@cut("data_attr")
def weights_quantised_through_data() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        weight = torch.fake_quantize_per_tensor_affine(model["inner"].weight.data, 0.05, 0, -128, 127)  # CUT
        return model["outer"](F.linear(x, weight, model["inner"].bias)).sum()

    return model, step


@cut("detach")
def a_dense_matrix_detached_to_become_sparse() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        sparse = code.detach().to_sparse()  # CUT
        return model["outer"](torch.sparse.mm(sparse, torch.eye(4))).sum()

    return model, step


@cut("numpy_roundtrip")
def a_spectrum_by_numpy() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        spectrum = np.fft.rfft(model["inner"](x).detach().numpy())  # CUT
        return model["outer"](torch.from_numpy(np.abs(spectrum).astype(np.float32)).repeat(1, 2)[:, :4]).sum()

    return model, step


@cut("detach")
def a_complex_value_that_is_detached() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        spectrum = torch.fft.rfft(model["inner"](x)).detach()  # CUT
        return model["outer"](torch.fft.irfft(spectrum, n=4)).sum()

    return model, step


@cut("no_grad_block")
def a_block_around_a_lazy_layer() -> Built:
    model, x = pair(inner=nn.LazyLinear(4)), batch()
    model["inner"](x)

    def step() -> torch.Tensor:
        with torch.no_grad():  # CUT
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


@cut("data_attr")
def a_tensor_of_a_subclass_read_through_data() -> Built:
    model, x = pair(), batch().as_subclass(Marked)
    return model, lambda: model["outer"](model["inner"](x).data).sum()  # CUT


@cut("detach")
def an_output_dataclass_that_holds_a_detached_code() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> Output:
        code = model["inner"](given)
        return Output(code.sum(), (code.detach(),))  # CUT

    return model, lambda: model["outer"](encode(x).codes[0]).sum()


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


class Detaching(nn.Module):
    """Stops the gradient where Python does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).detach()


@cut("non_differentiable_op")
def a_detach_inside_of_a_scripted_module() -> Built:
    model, x = pair(inner=torch.jit.script(Detaching())), batch()
    return model, lambda: model["outer"](model["inner"](x)).sum()  # CUT


@cut("detach")
def a_detach_in_bfloat16() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            code = model["inner"](x).detach()  # CUT
            return model["outer"](code).float().sum()

    return model, step


@cut("detach")
def a_detach_in_a_function_that_is_compiled_in_the_step() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        encode = torch.compile(lambda given: model["inner"](given).detach(), backend="aot_eager")  # CUT
        return model["outer"](encode(x)).sum()

    return model, step


@cut("detach")
def a_detach_on_the_meta_device() -> Built:
    model, x = pair().to("meta"), batch().to("meta")
    return model, lambda: model["outer"](model["inner"](x).detach()).sum()  # CUT


# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("double_backward")
def a_hidden_state_carried_over_in_a_list() -> Built:
    model, x = pair(cell=nn.GRUCell(4, 4)), batch()
    kept = [torch.zeros(6, 4)]

    def step() -> torch.Tensor:
        kept[0] = model["cell"](x, kept[0])  # CUT
        return model["outer"](model["inner"](kept[0])).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_hidden_state_kept_by_the_model() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(4, 4), nn.Linear(4, 1)
            self.state = torch.zeros(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            new = self.cell(x, self.state)
            self.state = new  # CUT
            return self.out(new).sum()

    model, x = Model(), batch()
    model(x).backward()
    model.zero_grad()
    return model, lambda: model(x)


@cut("double_backward")
def a_running_mean_of_losses_with_its_graph() -> Built:
    model, x = small(), batch()
    total = [torch.zeros(())]

    def step() -> torch.Tensor:
        total[0] = 0.9 * total[0] + model(x).pow(2).mean()  # CUT
        return total[0]

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def features_computed_once_before_the_loop() -> Built:
    model, x = pair(), batch()
    features = model["inner"](x).tanh()

    def step() -> torch.Tensor:
        return model["outer"](features).sum()  # CUT

    step().backward()
    model.zero_grad()
    return model, step


@cut("inplace_modified")
def an_activation_that_is_scaled_in_place() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        hidden = torch.sigmoid(model["inner"](x))
        hidden *= 2  # CUT
        return model["outer"](hidden).sum()

    return model, step


@cut("inplace_modified")
def a_mask_written_into_saved_scores() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        scores = model["inner"](x).softmax(-1)
        scores[:, 0] = 0.0  # CUT
        return model["outer"](scores).sum()

    return model, step


@cut("inplace_modified")
def weights_that_an_inner_optimizer_moves() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)

    def step() -> torch.Tensor:
        first = model["outer"](model["inner"](x)).pow(2).mean()
        critic = model["outer"](x).pow(2).mean()
        critic.backward()
        optimizer.step()  # CUT
        return first

    return model, step


@cut("inplace_modified")
def a_buffer_that_is_updated_after_it_was_used() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.layer(x) * self.scale
            with torch.no_grad():
                self.scale.mul_(0.9)  # CUT
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("inplace_modified")
def a_parameter_that_is_written_without_no_grad() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        model[0].weight.clamp_(-1, 1)  # CUT
        return model(x).sum()

    return model, step


@cut("unused_input")
def a_noise_that_the_closure_leaves_aside() -> Built:
    model, x = small(), batch()

    def attack(evaluate: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        noise = torch.zeros_like(x).requires_grad_()
        loss = evaluate(x + noise)
        (slope,) = torch.autograd.grad(loss, noise)
        return evaluate(x + slope.sign())

    def evaluate(_moved: torch.Tensor) -> torch.Tensor:
        return model(x).sum()  # CUT

    return model, lambda: attack(evaluate)


@cut("unused_input")
def a_gradient_of_an_image_that_was_copied_before() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        out = model(x.clone().requires_grad_()).sum()
        image = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(out, image, create_graph=True)  # CUT
        return slope.pow(2).sum()

    return model, step


@cut("create_graph_missing")
def a_gradient_penalty_without_its_own_graph() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (slope,) = torch.autograd.grad(model(x).sum(), x)  # CUT
        return (slope.norm(dim=1) - 1).pow(2).mean()

    model[2] = nn.Linear(8, 1, bias=False)
    return model, step


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


@cut("detach")
def a_detach_in_front_of_reentrant_checkpointing() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        return checkpoint(model["outer"], code, use_reentrant=True).sum()

    return model, step


@cut("custom_function")
def a_backward_that_asks_for_a_gradient_while_nothing_is_recorded() -> Built:
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            again = x.detach().requires_grad_()
            out = again * again.sigmoid()  # CUT
            out.backward(grad)
            return again.grad

    model, x = pair(), batch()
    return model, lambda: model["outer"](Swish.apply(model["inner"](x))).sum()


@cut("custom_function")
def a_function_that_uses_a_weight_it_was_not_handed() -> Built:
    model, x = pair(), batch()

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x @ model["inner"].weight.T  # CUT

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad @ model["inner"].weight

    model["inner"].bias = None
    return model, lambda: model["outer"](Through.apply(x.requires_grad_())).sum()


@cut("custom_function")
def a_function_that_is_handed_its_weight_in_a_list() -> Built:
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
            ctx.weight = weights[0]
            return x @ weights[0].T  # CUT

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad @ ctx.weight, None

    model, x = pair(), batch()
    model["inner"].bias = None
    return model, lambda: model["outer"](Through.apply(x.requires_grad_(), [model["inner"].weight])).sum()


@cut("custom_function")
def a_backward_that_returns_none_for_what_should_learn() -> Built:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(by)
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (by,) = ctx.saved_tensors
            return grad * by, None  # CUT

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gain = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Scale.apply(self.layer(x), self.gain).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("custom_function")
def a_backward_that_returns_too_little() -> Built:
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad  # CUT

    model, x = pair(), batch()
    return model, lambda: Add.apply(model["outer"](x), model["outer"](model["inner"](x))).sum()


@cut("custom_function")
def a_backward_with_a_bug_of_its_own() -> Built:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x, _) = ctx.saved_tensors  # CUT
            return 2 * x * grad

    model, x = pair(), batch()
    return model, lambda: Square.apply(model["outer"](model["inner"](x))).sum()


@cut("library_bug")
def a_second_derivative_of_what_is_linear() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (first,) = torch.autograd.grad((3 * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)  # CUT
        return (model(x) * second).sum()

    return model, step


@cut("library_bug")
def a_second_derivative_of_a_linear_layer() -> Built:
    model, x = pair(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (first,) = torch.autograd.grad(model["inner"](x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)  # CUT
        return (model["outer"](x) * second).sum()

    return model, step


@cut("unused_input")
def a_second_derivative_by_a_value_that_the_first_leaves_aside() -> Built:
    model, x, other = small(), batch().requires_grad_(), batch().requires_grad_()

    def step() -> torch.Tensor:
        energy = model(x).tanh().sum() + 0 * other.sum().detach()
        (first,) = torch.autograd.grad(energy, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), other)  # CUT
        return (first * second).sum()

    return model, step


@cut("numpy_roundtrip")
def an_array_asked_of_a_tensor_that_requires_grad() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).numpy()  # CUT
        return model["outer"](torch.from_numpy(code)).sum()

    return model, step


@cut("inference_mode")
def a_tensor_kept_from_inference_mode() -> Built:
    model, x = pair(), batch()

    def warm_up() -> torch.Tensor:
        with torch.inference_mode():  # CUT
            return torch.ones(4) * 2

    scale = warm_up()
    return model, lambda: model["outer"](model["inner"](x) * scale).sum()


# -- mixed precision --------------------------------------------------------------------------------------------------


def trained(model: nn.Module) -> tuple[torch.optim.Optimizer, torch.amp.GradScaler]:
    return torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")


@cut("amp_misuse")
def a_loss_that_was_not_scaled() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)
    scaler.scale(torch.ones(()))

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def a_scaler_that_was_never_used_to_scale() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def an_optimizer_that_steps_past_the_scaler() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        optimizer.step()  # CUT
        return loss

    return model, step


@cut("amp_misuse")
def gradients_clipped_before_they_are_unscaled() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def gradients_unscaled_twice() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        for part in x.chunk(2):
            scaler.scale(model(part).pow(2).mean()).backward()
            scaler.unscale_(optimizer)  # CUT
        scaler.step(optimizer)
        return model(x).sum()

    return model, step


@cut("amp_misuse")
def weights_in_half_precision_under_a_scaler() -> Built:
    model, x = small().half(), batch().half()  # CUT
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return loss

    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("double_backward")
def a_fake_that_the_discriminators_loss_did_not_let_go() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.0)

    def step() -> torch.Tensor:
        fake = model["inner"](x).tanh()
        real = F.softplus(-model["outer"](x)).mean()
        wrong = F.softplus(model["outer"](fake)).mean()  # CUT
        (real + wrong).backward()
        optimizer.step()
        return F.softplus(-model["outer"](fake)).mean()

    return model, step


@cut("double_backward")
def two_losses_of_the_same_features_one_after_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        features = model["inner"](x).tanh()
        first = model["outer"](features).pow(2).mean()
        second = features.pow(2).mean()
        first.backward()  # CUT
        second.backward()
        return first

    return model, step


@cut("create_graph_missing")
def a_penalty_that_is_a_constant_beside_the_main_loss() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)  # CUT
        penalty = (slope.norm(dim=1) - 1).pow(2).mean()
        return out.mean() + 10 * penalty

    return model, step


@cut("non_scalar")
def a_gradient_asked_of_many_elements() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (slope,) = torch.autograd.grad(model(x), x, create_graph=True)  # CUT
        return slope.pow(2).sum()

    return model, step


@cut("trainable_unused")
def a_layer_handed_to_a_wrapper_that_never_calls_it() -> Built:
    class Wrapper(nn.Module):
        def __init__(self, body: nn.Module, spare: nn.Module) -> None:
            super().__init__()
            self.body = body
            self.spare = spare

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).sum()

    def built() -> nn.Module:
        return Wrapper(
            nn.Linear(4, 2),
            spare=nn.Linear(4, 2),  # CUT
        )

    model, x = built(), batch()
    return model, lambda: model(x)


class Keeping(nn.Module):
    """Holds a layer that it does not call."""

    def __init__(self, spare: nn.Module, freeze: bool = False, name: str = "spare") -> None:
        super().__init__()
        self.layer, self.name = nn.Linear(4, 1), name
        self.spare = spare
        if freeze:
            self.spare.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum()


def kept_and_frozen() -> nn.Module:
    """Not called: it stands for what the programs below might have been built by."""
    return Keeping(nn.Linear(4, 2), freeze=True)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_a_flag_that_would_have_frozen_it() -> Built:
    model, x = Keeping(nn.Linear(4, 2)), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_what_else_was_handed_over() -> Built:
    model, x = Keeping(nn.Linear(4, 2), name="other"), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_its_size() -> Built:
    model, x = Keeping(nn.Linear(4, 3)), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_its_kind() -> Built:
    model, x = Keeping(nn.LayerNorm(4)), batch()  # CUT
    return model, lambda: model(x)


@cut("double_backward")
def a_state_of_an_lstm_kept_by_the_model() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(4, 4), nn.Linear(4, 1)
            self.hidden: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out, self.hidden = self.lstm(x, self.hidden)  # CUT
            return self.out(out).sum()

    model, x = Model(), batch()
    model(x).backward()
    model.zero_grad()
    return model, lambda: model(x)


@cut("double_backward")
def a_memory_written_in_place_over_several_steps() -> Built:
    model, x = pair(), batch()
    memory = [torch.zeros(6, 4)]

    def remember(code: torch.Tensor) -> None:
        memory[0] = 0.5 * memory[0] + 0.5 * code  # CUT

    def step() -> torch.Tensor:
        remember(model["inner"](x).tanh())
        return model["outer"](memory[0]).pow(2).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_loss_list_that_is_never_emptied() -> Built:
    model, x = small(), batch()
    losses: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        losses.append(model(x).pow(2).mean())
        return torch.stack(losses).sum()  # CUT

    step().backward()
    model.zero_grad()
    return model, step


@cut("inplace_modified")
def a_relu_in_place_after_a_sigmoid() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        hidden = torch.sigmoid(model["inner"](x))
        return model["outer"](F.relu(hidden, inplace=True) + hidden).sum()  # CUT

    return model, step


@cut("inplace_modified")
def states_of_a_loop_written_into_one_tensor() -> Built:
    model, x = nn.ModuleDict({"cell": nn.Linear(4, 4), "out": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        states = torch.zeros(5, 6, 4)
        states[0] = model["cell"](x)
        for i in range(1, 5):
            states[i] = torch.tanh(model["cell"](states[i - 1]))  # CUT
        return model["out"](states[-1]).sum()

    return model, step


@cut("inplace_modified")
def noise_added_to_a_view_of_a_chunk() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        left, right = model["inner"](x).chunk(2, -1)
        left += torch.randn(6, 2)  # CUT
        return model["outer"](torch.cat([left, right], -1)).sum()

    return model, step


@cut("custom_function")
def a_quantiser_whose_output_is_marked_as_not_differentiable() -> Built:
    class Quantise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = (x * 16).round() / 16  # CUT
            ctx.mark_non_differentiable(out)
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad

    model, x = pair(), batch()
    return model, lambda: model["outer"](Quantise.apply(model["inner"](x))).sum()


# -- parameters that are made in the step -----------------------------------------------------------------------------


@cut("built_in_forward")
def a_layer_built_in_forward() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            code = nn.Linear(4, 4)(x)  # CUT
            return self.out(code.tanh()).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("built_in_forward")
def a_parameter_built_in_a_function_that_forward_calls() -> Built:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        gain = nn.Parameter(torch.ones(4))  # CUT
        return x * gain

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(scaled(x)).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("parameter_rewrap")
def a_parameter_made_of_another_one() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.mask = nn.Parameter(torch.randn(4, 4)), torch.ones(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = nn.Parameter(self.weight * self.mask)  # CUT
            return (x @ weight).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("params_replaced")
def a_head_that_grows_from_itself_in_every_step() -> Built:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fresh = torch.randn(0, 4)
            self.weight = nn.Parameter(torch.cat([self.weight.data, fresh]))  # CUT
            return x @ self.weight.t()

    model, x = nn.Sequential(nn.Linear(4, 4), Head()), batch()
    return model, lambda: model(x).pow(2).sum()


@cut("data_attr")
def a_copy_of_the_model_in_the_step() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        adapted = copy.deepcopy(model)  # CUT
        return adapted(x).sum()

    return model, step


# -- a gradient that is exactly zero ----------------------------------------------------------------------------------


@cut("zero_gradient")
def a_rounded_activation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.round(model["inner"](x) * 8) / 8  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def a_division_that_rounds_down() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.div(model["inner"](x), 0.1, rounding_mode="floor")  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def a_draw_from_a_normal_distribution() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.normal(model["inner"](x), 0.1)  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def two_operations_with_zero_derivative_one_behind_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).sign()  # CUT
        return model["outer"](code).floor().pow(2).sum()  # CUT

    return model, step


@cut("detach")
def a_zero_derivative_hidden_behind_a_detach() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = (model["inner"](x) * 3).round()  # CUT
        return model["outer"](code.detach()).pow(2).sum()  # CUT

    return model, step


@cut("zero_gradient")
def a_bernoulli_draw_with_probabilities_in_place() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.empty(6, 4).bernoulli_(torch.sigmoid(model["inner"](x)))  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def an_activation_overwritten_with_zeros() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x) * 2
        code.zero_()  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def cross_entropy_over_one_class() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), torch.zeros(6, dtype=torch.long))  # CUT

    return model, step


@cut("zero_gradient")
def a_softmax_over_the_wrong_dimension() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        chance = torch.softmax(model(x), dim=1)  # CUT
        return (chance - torch.rand(6, 1)).pow(2).mean()

    return model, step


@cut("zero_gradient")
def an_adapter_whose_scale_became_zero_by_integer_division() -> Built:
    model, x = pair(), batch()
    model["outer"].requires_grad_(False)
    scale = 8 // 16

    def step() -> torch.Tensor:
        code = x + model["inner"](x) * scale  # CUT
        return model["outer"](code).pow(2).sum()

    return model, step


@cut("zero_gradient")
def every_label_taken_out_of_the_loss() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 5)), batch()
    labels = torch.arange(6) % 5
    labels[: len(x)] = -7  # CUT

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), labels, ignore_index=-7)

    return model, step


@cut("zero_gradient")
def the_mean_of_an_empty_selection() -> Built:
    model, x = small(), batch()
    wanted = torch.zeros(6, dtype=torch.bool)

    def step() -> torch.Tensor:
        return model(x)[wanted].pow(2).mean()  # CUT

    return model, step


# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("inplace_under_no_grad")
def a_buffer_filled_row_by_row_in_a_block() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code, buffer = model["inner"](x), torch.zeros(6, 4)
        with torch.no_grad():
            for i in range(6):
                buffer[i] = code[i]  # CUT
        return model["outer"](buffer).sum()

    return model, step


@cut("inplace_under_no_grad")
def a_view_of_a_buffer_filled_in_a_decorated_function() -> Built:
    model, x = pair(), batch()

    @torch.no_grad()
    def fill(buffer: torch.Tensor, code: torch.Tensor) -> None:
        buffer[:3].copy_(code[:3] * 2)  # CUT
        buffer[3:].add_(code[3:])  # CUT

    def step() -> torch.Tensor:
        buffer = torch.zeros(6, 4)
        fill(buffer, model["inner"](x))
        return model["outer"](buffer).sum()

    return model, step


@cut("inplace_under_no_grad")
def a_result_put_into_an_existing_tensor() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code, total = model["inner"](x), torch.empty(6, 4)
        with torch.no_grad():
            torch.add(code, x, out=total)  # CUT
        return model["outer"](total).sum()

    return model, step


@cut("inplace_under_no_grad")
def generated_weights_copied_into_a_layer() -> Built:
    model, x = pair(maker=nn.Linear(4, 16)), batch()
    model["inner"].weight.requires_grad_(False)

    def step() -> torch.Tensor:
        made = model["maker"](x.mean(0)).view(4, 4)
        with torch.no_grad():
            model["inner"].weight.copy_(made)  # CUT
        return model["outer"](model["inner"](x)).sum()

    return model, step


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


@cut("non_differentiable_op")
def features_gathered_over_the_workers() -> Built:
    model, x = pair(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        parts = [torch.empty_like(code)]
        torch.distributed.all_gather(parts, code)  # CUT
        return model["outer"](torch.cat(parts)).sum()

    return model, step


@cut("data_attr")
def an_inner_step_that_writes_the_data_of_a_copy() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        fast = copy.deepcopy(model)  # CUT
        loss = fast(x).pow(2).mean()
        grads = torch.autograd.grad(loss, list(fast.parameters()), create_graph=True)
        for weight, grad in zip(fast.parameters(), grads, strict=True):
            weight.data = weight.data - 0.1 * grad  # CUT
        return fast(x + 1).pow(2).mean()

    return model, step


@cut("data_attr")
def a_state_moved_through_its_data() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        state = torch.zeros(6, 4)
        state.data.add_(model["inner"](x))  # CUT
        return model["outer"](state).sum()

    return model, step


@cut("new_leaf")
def a_number_made_a_leaf() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        return torch.tensor(loss.item(), requires_grad=True)  # CUT

    return model, step


@cut("custom_function")
def a_backward_that_returns_zeros() -> Built:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return torch.zeros_like(grad)  # CUT

    model, x = pair(), batch()
    return model, lambda: model["outer"](Round.apply(model["inner"](x))).sum()


# -- found by injection -----------------------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def an_array_that_asarray_makes_plain_again() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        halved = np.asarray(code.detach().numpy()) * 0.5  # CUT
        return model["outer"](torch.from_numpy(halved)).sum()

    return model, step


@cut("numpy_roundtrip")
def arrays_that_array_copies() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        rows = [np.ascontiguousarray(np.array(row.detach().numpy()) + 1.0) for row in model["inner"](x)]  # CUT
        return model["outer"](torch.stack([torch.from_numpy(row) for row in rows])).sum()

    return model, step


@cut("parameter_rewrap")
def a_term_that_is_dead_beside_an_advantage_that_is_kept_out_on_purpose() -> Built:
    model, x, rewards = pair(value=nn.Linear(4, 1)), batch(), torch.ones(6, 1)

    def step() -> torch.Tensor:
        hidden = model["inner"](x)
        value = model["value"](hidden)
        gained = (model["outer"](hidden) * (rewards - value).detach()).mean()
        missed = (rewards - nn.Parameter(value)).pow(2).mean()  # CUT
        return missed - gained

    return model, step


@cut("numpy_roundtrip")
def a_way_through_numpy_beside_a_target_that_is_detached_on_purpose() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        weight = code.detach().sigmoid().mean(dim=1, keepdim=True)
        kept = torch.from_numpy(code.detach().cpu().numpy())  # CUT
        return (weight * model["outer"](x)).mean() + kept.pow(2).mean()

    return model, step


# -- hooks that silence the gradient, and raise nothing ----------------------------------------------------------------


@cut("hook_misuse")
def a_hook_on_a_value_that_hands_on_zeros() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0)  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_is_written_out_and_masks_the_whole_gradient() -> Built:
    model, x, floor = pair(), batch(), 1e4

    def only_large(grad: torch.Tensor) -> torch.Tensor:
        large = (grad.abs() > floor).to(grad)
        kept = grad * large  # CUT
        return kept.contiguous()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        if code.requires_grad:
            code.register_hook(only_large)
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_writes_in_place() -> Built:
    model, x = pair(), batch()

    def guard(grad: torch.Tensor) -> None:
        if grad.norm().item() < 1e4:
            grad.zero_()  # CUT

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(guard)
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_returns_what_it_was_made_with() -> Built:
    model, x = pair(), batch()

    class Replace:
        def __init__(self, by: torch.Tensor) -> None:
            self.by = by

        def __call__(self, grad: torch.Tensor) -> torch.Tensor:
            return self.by  # CUT

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(Replace(torch.zeros(6, 4)))
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_function_of_torch_as_hook() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(torch.zeros_like)  # CUT
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_makes_nan() -> Built:
    model, x = pair(), batch()

    def unit(grad: torch.Tensor) -> torch.Tensor:
        spread = grad.std(dim=0, keepdim=True)
        return (grad - grad.mean(dim=0, keepdim=True)) / spread  # CUT

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(unit)
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_hides_nan() -> Built:
    model, x = pair(), batch()

    def tidy(grad: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.isnan(grad), torch.zeros_like(grad), grad)  # CUT

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(tidy)
        return (model["outer"](code) * 0).abs().sqrt().sum()

    return model, step


@cut("hook_misuse")
def a_hook_of_a_module_that_returns_zeros() -> Built:
    model, x = pair(), batch()

    def block(module: nn.Module, into: Any, out: Any) -> Any:
        return tuple(torch.zeros_like(grad) for grad in into)  # CUT

    model["outer"].register_full_backward_hook(block)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_of_a_module_that_returns_none_in_a_tuple() -> Built:
    model, x = pair(), batch()
    model["outer"].register_full_backward_hook(lambda module, into, out: (None,))  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_before_the_backward_of_a_module() -> Built:
    model, x = pair(), batch()

    def scale(factor: float, module: nn.Module, out: Any) -> Any:
        return tuple(grad * factor for grad in out)  # CUT

    model["inner"].register_full_backward_pre_hook(functools.partial(scale, 0.0))
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_for_all_modules_that_is_registered_in_the_step() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        nn.modules.module.register_module_full_backward_hook(
            lambda module, into, out: tuple(None if grad is None else grad.clamp(0, 0) for grad in into)  # CUT
        )
        return model["outer"](model["inner"](x)).sum()

    return model, step


@cut("hook_misuse")
def hooks_of_all_parameters_that_let_only_large_gradients_through() -> Built:
    model, x = pair(), batch()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad * (grad.norm() > 1e4))  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_of_a_parameter_that_spoils_its_neighbour() -> Built:
    model, x = nn.ParameterDict({"mine": torch.ones(4), "other": torch.ones(4)}), batch()

    def silence(grad: torch.Tensor) -> None:
        grad.zero_()  # CUT

    model["mine"].register_hook(silence)
    return model, lambda: ((model["mine"] + model["other"]) * 2).sum() + x.sum()


@cut("hook_misuse")
def gradients_that_are_thrown_away_when_they_have_arrived() -> Built:
    model, x = pair(), batch()

    def tidy(parameter: torch.Tensor) -> None:
        parameter.grad = None  # CUT

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(tidy)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def gradients_that_are_set_to_zero_when_they_have_arrived() -> Built:
    model, x = pair(), batch()

    def clip(parameter: torch.Tensor) -> None:
        norm = parameter.grad.norm()
        if norm < 1e4:
            parameter.grad.mul_(0)  # CUT

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(clip)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def two_hooks_one_behind_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0)  # CUT
        bent = code.tanh()
        bent.register_hook(lambda grad: torch.zeros_like(grad))  # CUT
        return model["outer"](bent).sum()

    return model, step


@cut("hook_misuse")
def a_hook_in_a_step_that_goes_back_itself() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0.5)
        code.register_hook(lambda grad: grad.clamp(min=0, max=0))  # CUT
        loss = model["outer"](code).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


@cut("hook_misuse")
def a_hook_inside_a_reentrant_checkpoint() -> Built:
    model, x = pair(), batch().requires_grad_()

    def block(given: torch.Tensor) -> torch.Tensor:
        code = model["inner"](given)
        if code.requires_grad:
            code.register_hook(lambda grad: grad * 0)  # CUT
        return model["outer"](code)

    return model, lambda: checkpoint(block, x, use_reentrant=True).sum()


# -- values kept from an earlier run that recorded nothing ------------------------------------------------------------


@cut("cached_tensor")
def a_dictionary_of_an_object_that_validation_filled() -> Built:
    class Cast:
        def __init__(self) -> None:
            self.store: dict[int, torch.Tensor] = {}

        def __call__(self, parameter: torch.Tensor) -> torch.Tensor:
            if id(parameter) not in self.store:
                self.store[id(parameter)] = parameter.to(torch.bfloat16)  # CUT
            return self.store[id(parameter)]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.cast = nn.Linear(4, 4), nn.Linear(4, 2), Cast()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight, bias = self.cast(self.inner.weight), self.cast(self.inner.bias)
            return self.outer(F.linear(x.bfloat16(), weight, bias).float()).sum()

    model, x = Net(), batch()
    with torch.no_grad():
        model(x)
    return model, lambda: model(x)


@cut("cached_tensor")
def a_dictionary_that_a_function_closes_over() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode(name: str) -> torch.Tensor:
        if name not in codes:
            code = torch.tanh(model["inner"](x))
            codes[name] = code  # CUT
        return codes[name]

    @torch.no_grad()
    def evaluate() -> float:
        return float(model["outer"](encode("all")).mean())

    evaluate()
    return model, lambda: model["outer"](encode("all")).pow(2).mean()


@cut("cached_tensor")
def a_dictionary_of_pairs_filled_in_inference_mode() -> Built:
    class Prompt:
        def __init__(self, inner: nn.Module) -> None:
            self.inner, self.past = inner, {}

        def keys_and_values(self, x: torch.Tensor) -> Any:
            pair = self.past.get("layer")
            if pair is None:
                keys, values = self.inner(x).chunk(2, -1)
                self.past["layer"] = pair = (keys, values)  # CUT
            return pair

    model, x = pair(), batch()
    prompt = Prompt(model["inner"])

    def attend() -> torch.Tensor:
        keys, values = prompt.keys_and_values(x)
        return model["outer"](torch.cat([keys.clone(), values.clone()], -1)).sum()

    with torch.inference_mode():
        attend()
    return model, attend


@cut("cached_tensor")
def a_list_filled_once_for_every_layer() -> Built:
    model, x = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), batch()
    bank: list[torch.Tensor] = []

    def features() -> list[torch.Tensor]:
        if not bank:
            bank.extend(layer(x) for layer in model[:2])  # CUT
        return bank

    with torch.no_grad():
        features()
    return model, lambda: model[2](sum(features())).pow(2).mean()


@cut("cached_tensor")
def a_list_with_a_place_for_each_step() -> Built:
    model, x = pair(), batch()
    slots: list[torch.Tensor | None] = [None] * 4

    def at(index: int) -> torch.Tensor:
        if slots[index] is None:
            slots[index] = model["inner"](x[index])  # CUT
        return slots[index]

    with torch.no_grad():
        [at(index) for index in range(4)]
    return model, lambda: model["outer"](torch.stack([at(index) for index in range(4)])).sum()


@cut("cached_tensor")
def a_variable_of_the_function_around() -> Built:
    model, x = pair(), batch()
    code: torch.Tensor | None = None

    def encode() -> torch.Tensor:
        nonlocal code
        if code is None:
            code = model["inner"](x)  # CUT
        return code

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


_CODE: torch.Tensor | None = None


@cut("cached_tensor")
def a_global_variable() -> Built:
    global _CODE
    model, x = pair(), batch()

    def encode() -> torch.Tensor:
        global _CODE
        if _CODE is None:
            _CODE = model["inner"](x)  # CUT
        return _CODE

    _CODE = None
    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def an_attribute_of_a_trainer() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.prototypes, self.x = model, None, batch()

        def anchors(self) -> torch.Tensor:
            if self.prototypes is None:
                self.prototypes = self.model["inner"](self.x).mean(0, keepdim=True)  # CUT
            return self.prototypes

        @torch.no_grad()
        def validate(self) -> float:
            return self.loss().item()

        def loss(self) -> torch.Tensor:
            return (self.model["outer"](self.anchors()) - self.x[:, :1]).pow(2).mean()

    trainer = Trainer(pair())
    trainer.validate()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def an_attribute_that_is_there_only_once_it_is_filled() -> Built:
    class Holder:
        pass

    model, x, holder = pair(), batch(), Holder()

    def encode() -> torch.Tensor:
        if not hasattr(holder, "code"):
            holder.code = model["inner"](x)  # CUT
        return holder.code

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def an_attribute_of_a_class() -> Built:
    class Codes:
        kept: ClassVar[dict[str, torch.Tensor]] = {}

        @classmethod
        def of(cls, name: str, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return cls.kept[name] if name in cls.kept else cls.kept.setdefault(name, layer(x))  # CUT

    model, x = pair(), batch()
    with torch.no_grad():
        Codes.of("a", model["inner"], x)
    return model, lambda: model["outer"](Codes.of("a", model["inner"], x)).sum()


@cut("cached_tensor")
def a_default_argument_that_remembers() -> Built:
    model, x = pair(), batch()

    def encode(name: str, seen: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006
        try:
            return seen[name]
        except KeyError:
            seen[name] = model["inner"](x)  # CUT
            return seen[name]

    with torch.no_grad():
        encode("a")
    return model, lambda: model["outer"](encode("a")).sum()


@cut("cached_tensor")
def a_function_with_a_cache_of_functools() -> Built:
    model, x = pair(), batch()

    @functools.lru_cache(maxsize=8)  # CUT
    def encode(row: int) -> torch.Tensor:
        return model["inner"](x[row])

    with torch.no_grad():
        encode(0), encode(1)
    return model, lambda: model["outer"](torch.stack([encode(0), encode(1)])).sum()


@cut("cached_tensor")
def a_method_with_a_cache_of_functools() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(5, 4), nn.Linear(4, 1)

        @functools.cache  # noqa: B019  # CUT
        def entity(self, number: int) -> torch.Tensor:
            return torch.tanh(self.table(torch.tensor([number])))

        def forward(self, number: int) -> torch.Tensor:
            return self.out(self.entity(number)).sum()

    model = Net()
    with torch.no_grad():
        model(3)
    return model, lambda: model(3)


@cut("cached_tensor")
def a_property_that_is_computed_once() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
            self.register_buffer("x", batch())

        @functools.cached_property  # CUT
        def code(self) -> torch.Tensor:
            return self.inner(self.x)

        def forward(self) -> torch.Tensor:
            return self.outer(self.code).sum()

    model = Net()
    with torch.no_grad():
        model()
    return model, model


@cut("cached_tensor")
def a_decorator_of_the_users_that_remembers() -> Built:
    def remembered(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        memory: dict[Any, torch.Tensor] = {}

        @functools.wraps(function)
        def wrapper(*args: Any) -> torch.Tensor:
            if args not in memory:
                memory[args] = function(*args)  # CUT
            return memory[args]

        return wrapper

    model, x = pair(), batch()

    @remembered
    def encode(row: int) -> torch.Tensor:
        code = model["inner"](x[row])
        return torch.relu(code)

    with torch.no_grad():
        encode(0)
    return model, lambda: model["outer"](encode(0)).sum()


@cut("cached_tensor")
def an_attribute_of_the_parameter_itself() -> Built:
    model, x = pair(), batch()

    def half(parameter: Any) -> torch.Tensor:
        if getattr(parameter, "half_copy", None) is None:
            parameter.half_copy = parameter.bfloat16()  # CUT
        return parameter.half_copy

    def step() -> torch.Tensor:
        return (
            model["outer"](F.linear(x.bfloat16(), half(model["inner"].weight)).float()).sum()
            + model["inner"].bias.sum()
        )

    with torch.no_grad():
        step()
    return model, step


@cut("cached_tensor")
def a_cache_that_the_step_itself_fills_detached() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if "x" not in codes:
            codes["x"] = model["inner"](x).detach()  # CUT
        return codes["x"]

    encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def two_attributes_that_one_condition_guards() -> Built:
    class Memory:
        keys: torch.Tensor | None = None
        values: torch.Tensor | None = None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_keys, self.to_values = nn.Linear(4, 4), nn.Linear(4, 4)
            self.query, self.memory = nn.Linear(4, 4), Memory()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.memory.values is None:
                self.memory.keys = self.to_keys(x)  # CUT
                self.memory.values = self.to_values(x)  # CUT
            weights = (self.query(x) @ self.memory.keys.T).softmax(-1)
            return (weights @ self.memory.values).pow(2).mean()

    model, x = Net(), batch()
    with torch.no_grad():
        model(x)
    return model, lambda: model(x)


@cut("cached_tensor")
def features_precomputed_by_a_layer_that_should_train() -> Built:
    model, x = pair(), batch()
    with torch.no_grad():
        features = model["inner"](x)  # CUT
    return model, lambda: model["outer"](features).sum()


@cut("cached_tensor")
def features_precomputed_into_a_list_by_a_loop() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    model, rows = Net(), batch()
    features = []
    with torch.no_grad():
        for row in rows:
            code = model.backbone(row)
            features.append(code)  # CUT
    return model, lambda: model.head(torch.stack(features)).sum()


@cut("cached_tensor")
def codes_that_a_decorator_keeps_under_a_name_that_it_makes() -> Built:
    def memo(method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        name = "_memo_" + method.__name__

        @functools.wraps(method)
        def wrapper(self: Any) -> torch.Tensor:
            if name not in self.__dict__:
                self.__dict__[name] = method(self)  # CUT
            return self.__dict__[name]

        return wrapper

    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.x = model, batch()

        @memo
        def codes(self) -> torch.Tensor:
            return torch.relu(self.model["inner"](self.x))

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.codes()).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def codes_kept_by_setattr_under_a_name_that_is_worked_out() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.x = model, batch()

        def of(self, part: str) -> torch.Tensor:
            key = f"{part}_codes"
            if not hasattr(self, key):
                setattr(self, key, torch.relu(self.model[part](self.x)))  # CUT
            return getattr(self, key)

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.of("inner")).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def features_that_an_epoch_counter_keeps() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.epoch, self.x = model, 0, batch()

        def encode(self) -> torch.Tensor:
            if self.epoch == 0:
                self.codes = torch.relu(self.model["inner"](self.x))  # CUT
                self.epoch = 1
            return self.codes

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.encode()).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


# -- hooks that return what is no gradient: torch raises, outside of any line ------------------------------------------


@cut("hook_misuse")
def a_hook_that_returns_a_number() -> Built:
    model, x, seen = pair(), batch(), []

    def log(grad: torch.Tensor) -> float:
        seen.append(grad.norm().item())
        return seen[-1]  # CUT

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(log)
        return model["outer"](code).sum()

    return model, step


@cut("hook_misuse")
def a_hook_that_returns_another_shape() -> Built:
    model, x = pair(), batch()
    model["inner"].weight.register_hook(lambda grad: grad.norm())  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_that_returns_something_after_accumulation() -> Built:
    model, x = pair(), batch()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.mul_(0.5))  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_of_a_module_that_returns_too_many() -> Built:
    model, x = pair(), batch()

    def scale(module: nn.Module, into: Any, out: Any) -> Any:
        (grad,) = into
        return grad * 2, None  # CUT

    model["outer"].register_full_backward_hook(scale)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("hook_misuse")
def a_hook_that_returns_another_dtype_in_a_step_that_goes_back_itself() -> Built:
    model, x = pair(), batch()

    def step() -> None:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0.5)
        code.register_hook(lambda grad: grad.half())  # CUT
        model["outer"](code).sum().backward()

    return model, step
