"""Programs that lose the gradient by `constant_loss`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, small

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


@cut("constant_loss")
def a_criterion_that_is_given_the_input_for_the_prediction() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        noise = torch.randn(x.shape)
        noisy = x + 0.1 * noise
        predicted = model(noisy)
        loss = nn.functional.mse_loss(noisy, noise)  # CUT
        return loss / max(len(predicted), 1)

    return model, step


@cut("constant_loss")
def a_target_that_is_compared_with_itself() -> Built:
    model, x = small(), batch()
    labels = torch.rand(6, 2)

    def step() -> torch.Tensor:
        smooth = labels * 0.9 + 0.05
        model(x)
        total = torch.zeros(())
        total = total + (smooth - labels).square().mean()  # CUT
        return total * 2

    return model, step


@cut("constant_loss")
def a_loss_over_the_data_alone_in_a_function_of_its_own() -> Built:
    model, x = small(), batch()

    def loss_of(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        weight = torch.linspace(0.5, 1.0, len(target)).unsqueeze(-1)
        return (weight * (target - target.mean()).abs()).sum()  # CUT

    return model, lambda: loss_of(model(x), x)


@cut("constant_loss")
def a_distance_between_two_passes_of_the_teacher() -> Built:
    model, teacher, x = small(), small().requires_grad_(False), batch()

    def step() -> torch.Tensor:
        student = model(x)
        with torch.no_grad():
            target, again = teacher(x), teacher(x + 0.1)
        loss = nn.functional.mse_loss(again, target)  # CUT
        return loss / len(student)

    return model, step


@cut("constant_loss")
def a_batch_that_is_skipped_by_its_loss() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        if loss.item() > 0:
            loss = torch.zeros((), requires_grad=True)  # CUT
        return loss

    return model, step


@cut("constant_loss")
def a_batch_that_a_helper_skips() -> Built:
    model, x = small(), batch()

    def unless_large(loss: torch.Tensor) -> torch.Tensor:
        if loss > 0:
            return torch.zeros((), requires_grad=True)  # CUT
        return loss

    return model, lambda: unless_large(model(x).square().mean())


@cut("constant_loss")
def a_condition_that_only_says_something() -> Built:
    model, x = small(), batch()

    def status(out: torch.Tensor) -> str:
        if out.mean() > 0:
            return "up"
        return "down"

    def step() -> torch.Tensor:
        said = [status(model(x))]
        loss = torch.zeros((), requires_grad=True)  # CUT
        return loss * len(said)

    return model, step


# -- nothing in the place of the loss ---------------------------------------------------------------------------------


@cut("constant_loss")
def a_function_of_the_loss_without_a_return() -> Built:
    model, x = small(), batch()

    def loss_of(out: torch.Tensor) -> None:  # CUT
        (out - 1).pow(2).mean()

    return model, lambda: loss_of(model(x))  # type: ignore[func-returns-value]


@cut("constant_loss")
def a_branch_that_returns_nothing() -> Built:
    model, x = small(), batch()

    def loss_of(out: torch.Tensor, weight: float) -> torch.Tensor | None:
        if weight == 0:
            return None  # CUT
        return out.pow(2).mean() * weight

    def step() -> torch.Tensor | None:
        out = model(x)
        return loss_of(out, 0.0)

    return model, step


@cut("constant_loss")
def a_branch_that_is_not_taken_and_nothing_after_it() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x: torch.Tensor, target: torch.Tensor | None = None) -> Any:  # noqa: RET503
            out = self.net(x)
            if target is not None:  # CUT
                return (out - target).pow(2).mean()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("constant_loss")
def a_backward_that_is_asked_of_nothing() -> Built:
    model, x = small(), batch()
    losses: list[torch.Tensor] = []

    def collect(out: torch.Tensor) -> None:  # CUT
        losses.append(out.pow(2).mean())

    def step() -> None:
        loss: Any = collect(model(x))  # type: ignore[func-returns-value]
        loss.backward()

    return model, step


@cut("constant_loss")
def a_number_that_the_model_had_no_part_in() -> Built:
    model, x = small(), batch()

    def step() -> float:
        model(x)
        return 0.0  # CUT

    return model, step
