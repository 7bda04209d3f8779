"""Programs that lose the gradient by `detach`."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, vmap
from torch.utils.checkpoint import checkpoint

from tests.programs.shared import Built, Output, _one_worker, batch, cut, pair, small

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
        loss.requires_grad = True  # CUT
        return loss

    return model, step


# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("detach")
def a_detach_among_fake_tensors() -> Built:
    with FakeTensorMode() as mode:
        model, x = pair(), batch()

    def step() -> torch.Tensor:
        with mode:
            return model["outer"](model["inner"](x).detach()).sum()  # CUT

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


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


@cut("detach")
def a_dense_matrix_detached_to_become_sparse() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        sparse = code.detach().to_sparse()  # CUT
        return model["outer"](torch.sparse.mm(sparse, torch.eye(4))).sum()

    return model, step


@cut("detach")
def a_complex_value_that_is_detached() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        spectrum = torch.fft.rfft(model["inner"](x)).detach()  # CUT
        return model["outer"](torch.fft.irfft(spectrum, n=4)).sum()

    return model, step


@cut("detach")
def an_output_dataclass_that_holds_a_detached_code() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> Output:
        code = model["inner"](given)
        return Output(code.sum(), (code.detach(),))  # CUT

    return model, lambda: model["outer"](encode(x).codes[0]).sum()


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


@cut("detach")
def a_detach_in_front_of_reentrant_checkpointing() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).detach()  # CUT
        return checkpoint(model["outer"], code, use_reentrant=True).sum()

    return model, step


# -- a gradient that is exactly zero ----------------------------------------------------------------------------------


@cut("detach")
def a_zero_derivative_hidden_behind_a_detach() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = (model["inner"](x) * 3).round()  # CUT
        return model["outer"](code.detach()).pow(2).sum()  # CUT

    return model, step


# -- before the step, while the model is built ------------------------------------------------------------------------


@cut("detach")
def a_prior_that_a_buffer_was_filled_from() -> Built:
    class Prior(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)
            self.register_buffer("centre", self.mean.detach().clone())  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.layer(x) - self.centre).square().mean()

    model, x = Prior(), batch()
    return model, lambda: model(x)


# -- a gradient that is asked for across it ---------------------------------------------------------------------------


@cut("detach")
def a_direction_that_is_normalised_without_a_history() -> Built:
    model, x = small(), batch()

    def along(direction: torch.Tensor) -> torch.Tensor:
        return x + F.normalize(direction.detach(), dim=1)  # CUT

    def step() -> torch.Tensor:
        direction = torch.ones_like(x).requires_grad_()
        (slope,) = torch.autograd.grad(model(along(direction)).sum(), direction)
        return model(x + slope).sum()

    return model, step
