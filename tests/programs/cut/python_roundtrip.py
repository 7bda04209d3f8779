"""Programs that lose the gradient by `python_roundtrip`."""

from __future__ import annotations

import math
from math import sqrt
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

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


# -- the loss itself --------------------------------------------------------------------------------------------------


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


# -- a number in the place of the loss --------------------------------------------------------------------------------


@cut("python_roundtrip")
def a_float_returned_in_the_place_of_the_loss() -> Built:
    model, x = small(), batch()

    def step() -> float:
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        return loss.item()  # CUT

    return model, step


@cut("python_roundtrip")
def a_mean_of_python_floats_over_micro_batches() -> Built:
    model, x = small(), batch()

    def step() -> float:
        total = 0.0
        for rows in x.split(2):
            total += float(model(rows).pow(2).mean())  # CUT
        return total / 3

    return model, step


@cut("python_roundtrip")
def a_root_that_math_takes_of_a_tensor() -> Built:
    model, x = small(), batch()
    return model, lambda: math.sqrt(model(x).pow(2).mean())  # CUT


@cut("python_roundtrip")
def a_backward_that_is_asked_of_a_float() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = F.mse_loss(model(x), torch.ones(6, 1)).item()  # CUT
        loss.backward()
        optimizer.step()

    return model, step


@cut("python_roundtrip")
def a_list_of_the_losses_of_the_samples() -> Built:
    model, x = small(), batch()

    def step() -> list[float]:
        errors = (model(x) - 1).pow(2)
        return errors.squeeze(1).tolist()  # CUT

    return model, step


@cut("python_roundtrip")
def a_whole_number_of_hundredths() -> Built:
    model, x = small(), batch()

    def step() -> float:
        hundredths = int(100 * model(x).pow(2).mean())  # CUT
        return hundredths / 100

    return model, step


@cut("python_roundtrip")
def a_root_by_a_function_that_was_imported_by_its_name() -> Built:
    model, x = small(), batch()

    def step() -> dict[str, float]:
        error = model(x).pow(2).mean()
        return {"loss": sqrt(error)}  # CUT

    return model, step


# -- before the step, while the model is built ------------------------------------------------------------------------


@cut("python_roundtrip")
def a_rate_that_a_layer_is_built_with() -> Built:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope, self.layer = nn.Parameter(torch.tensor(0.2)), nn.Linear(4, 1)
            self.gate = nn.LeakyReLU(self.slope.item())  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.gate(self.layer(x))

        def extra_repr(self) -> str:
            return f"slope={self.slope}"

    model, x = Gated(), batch()
    return model, lambda: model(x).square().mean()


@cut("python_roundtrip")
def a_width_read_by_a_helper() -> Built:
    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_width, self.layer = nn.Parameter(torch.zeros(1)), nn.Linear(4, 1)
            self.setup()

        def setup(self) -> None:
            width = float(torch.exp(self.log_width))  # CUT
            self.scale = 1 / (2 * width**2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(-self.scale * self.layer(x).square())

    model, x = Kernel(), batch()
    return model, lambda: model(x).mean()


# -- a condition -------------------------------------------------------------------------------------------------------


@cut("python_roundtrip")
def a_gate_that_is_only_compared() -> Built:
    model, x = pair(), batch()

    def weight(row: torch.Tensor) -> torch.Tensor:
        if model["inner"](row).mean().sigmoid().item() > 0.5:  # CUT
            return torch.tensor(0.9)
        return torch.tensor(0.1)

    return model, lambda: torch.stack([weight(row) * model["outer"](row).sum() for row in x]).sum()


@cut("python_roundtrip")
def a_score_whose_sign_picks_a_number() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        score = model["inner"](x).mean()
        scale = 2.0 if score > 0 else 0.5  # CUT
        return (model["outer"](x) * scale).sum()

    return model, step


@cut("python_roundtrip")
def a_gradient_asked_for_through_a_python_number() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        scale = torch.ones(()).requires_grad_()
        loss = model(x * (2.5 * scale).item()).sum()  # CUT
        (slope,) = torch.autograd.grad(loss, scale, retain_graph=True)
        return loss * (1 + slope.detach())

    return model, step


# -- a condition that chooses among constants ----------------------------------------------------------------------


@cut("python_roundtrip")
def a_score_that_chooses_the_loss() -> Built:
    model, x = small(), batch()

    def reward(out: torch.Tensor) -> torch.Tensor:
        if out.mean() > 0:  # CUT
            return torch.tensor(1.0)
        return torch.tensor(-1.0)

    return model, lambda: (reward(model(x)) - 0.5) ** 2


@cut("python_roundtrip")
def hits_that_are_counted_one_by_one() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hits, weight = torch.zeros(6), torch.full((6,), 0.5, requires_grad=True)
        for i, value in enumerate(model(x)[:, 0].tolist()):
            if value > 0:  # CUT
                hits[i] = 1.0
        return (hits * weight).mean()

    return model, step


@cut("python_roundtrip")
def errors_that_are_put_into_a_list() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        errors = []
        for row in model(x):
            if row[0] > 0:  # CUT
                errors.append(1.0)
            else:
                errors.append(0.0)
        return torch.tensor(errors, requires_grad=True).mean()

    return model, step


@cut("python_roundtrip")
def errors_that_are_added_up_as_numbers() -> Built:
    model, x = small(), batch()

    def step() -> float:
        errors = 0.0
        for value in model(x).sum(-1):
            errors += 1.0 if value > 0 else 0.0  # CUT
        return errors / 6

    return model, step


@cut("python_roundtrip")
def a_loss_that_a_helper_decides() -> Built:
    model, x = small(), batch()

    def is_sure(out: torch.Tensor) -> bool:
        return bool(out.abs().mean() > 0)

    def step() -> torch.Tensor:
        loss = torch.ones(())
        if is_sure(model(x)):  # CUT
            loss = torch.zeros(())
        loss.requires_grad_(True)
        return loss * 1.0

    return model, step
