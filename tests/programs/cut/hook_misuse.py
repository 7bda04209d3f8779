"""Programs that lose the gradient by `hook_misuse`."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs.shared import Built, batch, cut, pair

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
