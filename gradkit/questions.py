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
from gradkit.unreal import has_no_numbers


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
        watching = _Watching(model, preserved)
        loss = _run(step, preserved, watching)
        sequence = reach.first_not_finite(loss, preserved) if loss is not None else -1
        spoiler, runs = (watching.origin(watching.index_at(sequence), loss) if sequence >= 0 else -1), runs + 1
    if lost:
        loss = _run(step, preserved, Tracer(model, preserved))
        dropped, runs = (reach.dropped(loss, preserved) if loss is not None else ()), runs + 1
    if zero:
        tracer = Tracer(model, preserved)
        loss = _run(step, preserved, tracer)
        swallowed, runs = (_swallowed(tracer, loss, preserved) if loss is not None else ()), runs + 1
    preserved.rewind()
    return Answers(spoiler, dropped, swallowed, runs)


def _swallowed(tracer: Tracer, loss: torch.Tensor, preserved: Preserved) -> tuple[tuple[str, Call], ...]:
    found = [(kind, tracer.index_at(sequence)) for kind, sequence in vanishing.swallowed(loss, preserved)]
    calls = tracer.trace(loss).calls
    return tuple((kind, calls[index]) for kind, index in found if index >= 0)


def _run(step: Callable[[], Any], preserved: Preserved, tracer: Tracer) -> torch.Tensor | None:
    preserved.rewind()
    loss = tracer.run(step)
    return loss if isinstance(loss, torch.Tensor) else None


class _Watching(Tracer):
    """Notes which calls made nan of what was none: a derivative there is nan too, wherever it is taken later."""

    def __init__(self, model: nn.Module, preserved: Preserved) -> None:
        super().__init__(model, preserved)
        self._poisoned: set[int] = set()
        self._poisoned_at: set[int] = set()

    def changed(self, name: str, inputs: tuple[int, ...], found: list[Any], result: Any) -> Any:
        """The result itself, looked at."""
        if _holds_nan(result):
            self._poisoned.add(len(self._calls))
            if not any(map(_holds_nan, found)):
                self._poisoned_at.add(len(self._calls))
        return result

    def origin(self, spoiler: int, loss: Any) -> int:
        """Where the nan came from that a call was handed in the forward pass; the call itself if it was handed none."""
        trace = self.trace(loss)
        if not 0 <= spoiler < len(trace.calls) or not self._poisoned_at:
            return spoiler
        given = trace.calls[spoiler].inputs
        behind = {call.index for call in trace.behind(given)}
        handed = {trace.values[number].maker for number in given} & self._poisoned
        return min(behind & self._poisoned_at, default=spoiler) if handed else spoiler


def _holds_nan(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided
    return plain and not has_no_numbers(value) and bool(value.isnan().any())
