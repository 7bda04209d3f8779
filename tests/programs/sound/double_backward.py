"""Sound programs that look like `double_backward` and are not."""

from __future__ import annotations

import threading

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def a_step_that_ends_in_backward() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x).sum().backward()


@sound
def a_step_that_returns_a_number_after_backward() -> Built:
    model, x = small(), batch()

    def step() -> float:
        loss = model(x).sum()
        loss.backward()
        return loss.item()

    return model, step


@sound
def a_whole_training_step_that_returns_its_loss() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, step


@sound
def backward_called_by_torch_autograd() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        torch.autograd.backward([loss])
        return loss.detach()

    return model, step


@sound
def gradients_accumulated_over_parts_of_the_batch() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = torch.zeros(())
        for part in x.chunk(3):
            loss = model(part).sum() / 3
            loss.backward()
            total += loss.detach()
        return total

    return model, step


@sound
def a_closure_that_lbfgs_calls_more_than_once() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return model, lambda: optimizer.step(closure)


@sound
def an_optimizer_that_steps_in_backward() -> Built:
    model, x = small(), batch()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], 0.1)

        def hook(_: torch.Tensor, optimizer: torch.optim.SGD = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(hook)
    return model, lambda: model(x).sum()


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def a_backward_in_a_thread() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []

        def work() -> None:
            made.append(model(x).sum())
            made[0].backward()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return made[0].detach()

    return model, step


@sound
def a_loss_that_was_computed_before() -> Built:
    model = small()
    loss = model(batch()).sum()
    return model, lambda: loss


# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_loss_returned_after_a_part_of_it_went_backward() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        (loss / 4).backward()
        return loss

    return model, step


@sound
def a_loss_returned_for_the_log() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        (loss / 4).backward()
        return loss.detach().cpu()

    return model, step


@sound
def a_loss_returned_although_its_graph_was_kept() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        return loss

    return model, step


@sound
def a_shifted_weight_made_once_whose_history_keeps_nothing_for_two_updates_of_a_step() -> Built:
    model, x = nn.Linear(4, 2), batch()
    shifted = model.weight + 1  # a sum keeps no values: it may be walked again and again

    def step() -> torch.Tensor:
        (F.linear(x, shifted) + model.bias).sum().backward()
        return (F.linear(x, shifted) + model.bias).sum()

    return model, step


@sound
def a_graph_of_before_that_the_steps_own_backward_retains() -> Built:
    model, x = nn.Linear(4, 2), batch()
    scale = model.bias.exp()

    def step() -> torch.Tensor:
        (model(x) * scale).sum().backward(retain_graph=True)
        return (model(x) * scale).sum()

    return model, step


@sound
def backwards_of_two_threads_after_many_steps() -> Built:
    model, x = nn.Linear(4, 2), batch()
    for _ in range(20):
        model(x).exp().sum().backward()
    model.zero_grad()

    def step() -> torch.Tensor:
        for _ in range(2):  # in each, autograd counts its nodes anew
            raised: list[BaseException] = []

            def work(raised: list[BaseException] = raised) -> None:
                try:
                    model(x).exp().sum().backward()
                except RuntimeError as error:
                    raised.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            if raised:
                raise raised[0]
        return model(x).sum()

    return model, step
