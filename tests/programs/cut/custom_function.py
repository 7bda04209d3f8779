"""Programs that lose the gradient by `custom_function`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair

# -- errors that backward raises --------------------------------------------------------------------------------------


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
            return x @ weights[0].T

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad @ ctx.weight, None

    model, x = pair(), batch()
    model["inner"].bias = None
    return model, lambda: model["outer"](Through.apply(x.requires_grad_(), [model["inner"].weight])).sum()  # CUT


class Scale(torch.autograd.Function):
    """Scales by what it is handed in a container, and switches off what is off in it anyway."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gains: Any) -> torch.Tensor:
        ctx.by = math.prod(gains.values() if isinstance(gains, dict) else gains)
        with torch.no_grad():
            return x * ctx.by

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.by, None


class Scaled(nn.Module):
    def __init__(self, gains: Any, apply: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.gains, self.apply_to = nn.Linear(4, 4), gains, apply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.apply_to(self.layer(x), self.gains).sum()


def _gains() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))]


@cut("custom_function")
def a_function_that_is_handed_a_parameter_list() -> Built:
    model, x = Scaled(nn.ParameterList(_gains()), lambda h, gains: Scale.apply(h, gains)), batch()  # CUT
    return model, lambda: model(x)


@cut("custom_function")
def a_function_that_is_handed_its_gains_in_a_dictionary_by_a_helper() -> Built:
    def scaled(h: torch.Tensor, gains: Any) -> torch.Tensor:
        named = {str(at): gain.exp() for at, gain in enumerate(gains)}
        return Scale.apply(h, named)  # CUT

    model, x = Scaled(nn.ParameterList(_gains()), scaled), batch()
    return model, lambda: model(x)


@cut("custom_function")
def a_function_without_recording_by_a_decorator_that_is_handed_a_tuple() -> Built:
    class Decorated(torch.autograd.Function):
        @staticmethod
        @torch.no_grad()
        def forward(ctx: Any, x: torch.Tensor, gains: Any) -> torch.Tensor:
            ctx.by = math.prod(gains)
            return x * ctx.by

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * ctx.by, None

    model, x = Scaled(nn.ParameterList(_gains()), lambda h, gains: Decorated.apply(h, tuple(gains))), batch()  # CUT
    return model, lambda: model(x)


@cut("custom_function")
def a_gradient_that_is_returned_for_a_whole_list() -> Built:
    class Returning(Scale):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * ctx.by, (grad.sum(0), grad.sum(0))

    model, x = Scaled(nn.ParameterList(_gains()), lambda h, gains: Returning.apply(h, gains)), batch()  # CUT
    return model, lambda: model(x)


@cut("custom_function")
def a_gradient_that_is_returned_for_a_plain_number() -> Built:
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
            ctx.by = by
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * ctx.by, grad.sum()  # CUT

    model, x = pair(), batch()
    return model, lambda: model["outer"](Power.apply(model["inner"](x), 2.0)).sum()


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


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("custom_function")
def a_quantiser_whose_output_is_marked_as_not_differentiable() -> Built:
    class Quantise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = (x * 16).round() / 16
            ctx.mark_non_differentiable(out)  # CUT
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad

    model, x = pair(), batch()
    return model, lambda: model["outer"](Quantise.apply(model["inner"](x))).sum()


# -- values written where nothing is recorded -------------------------------------------------------------------------


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


class Moved(torch.autograd.Function):
    """Moves each number by a part of its neighbour."""

    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(image, shift)
        return image * (1 - shift) + image.roll(1, 1) * shift


def _moving(move: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Built:
    model, x = pair(flow=nn.Linear(4, 4)), batch()
    return model, lambda: model["outer"](move(model["inner"](x), model["flow"](x).sigmoid())).square().sum()


@cut("custom_function")
def a_gradient_that_is_made_of_zeros_and_never_filled() -> Built:
    class Unfilled(Moved):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            image, shift = ctx.saved_tensors
            grad_image, grad_shift = torch.zeros_like(image), torch.zeros_like(shift)
            for part, by in ((1 - shift, 0), (shift, -1)):
                grad_image += (grad * part).roll(by, 1)
            return grad_image, grad_shift  # CUT

    return _moving(Unfilled.apply)


def _both_gradients(grad: torch.Tensor, image: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    of_shift = image.new_zeros(shift.shape)
    of_image = grad * (1 - shift)
    return of_image, of_shift


@cut("custom_function")
def zeros_that_a_helper_of_a_backward_hands_back_behind_a_plain_number() -> Built:
    class Blended(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, image: torch.Tensor, strength: float, shift: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(image, shift)
            return image * (1 - shift) + strength * shift

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            of_image, of_shift = _both_gradients(grad, *ctx.saved_tensors)
            return of_image, None, of_shift  # CUT

    return _moving(lambda image, shift: Blended.apply(image, 0.5, shift))


@cut("custom_function")
def zeros_of_which_only_a_copy_is_written() -> Built:
    class Copied(Moved):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            image, shift = ctx.saved_tensors
            grad_shift = None
            rows = torch.arange(len(shift))
            if ctx.needs_input_grad[1]:
                grad_shift = torch.zeros_like(shift)
            assert grad_shift is not None
            grad_shift[rows][:, 1:] = (grad * (image.roll(1, 1) - image))[:, 1:]
            return grad * (1 - shift) + (grad * shift).roll(-1, 1), grad_shift  # CUT

    return _moving(Copied.apply)


@cut("custom_function")
def a_sum_into_zeros_whose_result_is_let_go() -> Built:
    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            ctx.rows, ctx.size = rows, table.shape
            return table[rows]

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            grad_table = torch.zeros(ctx.size)
            grad_table.index_add(0, ctx.rows, grad)
            return grad_table, None  # CUT

    model, x = pair(), batch()
    rows = torch.tensor([0, 2, 2, 5])
    return model, lambda: model["outer"](Gathered.apply(model["inner"](x), rows)).sum()


@cut("custom_function")
def buckets_whose_gradient_is_zero_on_purpose_in_a_step_that_goes_backward_by_itself() -> Built:
    class Bucket(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(edges)
            return torch.bucketize(x, edges).float()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (edges,) = ctx.saved_tensors
            nothing = 0.0 * grad
            return nothing, torch.zeros_like(edges)  # CUT

    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model["outer"](Bucket.apply(model["inner"](x), torch.linspace(-1, 1, 9))).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


# -- what autograd does not find, or finds by another index -----------------------------------------------------------


@cut("custom_function")
def a_backward_by_another_name() -> Built:
    class Shift(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @staticmethod
        def backwards(ctx: Any, grad: torch.Tensor) -> Any:  # CUT
            return grad

    model, x = pair(), batch()
    return model, lambda: model["outer"](Shift.apply(model["inner"](x))).sum()


@cut("custom_function")
def a_function_that_is_called_as_an_instance() -> Built:
    class Square(torch.autograd.Function):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x

        def backward(self, grad: torch.Tensor) -> Any:
            return grad

    model, x = pair(), batch()
    return model, lambda: model["outer"](Square()(model["inner"](x))).sum()  # CUT


@cut("custom_function")
def a_gradient_that_is_computed_on_the_wrong_condition() -> Built:
    class Gain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, gain: torch.Tensor, power: int) -> torch.Tensor:
            ctx.save_for_backward(x, gain)
            return x * gain

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            x, gain = ctx.saved_tensors
            grad_gain = None
            if ctx.needs_input_grad[2]:  # CUT
                grad_gain = (grad * x).sum(0)
            return grad * gain, grad_gain, None

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gain = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Gain.apply(self.layer(x), self.gain, 1).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("custom_function")
def a_gradient_that_is_asked_for_inside_of_a_forward() -> Built:
    model, x = pair(), batch()

    def slope(h: torch.Tensor) -> torch.Tensor:
        energy = model["inner"](h).pow(2).sum()  # CUT
        (grad,) = torch.autograd.grad(energy, h, create_graph=True)
        return grad

    class Descent(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: torch.Tensor) -> torch.Tensor:
            return h - 0.1 * slope(h)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad

    return model, lambda: model["outer"](Descent.apply(model["inner"](x))).sum()


@cut("custom_function")
def a_function_that_marks_its_values_as_well_as_its_indices() -> Built:
    class Best(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, where = x.topk(2, dim=1)
            return values, where

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(*output)  # CUT
            ctx.save_for_backward(output[1])

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return torch.zeros(6, 4).scatter(1, ctx.saved_tensors[0], grads[0])

    model, x = pair(), batch()
    return model, lambda: (Best.apply(model["inner"](x))[0] * model["outer"](x)).sum()


@cut("custom_function")
def a_function_that_returns_its_results_in_a_dictionary() -> Built:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
            out = {"root": x.abs().sqrt(), "square": x * x}
            ctx.save_for_backward(x)
            return out  # CUT

        @staticmethod
        def backward(ctx: Any, grads: dict[str, torch.Tensor]) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grads["square"] * 2 * x

    model, x = pair(), batch()
    return model, lambda: model["outer"](Both.apply(model["inner"](x))["square"]).sum()
