"""What several programs use: the marks that enter them, small models and batches."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, Callable[[], Any]]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
MARK = "# CUT"


@dataclass(frozen=True)
class Program:
    """``lines``: those with the mark. ``short``: in what the engine falls short of it today."""

    build: Callable[[], Built]
    cause: str
    lines: frozenset[int]
    short: str

    @property
    def file(self) -> str:
        """Where it is written, and so where its findings stand."""
        return self.build.__code__.co_filename


Build = Callable[[], Built]


def cut(cause: str, short: str = "", within: type | None = None) -> Callable[[Build], Build]:
    """Enter a program that loses the gradient by ``cause``; ``within``: a class that has marked lines, too."""

    def enter(build: Callable[[], Built]) -> Callable[[], Built]:
        texts = [inspect.getsourcelines(one) for one in (build, within) if one is not None]
        marked = ((first + i, line) for text, first in texts for i, line in enumerate(text))
        lines = frozenset(number for number, line in marked if line.rstrip().endswith(MARK))
        vars(build)["faulty"] = Program(build, cause, lines, short)
        return build

    return enter


def faulty(cause: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Enter a faulty program: its first finding has this cause, and its findings stand on the marked lines."""
    return cut(cause)


def sound(build: Callable[[], Built]) -> Callable[[], Built]:
    """Enter a sound program under its name."""
    vars(build)["sound"] = build
    return build


def batch() -> torch.Tensor:
    return torch.randn(6, 4)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def pair(**more: nn.Module) -> nn.ModuleDict:
    return nn.ModuleDict({"inner": nn.Linear(4, 4), "outer": nn.Linear(4, 1), **more})


def _one_worker() -> None:
    """A group of one process, made once for all tests of this process."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


class Marked(torch.Tensor):
    """A subclass that adds nothing."""


@dataclasses.dataclass
class Output:
    """What a model may return."""

    loss: torch.Tensor
    codes: tuple[torch.Tensor, ...]


def step_of(run: Callable[[], Any], **given: Any) -> Callable[[], Any]:
    """A step, with what ``diagnose`` is to be told of it."""

    def step() -> Any:
        return run()

    vars(step).update(given)
    return step
