"""Sound programs that look like `amp_misuse` and are not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, pair, small, sound

# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def mixed_precision_with_a_scaler() -> Built:
    model, x = small(), batch()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), torch.ones(6, 1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return model, step


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def autocast_to_bfloat16() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.mse_loss(model(x).float(), torch.ones(6, 1))

    return model, step


# -- mixed precision --------------------------------------------------------------------------------------------------


@sound
def a_scaler_in_the_right_order() -> Built:
    model, x = small(), batch()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss / 2).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@sound
def a_second_optimizer_that_has_no_scaler() -> Built:
    model, x = pair(), batch()
    scaled, plain = torch.optim.SGD(model["inner"].parameters()), torch.optim.SGD(model["outer"].parameters())
    scaler = torch.amp.GradScaler("cpu")

    def step() -> torch.Tensor:
        model["outer"](x).pow(2).mean().backward()
        scaler.scale(model["inner"](x).pow(2).mean()).backward()
        nn.utils.clip_grad_norm_(model["outer"].parameters(), 1.0)
        plain.step()
        scaler.step(scaled)
        scaler.update()
        return model["outer"](model["inner"](x)).sum()

    return model, step


@sound
def a_disabled_scaler() -> Built:
    model, x = small(), batch()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", enabled=False)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step
