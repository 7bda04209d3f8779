"""States that are reset in place and keep the history of what they were: the line that resets them is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Report
from tests.programs.shared import Built, batch, cut, sound


class Leaky(nn.Module):
    """Adds to a state in every call; ``reset`` says how it is emptied before each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.state = torch.zeros(len(batch()), 4)

    def reset(self) -> None:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.reset()
        for part in (x, 2 * x):
            self.state = torch.tanh(self.body(part) + 0.5 * self.state)
        loss: torch.Tensor = self.head(self.state).square().mean()
        return loss


def _second_batch(model: nn.Module) -> Built:
    x = batch()
    (model(x) / 2).backward()
    return model, lambda: model(x)


def _two_batches(model: nn.Module) -> Built:
    parts, optimizer = [batch(), batch(), batch()], torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        for part in parts:
            loss: torch.Tensor = model(part)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return model, step


@cut("double_backward")
def a_state_that_is_zeroed() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state.zero_()  # CUT

    return _second_batch(Model())


@cut("double_backward")
def a_state_of_which_the_last_part_no_loss_has_used() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
            self.state = torch.zeros(len(batch()), 4)

        def clear(self) -> None:
            self.state.fill_(0.1)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.clear()
            losses = []
            for part in (x, 2 * x):
                risen = self.body(part) + torch.tanh(self.state)
                losses.append(self.head(risen.square()).mean())
                self.state = risen - 1
            return torch.stack(losses).sum()

    model, x = Model(), batch()

    def step() -> torch.Tensor:
        (model(x) / 2).backward()
        return model(x)

    return model, step


@cut("double_backward")
def a_state_that_is_filled_where_nothing_is_recorded() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            with torch.no_grad():
                self.state.fill_(0.1)  # CUT

    return _two_batches(Model())


@cut("double_backward")
def a_state_that_is_multiplied_by_zero() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state *= 0  # CUT

    return _two_batches(Model())


@cut("double_backward")
def a_state_all_of_which_is_set_by_index() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state[...] = 0.0  # CUT

    return _second_batch(Model())


@cut("double_backward")
def a_state_that_the_first_one_is_copied_over() -> Built:
    class Model(Leaky):
        def __init__(self) -> None:
            super().__init__()
            self.start = torch.ones_like(self.state)

        def reset(self) -> None:
            self.state.copy_(self.start)  # CUT

    return _two_batches(Model())


@cut("double_backward")
def a_state_whose_data_is_zeroed() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state.data.zero_()  # CUT

    return _second_batch(Model())


@cut("double_backward")
def buffers_that_setattr_has_set_and_a_loop_zeroes() -> Built:
    class Model(Leaky):
        def __init__(self) -> None:
            super().__init__()
            start = self.__dict__.pop("state")
            self.register_buffer("state", start)

        def reset(self) -> None:
            for one in self.buffers():
                nn.init.zeros_(one)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.reset()
            for name, one in list(self.named_buffers()):
                setattr(self, name, torch.tanh(self.body(x) + one))
            loss: torch.Tensor = self.head(self.state).square().mean()
            return loss

    return _second_batch(Model())


@cut("double_backward")
def a_state_that_is_kept_and_half_of_it_zeroed() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
            self.memory = torch.zeros(len(batch()), 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.memory[0] = 0.0
            self.memory = torch.tanh(self.body(x) + 0.5 * self.memory)  # CUT
            loss: torch.Tensor = self.head(self.memory).square().mean()
            return loss

    return _second_batch(Model())


@sound
def a_state_that_is_made_anew() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state = torch.zeros_like(self.state)

    return _two_batches(Model())


@sound
def a_state_that_is_detached_and_zeroed() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state.detach_().zero_()

    return _two_batches(Model())


@sound
def a_state_that_is_zeroed_in_its_own_pass() -> Built:
    class Model(Leaky):
        def reset(self) -> None:
            self.state = self.body(torch.ones_like(self.state))
            self.state.zero_()

    return _two_batches(Model())


RESET = [
    a_state_that_is_zeroed,
    a_state_of_which_the_last_part_no_loss_has_used,
    a_state_that_is_filled_where_nothing_is_recorded,
    a_state_that_is_multiplied_by_zero,
    a_state_all_of_which_is_set_by_index,
    a_state_that_the_first_one_is_copied_over,
    a_state_whose_data_is_zeroed,
    buffers_that_setattr_has_set_and_a_loop_zeroes,
]
SOUND = [a_state_that_is_made_anew, a_state_that_is_detached_and_zeroed, a_state_that_is_zeroed_in_its_own_pass]


def _report(build: Callable[[], Built]) -> Report:
    torch.manual_seed(0)
    model, step = build()
    return gradkit.diagnose(step, model=model)


@pytest.mark.parametrize("build", RESET, ids=lambda one: one.__name__)
def test_the_line_that_resets_a_state_in_place_is_named_and_proven(build: Callable[[], Built]) -> None:
    (finding,) = _report(build).findings
    assert (finding.cause, finding.variant, finding.proof) == ("double_backward", "reset", "proven")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


@pytest.mark.parametrize("build", RESET, ids=lambda one: one.__name__)
def test_no_change_is_offered_to_where_the_passes_of_one_batch_use_the_state(build: Callable[[], Built]) -> None:
    (finding,) = _report(build).findings
    assert finding.tried is None


def test_where_part_of_a_state_is_reset_the_line_that_keeps_it_is_named() -> None:
    build = a_state_that_is_kept_and_half_of_it_zeroed
    (finding,) = _report(build).findings
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


@pytest.mark.parametrize("build", SOUND, ids=lambda one: one.__name__)
def test_a_state_that_lets_go_of_its_history_gets_a_clean_bill(build: Callable[[], Built]) -> None:
    assert _report(build).healthy
