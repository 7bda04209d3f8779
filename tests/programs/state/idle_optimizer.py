"""Programs whose fault, or what looks like one, is `idle_optimizer`: it lies in what a step does after backward."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, pair, small, sound

# -- cleared between ------------------------------------------------------------------------------------------------


@faulty("idle_optimizer")
def gradients_cleared_before_the_step() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step() -> None:
        model(x).pow(2).mean().backward()
        optimizer.zero_grad()  # CUT
        optimizer.step()

    return model, step


@faulty("idle_optimizer")
def zeros_in_the_place_of_gradients_from_a_method() -> Built:
    class Trainer:
        def __init__(self, model: nn.Module) -> None:
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def update(self) -> None:
            self.model.zero_grad(set_to_none=False)  # CUT
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

        def step(self) -> torch.Tensor:
            loss = self.model(x).pow(2).mean()
            loss.backward()
            self.update()
            return loss.detach()

    x = batch()
    trainer = Trainer(small())
    return trainer.model, trainer.step


@faulty("idle_optimizer")
def gradients_set_to_none_by_hand() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.RMSprop(model.parameters())

    def step() -> None:
        model(x).pow(2).mean().backward()
        for parameter in model.parameters():
            parameter.grad = None  # CUT
        optimizer.step()

    return model, step


@faulty("idle_optimizer")
def a_closure_that_clears_last() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> float:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.zero_grad()  # CUT
        return loss.item()

    return model, lambda: optimizer.step(closure)


# -- clipped to zero ------------------------------------------------------------------------------------------------


@faulty("idle_optimizer")
def clipped_to_a_norm_of_zero() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.0)  # CUT
        optimizer.step()

    return model, step


@faulty("idle_optimizer")
def clamped_to_zero_by_hand() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        for parameter in model.parameters():
            parameter.grad.data.clamp_(-0.0, 0.0)  # CUT
        optimizer.step()

    return model, step


# -- a rate of zero -------------------------------------------------------------------------------------------------


@faulty("idle_optimizer")
def a_rate_of_zero() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (6 // 64))  # CUT

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    return model, step


@sound
def a_warm_up_that_begins_at_zero() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, n / 10))

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        schedule.step()

    return model, step


@sound
def one_group_kept_at_rest() -> Built:
    model, x = pair(), batch()
    groups = [{"params": model["inner"].parameters(), "lr": 0.0}, {"params": model["outer"].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model["outer"](model["inner"](x)).sum().backward()
        optimizer.step()

    return model, step


# -- what looks like one ----------------------------------------------------------------------------------------------


@sound
def a_step_whose_loss_is_trained_by_the_caller() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        return model(x).square().mean()

    return model, step


@sound
def cleared_after_the_step() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(x).pow(2).mean().backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

    return model, step


@sound
def two_who_play_against_each_other() -> Built:
    model, x = pair(), batch()
    inner = torch.optim.Adam(model["inner"].parameters())
    outer = torch.optim.Adam(model["outer"].parameters())

    def step() -> None:
        made = model["inner"](x)
        outer.zero_grad()
        model["outer"](made.detach()).mean().backward()
        outer.step()
        inner.zero_grad()
        (-model["outer"](made)).mean().backward()
        outer.zero_grad()
        inner.step()

    return model, step


@sound
def gradients_gathered_cleared_and_put_back_merged() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        gathered = []
        for part in x.chunk(2):
            optimizer.zero_grad()
            model(part).pow(2).mean().backward()
            gathered.append([parameter.grad.clone() for parameter in model.parameters()])
        optimizer.zero_grad()
        for parameter, one, other in zip(model.parameters(), *gathered, strict=True):
            parameter.grad = one + other
        optimizer.step()

    return model, step


class Climbing(torch.optim.SGD):
    """Sharpness-aware: its step climbs, asks for the gradient there, comes back, moves, and clears what it has used."""

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[no-untyped-def]
        parameters = [one for group in self.param_groups for one in group["params"]]
        climbed = [0.05 * one.grad / one.grad.norm() for one in parameters]
        for one, way in zip(parameters, climbed, strict=True):
            one.add_(way)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for one, way in zip(parameters, climbed, strict=True):
            one.sub_(way)
        super().step()
        self.zero_grad()


@sound
def an_optimizer_whose_step_clears_what_it_has_used() -> Built:
    model, x = small(), batch()
    optimizer = Climbing(model.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        closure()
        optimizer.step(closure)
        return model(x).square().sum()

    return model, step


@sound
def a_closure_that_clears_first() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return model, lambda: optimizer.step(closure)
