"""What a step does around a backward of its own, or in the backward of a custom Function, and loses a gradient by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Finding
from tests.marks import line_ending


class Memory(nn.Module):
    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.mix, self.out, self.keep = nn.Linear(4, 2), nn.Linear(2, 1), keep
        self.register_buffer("past", torch.zeros(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.mix(torch.cat([x, self.past], 1)))
        if self.keep:
            self.past = 0.5 * self.past + h  # memory
        else:
            self.past = 0.5 * self.past + h.detach()
        return self.out(h).pow(2).mean()


def _segments(keep: bool) -> list[Finding]:
    model = Memory(keep)

    def step() -> torch.Tensor:
        model.past = torch.zeros(1, 2)
        for x in torch.ones(3, 1, 2):
            loss = model(x)
            loss.backward()
        return loss.detach()

    return _found(step, model)


def _found(step: Callable[[], torch.Tensor], model: nn.Module) -> list[Finding]:
    torch.manual_seed(0)
    return list(gradkit.diagnose(step, model=model).findings)


def _lines(word: str) -> list[int]:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return [at for at, line in enumerate(text, 1) if line.endswith(f"  # {word}")]


def _line(found: list[Finding]) -> list[int]:
    return [one.location.line for one in found if one.location is not None]


def test_a_memory_that_a_step_carries_over_its_own_backward_is_named_where_it_is_kept() -> None:
    found = _segments(True)
    assert [(one.cause, one.variant, one.proof) for one in found] == [("double_backward", "carried", "proven")]
    assert _line(found) == _lines("memory")


def test_a_memory_that_lets_go_of_its_history_is_sound() -> None:
    assert not _segments(False)


@pytest.mark.parametrize("detach", [False, True])
def test_a_state_in_a_variable_is_named_where_it_is_taken_over(detach: bool) -> None:
    cell, xs = nn.LSTMCell(2, 3), torch.ones(3, 1, 2)

    def step() -> torch.Tensor:
        state = (torch.zeros(1, 3), torch.zeros(1, 3))
        for x in xs:
            h, c = cell(x, state)
            loss = h.pow(2).mean()
            loss.backward()
            state = (h.detach(), c.detach()) if detach else (h, c)  # state
        return loss.detach()

    assert _line(_found(step, cell)) == ([] if detach else _lines("state"))


def test_of_two_losses_on_one_encoding_the_first_backward_is_named() -> None:
    trunk, heads = nn.Linear(2, 3), nn.ModuleList(nn.Linear(3, 1) for _ in range(2))

    def step() -> torch.Tensor:
        shared = torch.tanh(trunk(torch.ones(1, 2)))
        for head in heads:
            loss = head(shared).pow(2).mean()
            loss.backward()  # shared
        return loss.detach()

    found = _found(step, nn.ModuleList([trunk, heads]))
    assert (_line(found), [one.variant for one in found]) == (_lines("shared"), ["frees"])


def test_of_two_losses_of_one_pass_the_backward_that_frees_what_the_returned_one_needs_is_named() -> None:
    trunk, heads = nn.Linear(2, 3), nn.ModuleList(nn.Linear(3, 1) for _ in range(2))

    def step() -> torch.Tensor:
        shared = torch.tanh(trunk(torch.ones(1, 2)))
        first, second = (head(shared).pow(2).mean() for head in heads)
        (2 * first).backward()  # early
        return 3 * second

    found = _found(step, nn.ModuleList([trunk, heads]))
    assert (_line(found), [one.variant for one in found]) == (_lines("early"), ["frees"])


class Unrecorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, w)
        return torch.tanh(x * w)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, w = (one.detach().requires_grad_() for one in ctx.saved_tensors)
        scaled = x * w  # recomputed
        out = torch.tanh(scaled).requires_grad_()
        return torch.autograd.grad(out, (x, w), grad, allow_unused=True)


class Raising(Unrecorded):
    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, w = (one.detach().requires_grad_() for one in ctx.saved_tensors)
        scaled = x * w  # raising
        return torch.autograd.grad(torch.tanh(scaled), (x, w), grad)


class Recorded(Unrecorded):
    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, w = (one.detach().requires_grad_() for one in ctx.saved_tensors)
        with torch.enable_grad():
            out = torch.tanh(x * w)
        return torch.autograd.grad(out, (x, w), grad)


@pytest.mark.parametrize(
    ("function", "word"), [(Unrecorded, "recomputed"), (Raising, "raising"), (Recorded, "nowhere")]
)
@pytest.mark.parametrize("own", [False, True])
def test_what_a_backward_computes_unrecorded_is_named_at_its_first_line(
    function: type[Unrecorded], word: str, own: bool
) -> None:
    model = nn.Linear(2, 2)

    def step() -> torch.Tensor:
        loss = function.apply(model(torch.ones(1, 2)), model.bias).sum()
        if own:
            loss.backward()
        return loss.detach() if own else loss

    found = _found(step, model)
    assert _line(found) == _lines(word)
    assert all((one.cause, one.variant) == ("custom_function", "recomputed") for one in found)


def _freezing(thaw: bool, before: bool) -> list[Finding]:
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)

    def freeze() -> None:
        for parameter in model.parameters():
            parameter.requires_grad = False  # freezes

    def step() -> torch.Tensor:
        loss = head(torch.tanh(model(torch.ones(1, 2)))).sum()
        if before:
            loss.backward()
        freeze()
        if thaw:
            model.requires_grad_(True)
        return loss.detach() if before else loss

    return _found(step, nn.ModuleList([model, head]))


def test_a_flag_that_the_step_takes_away_before_backward_is_named_where_it_does() -> None:
    found = _freezing(thaw=False, before=False)
    assert [(one.cause, one.variant, one.proof) for one in found] == [("frozen_all", "midway", "observed")]
    assert (_line(found), found[0].parameters) == (_lines("freezes"), ("0.weight", "0.bias"))


@pytest.mark.parametrize(("thaw", "before"), [(True, False), (False, True)])
def test_a_flag_that_comes_back_in_time_or_goes_after_backward_is_sound(thaw: bool, before: bool) -> None:
    assert not _freezing(thaw, before)


class FewShot(nn.Module):
    """Fits itself to a support set in its forward, and then answers."""

    def __init__(self, answers: str) -> None:
        super().__init__()
        self.body, self.answers = nn.Linear(3, 2), answers

    def forward(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        inner = torch.optim.SGD(self.body.parameters(), lr=0.01)
        for _ in range(2):
            self.body(support).square().mean().backward()
            inner.step()
        self.zero_grad()
        return self.answer(query)

    def answer(self, query: torch.Tensor) -> torch.Tensor:
        if self.answers == "recorded":
            return self.body(query)
        with torch.no_grad():  # answered
            return self.body(query)

    def fit(self, support: torch.Tensor) -> None:
        self.zero_grad()
        self.body(support).square().mean().backward()


def test_a_backward_of_the_forwards_own_is_no_training_by_the_loss_that_is_made_of_its_answer() -> None:
    net, x = FewShot("unrecorded"), torch.ones(2, 3)
    (finding,) = gradkit.diagnose(lambda: net(x, x).square().mean(), model=net).findings
    assert (finding.cause, finding.proof) == ("no_grad_block", "proven")
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "answered")


def test_a_forward_that_fits_itself_and_answers_with_a_history_is_sound() -> None:
    net, x = FewShot("recorded"), torch.ones(2, 3)
    assert gradkit.diagnose(lambda: net(x, x).square().mean(), model=net).healthy


def test_a_step_that_trains_and_returns_a_validation_loss_is_sound() -> None:
    net, x = FewShot("unrecorded"), torch.ones(2, 3)

    def step() -> torch.Tensor:
        net.fit(x)
        return net.answer(x).square().mean()

    assert gradkit.diagnose(step, model=net).healthy
