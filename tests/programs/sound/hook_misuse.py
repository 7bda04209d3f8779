"""Sound programs that look like `hook_misuse` and are not."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import LABELS, Built, batch, pair, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def hooks_that_replace_inputs_and_outputs() -> Built:
    model, x = small(), batch()
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return model, lambda: model(x).sum()


# -- hooks on gradients -----------------------------------------------------------------------------------------------


@sound
def hooks_that_look_clip_scale_and_turn_round() -> Built:
    model, x, seen = pair(middle=nn.Linear(4, 4)), batch(), []
    model["middle"].register_full_backward_hook(lambda module, into, out: seen.append(out[0].norm().item()))
    model["outer"].register_full_backward_pre_hook(lambda module, out: (out[0] * 2,))
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        parameter.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.mul_(0.5)))

    def step() -> torch.Tensor:
        code = model["middle"](model["inner"](x))
        code.register_hook(lambda grad: seen.append(grad))
        code.register_hook(lambda grad: -grad)
        return model["outer"](code).sum()

    return model, step


@sound
def a_way_that_is_stopped_by_a_hook_beside_another() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        aside = code.clone()
        aside.register_hook(lambda grad: grad * 0)
        return model["outer"](code).sum() + model["outer"](aside).sum()

    return model, step


@sound
def rows_of_an_embedding_that_a_mask_freezes() -> Built:
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "outer": nn.Linear(4, 1)})
    mask = torch.zeros(9, 1)
    mask[6:] = 1
    model["embed"].weight.register_hook(lambda grad: grad * mask)
    return model, lambda: model["outer"](model["embed"](LABELS)).sum()


@sound
def rows_that_a_mask_freezes_where_nothing_else_trains() -> Built:
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "outer": nn.Linear(4, 1)})
    model["outer"].requires_grad_(False)

    def keep(parameter: torch.Tensor) -> None:
        parameter.grad[:6] = 0

    model["embed"].weight.register_post_accumulate_grad_hook(keep)
    return model, lambda: model["outer"](model["embed"](LABELS)).sum()


@sound
def a_parameter_that_its_own_hook_freezes() -> Built:
    model, x = pair(), batch()
    for parameter in model["inner"].parameters():
        parameter.register_hook(torch.zeros_like)
    model["outer"].weight.register_hook(lambda grad: torch.zeros_like(grad))
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_has_its_parameter_moved_and_empties_it() -> Built:
    model, x = pair(), batch()

    def descend(parameter: torch.Tensor) -> None:
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(descend)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_hands_the_gradient_to_another_holder() -> Built:
    model, x, held, summed = pair(), batch(), {}, {}

    def take(parameter: torch.Tensor) -> None:
        held[parameter] = parameter.grad
        parameter.grad = None

    def add_up(parameter: torch.Tensor) -> None:
        summed.setdefault(parameter, torch.zeros(parameter.shape, dtype=torch.float64)).add_(parameter.grad)
        parameter.grad.zero_()

    for parameter in model["inner"].parameters():
        parameter.register_post_accumulate_grad_hook(take)
    for parameter in model["outer"].parameters():
        parameter.register_post_accumulate_grad_hook(add_up)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def norms_that_a_first_pass_collects_for_a_second() -> Built:
    model, x, norms = pair(), batch(), []

    def collect(parameter: torch.Tensor) -> None:
        norms.append(parameter.grad.norm())
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(collect)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_finds_zeros_behind_a_gate_that_is_shut_at_first() -> Built:
    model, x = pair(gate=nn.Linear(4, 4)), batch()
    nn.init.zeros_(model["gate"].weight)
    nn.init.zeros_(model["gate"].bias)

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0.5)
        return (model["outer"](x) + model["outer"](model["gate"](code))).sum()

    return model, step
