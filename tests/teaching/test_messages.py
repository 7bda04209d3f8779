"""An error message leads to the guides that speak of it: each message here is raised by torch as the test runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gradkit import cli
from gradkit.core import causes
from gradkit.core.errors import GradkitError
from gradkit.teaching import guide, messages


def raised(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def of_the_guides_program(cause: str) -> str:
    """What the wrong program of a guide raises, in its step or in backward; ``""`` if it raises nothing."""
    case = guide.load_case(cause)

    def run() -> None:
        _, step = case.make()
        step().backward()

    return raised(run) if "raises" in case.FAILS else ""


@pytest.mark.parametrize("cause", causes.causes())
def test_what_the_program_of_a_guide_raises_leads_to_that_guide(cause: str) -> None:
    message = of_the_guides_program(cause)
    assert not message or cause in messages.guides_about(message)


def test_most_guides_have_a_program_that_raises_or_a_message_that_they_quote() -> None:
    assert sum(bool(messages.quoted(cause)) for cause in causes.causes()) > len(causes.causes()) // 2


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


class OldStyle(torch.autograd.Function):
    def forward(self, x):
        return x


class Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, grad):
        return grad


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


def sparse_for_adam() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    torch.optim.Adam(table.parameters()).step()


def freed_history() -> None:
    loss = (leaf() ** 2).sum()
    loss.backward()
    loss.backward()


RAISED = {
    "a leaf is written": (lambda: leaf().add_(1), "inplace_modified"),
    "a view of a leaf is written": (lambda: leaf()[:2].add_(1), "inplace_modified"),
    "a view of several is written": (lambda: (leaf() * 2).unbind()[0].add_(1), "inplace_modified"),
    "a flag of what is no leaf": (lambda: (leaf() * 2).requires_grad_(False), "grad_on_non_leaf"),
    "an optimizer of what is no leaf": (lambda: torch.optim.SGD([leaf() * 2], lr=1.0), "grad_on_non_leaf"),
    "an old Function": (lambda: OldStyle()(leaf()), "custom_function"),
    "a Function with one gradient of two": (lambda: Short.apply(leaf(), leaf()).sum().backward(), "custom_function"),
    "a Function without backward": (lambda: NoBackward.apply(leaf()).sum().backward(), "custom_function"),
    "an integer that requires grad": (lambda: torch.arange(3).requires_grad_(), "integer_cast"),
    "a hook on what requires none": (lambda: torch.ones(1).register_hook(print), "hook_misuse"),
    "sparse gradients for Adam": (sparse_for_adam, "optimizer_mismatch"),
    "an optimizer of nothing": (lambda: torch.optim.SGD([], lr=1.0), "unregistered_parameters"),
    "a history that is freed": (freed_history, "double_backward"),
    "many elements": (lambda: (leaf() * 2).backward(), "non_scalar"),
    "a tensor that took no part": (lambda: torch.autograd.grad(leaf().sum(), leaf()), "unused_input"),
}  # fmt: skip


@pytest.mark.parametrize("what", RAISED)
def test_a_message_of_torchs_leads_to_its_guide(what: str) -> None:
    work, cause = RAISED[what]
    message = raised(work)
    assert message
    assert cause in messages.guides_about(message)


def test_a_whole_traceback_and_a_part_of_the_message_lead_to_it_as_well() -> None:
    message = raised(freed_history)
    pasted = f'Traceback (most recent call last):\n  File "train.py", line 3, in step\n    loss.backward()\n{message}'
    part = messages.guides_about("backward through the graph a second time")
    assert set(part) == {"double_backward", "grad_on_non_leaf"}
    assert messages.guides_about(pasted)[0] in part


@pytest.mark.parametrize(
    "message",
    ["CUDA out of memory. Tried to allocate 2.00 GiB", "mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)", "no"],
)
def test_a_message_of_another_kind_leads_to_none_and_that_is_said(message: str) -> None:
    with pytest.raises(GradkitError) as told:
        messages.guides_about(message)
    assert told.value.key == "no_guide_for_message"
    assert message in str(told.value)


def test_the_command_prints_the_one_guide_or_lists_the_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["guide", "grad can be implicitly created only for scalar outputs"]) == 0
    assert capsys.readouterr().out == guide.markdown(guide.guide("non_scalar"))
    assert cli.main(["guide", "element 0 of tensors does not require grad and does not have a grad_fn"]) == 0
    listed = capsys.readouterr().out
    assert "gradkit run" in listed
    assert guide.guide("detach").title in listed
