"""Sound programs that look like `custom_function` and are not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- what wraps a step ------------------------------------------------------------------------------------------------


class Square(torch.autograd.Function):
    """Its forward detaches, and goes through numbers and NumPy: its backward makes up for that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        one = torch.from_numpy(x.detach().numpy() ** 2)
        return torch.tensor([value.item() for value in one.flatten()]).view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


@sound
def a_custom_function_with_its_own_backward() -> Built:
    model, x = small(), batch()
    return model, lambda: Square.apply(model(x)).sum()


class Gains(torch.autograd.Function):
    """Handed each gain, and the whole list once more; what is switched off in it is off anyway."""

    @staticmethod
    @torch.no_grad()
    def forward(ctx: Any, x: torch.Tensor, together: list[torch.Tensor], *gains: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, *gains)
        with torch.no_grad():
            return x * sum(together)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, *gains = ctx.saved_tensors
        return grads[0] * sum(gains), None, *[(grads[0] * x).sum() for _ in gains]


@sound
def a_function_that_is_handed_each_gain_beside_their_list() -> Built:
    model, x = small(), batch()
    gains = [torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.ones(()))]
    for at, gain in enumerate(gains):
        model.register_parameter(f"gain{at}", gain)
    return model, lambda: Gains.apply(model(x), gains, *gains).sum()


@sound
def a_function_that_is_handed_fixed_tensors_in_a_list() -> Built:
    model, x, fixed = small(), batch(), [torch.ones(1), torch.ones(1)]

    class Fixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, by: list[torch.Tensor]) -> torch.Tensor:
            ctx.by = sum(by)
            with torch.no_grad():
                return x * ctx.by

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return grads[0] * ctx.by, None

    return model, lambda: Fixed.apply(model(x), fixed).sum()


# -- gradients of zeros that are not zero whatever comes in -----------------------------------------------------------


class Rectified(torch.autograd.Function):
    """Rectifies by its own formula: where nothing is positive, no gradient comes back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.rest = rest
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not (x > 0).any():
            return torch.zeros_like(x)
        return grads[0] * (x > 0)


class Selected(Rectified):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grads[0], torch.zeros_like(x))


class FilledIn(Rectified):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        filled = torch.zeros_like(x)
        filled[x > 0] = grads[0][x > 0]
        return filled


def _fill(into: torch.Tensor, given: torch.Tensor, where: torch.Tensor) -> None:
    into[where] = given[where]


class FilledByAHelper(Rectified):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        filled = torch.zeros_like(x)
        _fill(filled, grads[0], x > 0)
        return filled


class FilledThroughAView(Rectified):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        filled = x.new_zeros(x.shape)
        flat = filled.view(-1)
        for at in (x.flatten() > 0).nonzero():
            flat[at] = grads[0].flatten()[at]
        return filled


class MadeWhereItIsNeeded(Rectified):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        made = torch.zeros_like(x)
        if bool((x > 0).any()):
            made = grads[0] * (x > 0)
        return made


def _beside_a_dead_region(function: type[torch.autograd.Function]) -> Built:
    model, x = nn.ModuleDict({"inner": nn.Linear(4, 4), "outer": nn.Linear(4, 1)}), batch()
    with torch.no_grad():
        model["inner"].bias.sub_(9)
    return model, lambda: model["outer"](function.apply(model["inner"](x))).square().sum()


@sound
def a_dead_region_that_a_backward_leaves_early() -> Built:
    return _beside_a_dead_region(Rectified)


@sound
def a_dead_region_by_where() -> Built:
    return _beside_a_dead_region(Selected)


@sound
def zeros_that_are_filled_where_a_mask_says_so() -> Built:
    return _beside_a_dead_region(FilledIn)


@sound
def zeros_that_a_helper_fills() -> Built:
    return _beside_a_dead_region(FilledByAHelper)


@sound
def zeros_that_are_filled_through_a_view() -> Built:
    return _beside_a_dead_region(FilledThroughAView)


@sound
def zeros_that_are_replaced_on_a_condition() -> Built:
    return _beside_a_dead_region(MadeWhereItIsNeeded)


class Stopped(torch.autograd.Function):
    """Hands on what it is given, and stops its gradient by zeros."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        nothing = torch.zeros_like(grads[0])
        return nothing  # noqa: RET504


@sound
def a_gradient_that_is_stopped_beside_a_living_way() -> Built:
    model, x = nn.ModuleDict({"inner": nn.Linear(4, 4), "outer": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        hidden = model["inner"](x)
        return model["outer"](hidden + Stopped.apply(hidden)).square().sum()

    return model, step


class Gated(nn.Module):
    """What its layer gives is stopped on one way, and comes in by a gate that starts at zero on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.gate = nn.Linear(4, 4), nn.Linear(4, 1), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(x)
        return self.outer(Stopped.apply(hidden) + self.gate * hidden).square().sum()


@sound
def a_gradient_that_is_stopped_beside_a_gate_that_opens() -> Built:
    model, x = Gated(), batch()
    return model, lambda: model(x)


# -- second derivatives -----------------------------------------------------------------------------------------------


def _of_slopes(act: Any) -> Built:
    model, x = nn.ModuleDict({"inner": nn.Linear(4, 6), "outer": nn.Linear(6, 1, bias=False)}), batch()

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        total = model["outer"](act(model["inner"](points))).sum()
        return (torch.autograd.grad(total, points, create_graph=True)[0] - 1).square().mean()

    return model, step


@sound
def a_second_derivative_of_what_came_in() -> Built:
    class LogCosh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, x.sign())
            return x.cosh().log()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            x, sign = ctx.saved_tensors
            return grads[0] * sign * x.abs().tanh()

    return _of_slopes(LogCosh.apply)


@sound
def a_second_derivative_of_what_went_out() -> Built:
    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = x.tanh()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            (out,) = ctx.saved_tensors
            return grads[0] * (1 - out * out)

    return _of_slopes(Tanh.apply)


@sound
def a_second_derivative_beside_a_mask_that_forward_has_saved() -> Built:
    class Leaky(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.slope = (x > 0).float() * 0.9 + 0.1
            ctx.save_for_backward(x)
            return x * ctx.slope

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return grads[0] * ctx.slope

    def act(x: torch.Tensor) -> Any:
        return Leaky.apply(x).square()

    return _of_slopes(act)


@sound
def a_first_derivative_of_what_forward_has_saved() -> Built:
    class Softplus(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x.sigmoid())
            return x.exp().log1p()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return grads[0] * ctx.saved_tensors[0]

    model, x = small(), batch()
    return model, lambda: Softplus.apply(model(x)).mean()
