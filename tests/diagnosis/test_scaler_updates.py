"""A gradient scaler whose ``update()`` is left out: named is the line that is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Finding
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0)

    def loss(self) -> torch.Tensor:
        return self.model(X).square().mean()

    def unscaled(self, at: int) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss()).backward()
        self.scaler.unscale_(self.optimizer)
        self.finish(skip=at == 1)

    def finish(self, skip: bool) -> None:
        raise NotImplementedError

    def step(self) -> torch.Tensor:
        for at in range(3):
            self.unscaled(at)
        self.optimizer.zero_grad()
        return self.loss()


class Skipping(Trainer):
    def finish(self, skip: bool) -> None:
        if not skip:
            self.scaler.step(self.optimizer)
            self.scaler.update()  # skipped


class Never(Trainer):
    def __init__(self, shows: bool = False) -> None:
        super().__init__()
        self.shows = shows

    def finish(self, skip: bool) -> None:
        self.scaler.step(self.optimizer)
        if self.shows:
            self.scaler.update()  # never reached


class Steady(Trainer):
    def finish(self, skip: bool) -> None:
        if not skip:
            self.scaler.step(self.optimizer)
        self.scaler.update()


def found(trainer: Trainer) -> list[Finding]:
    step: Callable[[], torch.Tensor] = trainer.step
    return list(gradkit.diagnose(step, model=trainer.model).findings)


def test_an_update_that_one_batch_skips_is_named_where_it_stands() -> None:
    (one,) = found(Skipping())
    assert (one.cause, one.variant) == ("amp_misuse", "skipped_update")
    assert one.location is not None
    assert one.location.line == line_ending(__file__, "skipped")


def test_an_update_that_never_runs_is_found_in_the_source() -> None:
    (one,) = found(Never())
    assert one.variant == "skipped_update"
    assert one.location is not None
    assert one.location.line == line_ending(__file__, "never reached")


def test_an_update_for_every_batch_is_sound() -> None:
    assert not found(Steady())


def halved_by_a_cast() -> nn.Module:
    return nn.Linear(3, 2).half()


def halved_as_it_is_built() -> nn.Module:
    return nn.Linear(3, 2, dtype=torch.float16)


@pytest.mark.parametrize("make", [halved_by_a_cast, halved_as_it_is_built])
def test_of_weights_in_half_precision_it_is_said_what_the_scaler_refuses(make: Callable[[], nn.Module]) -> None:
    trainer = Trainer()
    trainer.model = make()
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        loss = trainer.model(X.half()).float().square().mean()
        trainer.scaler.scale(loss).backward()
        trainer.scaler.unscale_(optimizer)
        return loss

    report = gradkit.diagnose(step, model=trainer.model)
    assert [(one.cause, one.variant) for one in report.findings] == [("amp_misuse", "half")]
    assert "out of order" not in report.text()
    assert "torch.autocast" in report.text()
