"""Questions that the first run left open: each is answered by running the step once more and watching its backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradkit import reach, vanishing
from gradkit.interventions import Intervention, Moment
from gradkit.outcome import Session
from gradkit.preserve import Preserved
from gradkit.reach import Dropped
from gradkit.trace import Tracer
from gradkit.traces import Call, Trace
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


def ask(session: Session, *, not_finite: Sequence[str] = (), lost: Sequence[str] = (), zero: bool = False) -> Answers:
    """Run the step as often as there are open questions.

    Args:
        not_finite: parameters whose gradient holds nan or inf.
        lost: parameters that are part of the graph behind the loss and still get no gradient.
        zero: ask where the gradient becomes exactly zero.
    """
    preserved, answers = session.preserved, Answers(runs=bool(not_finite) + bool(lost) + zero)
    if not_finite:
        watching = WatchNan()
        spoiler = session.ask(lambda tracer, loss: _spoiler(tracer, loss, preserved, watching), watching)
        answers = replace(answers, spoiler=spoiler)
    if lost:
        dropped = session.ask(lambda _, loss: reach.dropped(loss, preserved) if _is_tensor(loss) else ())
        answers = replace(answers, dropped=dropped)
    if zero:
        swallowed = session.ask(lambda tracer, loss: _swallowed(tracer, loss, preserved))
        answers = replace(answers, swallowed=swallowed)
    return answers


def _is_tensor(loss: Any) -> bool:
    """A step that has made a backward of its own may return anything."""
    return isinstance(loss, torch.Tensor)


def _spoiler(tracer: Tracer, loss: Any, preserved: Preserved, watching: WatchNan) -> int:
    sequence = reach.first_not_finite(loss, preserved) if _is_tensor(loss) else -1
    return watching.origin(tracer.index_at(sequence), tracer.trace(loss)) if sequence >= 0 else -1


def _swallowed(tracer: Tracer, loss: Any, preserved: Preserved) -> tuple[tuple[str, Call], ...]:
    if not _is_tensor(loss):
        return ()
    found = [(kind, tracer.index_at(sequence)) for kind, sequence in vanishing.swallowed(loss, preserved)]
    calls = tracer.trace(loss).calls
    return tuple((kind, calls[index]) for kind, index in found if index >= 0)


class WatchNan(Intervention):
    """Notes which calls made nan of what was none: a derivative there is nan too, wherever it is taken later."""

    def __init__(self) -> None:
        self._poisoned: set[int] = set()
        self._poisoned_at: set[int] = set()

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """The result itself, looked at."""
        if _holds_nan(result):
            self._poisoned.add(moment.index)
            if not any(map(_holds_nan, given)):
                self._poisoned_at.add(moment.index)
        return result

    def origin(self, spoiler: int, trace: Trace) -> int:
        """Where the nan came from that a call was handed in the forward pass; the call itself if it was handed none."""
        if not 0 <= spoiler < len(trace.calls) or not self._poisoned_at:
            return spoiler
        given = trace.calls[spoiler].inputs
        behind = {call.index for call in trace.behind(given)}
        handed = {trace.values[number].maker for number in given} & self._poisoned
        return min(behind & self._poisoned_at, default=spoiler) if handed else spoiler


def _holds_nan(value: Any) -> bool:
    plain = reach.is_strided(value) and value.is_floating_point()
    return plain and not has_no_numbers(value) and bool(value.isnan().any())
