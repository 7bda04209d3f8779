"""Sound programs that look like `python_roundtrip` and are not."""

from __future__ import annotations

import io
import json

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, pair, small, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def weights_of_the_loss_taken_from_its_value() -> Built:
    model, x = nn.ModuleDict({"a": small(), "b": small()}), batch()

    def step() -> torch.Tensor:
        one, two = model["a"](x).pow(2).mean(), model["b"](x).pow(2).mean()
        scale = np.exp(-one.detach().numpy())
        return one * float(scale) + two * (one.item() / (two.item() + 1e-8))

    return model, step


# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def logging_and_metrics() -> Built:
    model, x, history = small(), batch(), []

    def step() -> torch.Tensor:
        out = model(x)
        loss = F.mse_loss(out, torch.ones(6, 1))
        history.append(loss.item())
        history.append(loss.detach().cpu().numpy())
        history.append(f"{loss:.3f} {loss.item():.2f} {float(loss)} {json.dumps({'loss': loss.item()})}")
        print(loss.detach(), out.tolist(), file=io.StringIO())
        with torch.no_grad():
            history.append(((out > 0) == 1).float().mean().item())
        assert isinstance(history[0], float)
        assert round(history[0], 3) == round(float(loss), 3)
        return loss

    return model, step


# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_weight_of_a_loss_found_by_comparing_gradients() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        first, second = code.pow(2).mean(), model["outer"](code).pow(2).mean()
        last = model["inner"].weight
        (one,) = torch.autograd.grad(first, last, retain_graph=True)
        (two,) = torch.autograd.grad(second, last, retain_graph=True)
        return first + (one.norm() / (two.norm() + 1e-4)).clamp(0, 10) * second

    return model, step


@sound
def a_step_that_trains_and_returns_a_float_for_the_log() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_one_step() -> float:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), torch.ones(6, 1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, train_one_step


@sound
def micro_batches_that_go_backward_and_a_mean_of_floats() -> Built:
    model, x = small(), batch()

    def train_one_step() -> dict[str, float]:
        total = 0.0
        for rows in x.split(2):
            loss = model(rows).pow(2).mean() / 3
            loss.backward()
            total += loss.item()
        return {"loss": total}

    return model, train_one_step


@sound
def gradients_asked_for_by_name_and_a_float_returned() -> Built:
    model, x = small(), batch()

    def train_one_step() -> float:
        loss = model(x).pow(2).mean()
        slopes = torch.autograd.grad(loss, tuple(model.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(model.parameters(), slopes, strict=True):
                parameter.sub_(slope, alpha=0.1)
        return loss.item()

    return model, train_one_step


@sound
def a_parameter_whose_first_value_sets_up_another() -> Built:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.tensor(0.5)), nn.Linear(4, 1)
            nn.init.constant_(self.layer.bias, self.scale.item())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    model, x = Scaled(), batch()
    return model, lambda: model(x).square().mean()
