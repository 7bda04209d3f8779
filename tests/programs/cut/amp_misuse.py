"""Programs that lose the gradient by `amp_misuse`."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, small

# -- mixed precision --------------------------------------------------------------------------------------------------


def trained(model: nn.Module) -> tuple[torch.optim.Optimizer, torch.amp.GradScaler]:
    return torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")


@cut("amp_misuse")
def a_loss_that_was_not_scaled() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)
    scaler.scale(torch.ones(()))

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def a_scaler_that_was_never_used_to_scale() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def an_optimizer_that_steps_past_the_scaler() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        optimizer.step()  # CUT
        return loss

    return model, step


@cut("amp_misuse")
def gradients_clipped_before_they_are_unscaled() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CUT
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@cut("amp_misuse")
def gradients_unscaled_twice() -> Built:
    model, x = small(), batch()
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        for part in x.chunk(2):
            scaler.scale(model(part).pow(2).mean()).backward()
            scaler.unscale_(optimizer)  # CUT
        scaler.step(optimizer)
        return model(x).sum()

    return model, step


@cut("amp_misuse")
def weights_in_half_precision_under_a_scaler() -> Built:
    model, x = small().half(), batch().half()  # CUT
    optimizer, scaler = trained(model)

    def step() -> torch.Tensor:
        loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return loss

    return model, step
