"""Steps of optimizers that changed nothing, as records: what was done, and how the optimizer was built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gradkit.core.trace import Chain
from gradkit.diagnosis.facts.optimizers import Gap, gap_of
from gradkit.tracing.after_backward import Idle


@dataclass(frozen=True)
class IdleStep:
    """A step of an optimizer that changed nothing.

    Attributes:
        kind: a constant of ``tracing.after_backward``.
        chain: the user's frames where that was done, innermost first; ``()`` where the optimizer is at fault itself.
        built: the optimizer, as far as rules may look at it; what it holds is not told in it.
        names: parameters that were to learn.
    """

    kind: str
    chain: Chain
    built: Gap
    names: tuple[str, ...]


def read(heard: Iterable[Idle]) -> tuple[IdleStep, ...]:
    """What was heard, as records.

    Example:
        >>> read([])
        ()
    """
    return tuple(IdleStep(one.kind, one.chain, gap_of(one.optimizer, one.names), one.names) for one in heard)
