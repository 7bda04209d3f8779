"""Sound programs that look like `no_grad_block` and are not."""

from __future__ import annotations

import copy
import threading

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def a_frozen_encoder_under_no_grad() -> Built:
    model, x = nn.ModuleDict({"encoder": small().requires_grad_(False), "head": nn.Linear(1, 1)}), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["encoder"](x)
        return model["head"](code).sum()

    return model, step


@sound
def a_moving_average_as_teacher() -> Built:
    model, x = small(), batch()
    teacher = copy.deepcopy(model).requires_grad_(False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        return F.mse_loss(model(x), teacher(x))

    return model, step


@sound
def weights_averaged_by_torch() -> Built:
    model, x = small(), batch()
    average = torch.optim.swa_utils.AveragedModel(model)

    def step() -> torch.Tensor:
        average.update_parameters(model)
        return model(x).sum()

    return model, step


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def targets_made_by_a_thread_that_does_not_record() -> Built:
    model, x, teacher = small(), batch(), small()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=torch.no_grad()(lambda: made.append(teacher(x))))
        thread.start()
        out = model(x)
        thread.join()
        return F.mse_loss(out, made[0])

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def another_model_that_trains_in_another_thread() -> Built:
    model, x, other = small(), batch(), small()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)

    def train() -> None:
        with torch.no_grad():
            other(x)
        other(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def step() -> torch.Tensor:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        return model(x).sum()

    return model, step
