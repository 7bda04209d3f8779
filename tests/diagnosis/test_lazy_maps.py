"""A ``map`` that detaches: the line that makes it is named, and not the later one by which it runs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from tests.marks import line_ending
from tests.programs.shared import Built, batch, pair


def an_iterator_that_detaches_what_its_caller_unpacks() -> Built:
    model, x = pair(), batch()

    def stopped(*tensors: torch.Tensor) -> Any:
        return map(torch.detach, tensors)  # unpacked

    def step() -> torch.Tensor:
        first, second = stopped(model["inner"](x), model["inner"](-x))
        return model["outer"](first + second).sum()

    return model, step


def an_iterator_that_a_later_line_takes_up() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        halves = map(torch.Tensor.detach, model["inner"](x).chunk(2))  # taken up
        code = torch.cat(list(halves))
        return model["outer"](code).sum()

    return model, step


def an_iterator_that_a_loop_runs_over() -> Built:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2)

        def kept(self, states: list[torch.Tensor]) -> Any:
            quiet = map(operator.methodcaller("detach"), states)  # run over
            return quiet  # noqa: RET504  the name is what is followed

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(())
            for state in self.kept([self.inner(x), self.inner(-x)]):
                total = total + self.outer(state).sum()
            return total

    model, x = Memory(), batch()
    return model, lambda: model(x)


@pytest.mark.parametrize(
    ("program", "mark"),
    [
        (an_iterator_that_detaches_what_its_caller_unpacks, "unpacked"),
        (an_iterator_that_a_later_line_takes_up, "taken up"),
        (an_iterator_that_a_loop_runs_over, "run over"),
    ],
)
def test_the_line_that_makes_the_iterator_is_named(program: Callable[[], Built], mark: str) -> None:
    model, step = program()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.cause == "detach"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, mark)
