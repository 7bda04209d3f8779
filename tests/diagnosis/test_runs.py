"""How often a step is run, and what is left behind when it ends anywhere in the middle."""

from __future__ import annotations

import contextlib
import random
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import gradkit
from tests import snapshots
from tests.programs import cut as cut_programs

CUTS = [name for name, program in cut_programs.PROGRAMS.items() if not program.short]


@pytest.mark.parametrize("name", random.Random(0).sample(CUTS, 40))
@pytest.mark.parametrize("replay", [True, False])
def test_the_number_of_runs_is_the_one_that_is_stated(name: str, replay: bool) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    runs: SimpleQueue[int] = SimpleQueue()

    def counted() -> Any:
        runs.put(1)
        return step()

    report = gradkit.diagnose(counted, model=model, replay=replay)
    assert runs.qsize() == report.runs
    assert replay or runs.qsize() == 1


class Ending(TorchFunctionMode):
    """Ends whatever runs at the torch call with this number."""

    def __init__(self, number: int, error: BaseException) -> None:
        super().__init__()
        self.left, self.error = number, error

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "error", [ValueError("stop"), KeyboardInterrupt(), TimeoutError()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("number", sorted(random.Random(1).sample(range(1, 60), 12)))
def test_nothing_is_left_behind_when_the_step_ends_at_call(number: int, error: BaseException) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(6, 4)

    ended: SimpleQueue[Ending] = SimpleQueue()

    def step() -> torch.Tensor:
        with Ending(number, error) as ending:
            ended.put(ending)
            optimizer.zero_grad()
            with torch.no_grad():
                model[0].weight.mul_(0.9)
                code = model[:2](x + torch.rand(6, 4))
            model.eval()
            loss = model[2:](code).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

    before = snapshots.take(model)
    with contextlib.suppress(gradkit.GradkitError, KeyboardInterrupt):
        gradkit.diagnose(step, model=model)
    assert ended.get().left <= 0, "the step has fewer calls"
    assert snapshots.differences(before, snapshots.take(model)) == []
    assert not optimizer.state
