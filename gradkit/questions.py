"""Questions that the first run left open: each is answered by running the step once more and watching its backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradkit import reach, vanishing
from gradkit.preserve import Preserved
from gradkit.reach import Dropped
from gradkit.trace import Tracer
from gradkit.traces import Call


@dataclass(frozen=True)
class Answers:
    """What further runs showed.

    Attributes:
        spoiler: index of the call whose derivative is nan or inf, -1 if not asked or not known.
        dropped: custom Functions that let a gradient end.
        swallowed: calls that were handed a gradient and handed on zeros, each with the kind of ``vanishing``.
        runs: how many times the step was run.
    """

    spoiler: int = -1
    dropped: tuple[Dropped, ...] = ()
    swallowed: tuple[tuple[str, Call], ...] = ()
    runs: int = 0


def ask(
    step: Callable[[], Any],
    model: nn.Module,
    preserved: Preserved,
    *,
    not_finite: Sequence[str] = (),
    lost: Sequence[str] = (),
    zero: bool = False,
) -> Answers:
    """Run the step as often as there are open questions.

    Args:
        not_finite: parameters whose gradient holds nan or inf.
        lost: parameters that are part of the graph behind the loss and still get no gradient.
        zero: ask where the gradient becomes exactly zero.
    """
    dropped: tuple[Dropped, ...] = ()
    swallowed: tuple[tuple[str, Call], ...] = ()
    spoiler, runs = -1, 0
    if not_finite:
        tracer, loss = _run(step, model, preserved)
        sequence = reach.first_not_finite(loss, preserved) if loss is not None else -1
        spoiler, runs = (tracer.index_at(sequence) if sequence >= 0 else -1), runs + 1
    if lost:
        _, loss = _run(step, model, preserved)
        dropped, runs = (reach.dropped(loss, preserved) if loss is not None else ()), runs + 1
    if zero:
        tracer, loss = _run(step, model, preserved)
        swallowed, runs = (_swallowed(tracer, loss, preserved) if loss is not None else ()), runs + 1
    preserved.rewind()
    return Answers(spoiler, dropped, swallowed, runs)


def _swallowed(tracer: Tracer, loss: torch.Tensor, preserved: Preserved) -> tuple[tuple[str, Call], ...]:
    found = [(kind, tracer.index_at(sequence)) for kind, sequence in vanishing.swallowed(loss, preserved)]
    calls = tracer.trace(loss).calls
    return tuple((kind, calls[index]) for kind, index in found if index >= 0)


def _run(step: Callable[[], Any], model: nn.Module, preserved: Preserved) -> tuple[Tracer, torch.Tensor | None]:
    preserved.rewind()
    tracer = Tracer(model, preserved)
    loss = tracer.run(step)
    return tracer, loss if isinstance(loss, torch.Tensor) else None
