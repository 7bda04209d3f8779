"""What some steps of training have shown, as checks and as a curve of characters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradkit.core.i18n import words
from gradkit.diagnosis.experiments.train_steps import Walk
from gradkit.report.checklist import FAILED, NOTED, OPEN, PASSED, Check

KEYS = ("ran", "falls", "moves", "same")
BARS = "▁▂▃▄▅▆▇█"


def checks(walk: Walk, frozen: frozenset[str]) -> Iterator[Check]:
    """The points of a list, by ``KEYS``.

    A loss that does not fall is no fault of a few steps, and is noted. What must be frozen may not change at all; what
    merely requires no gradient may be written by the step, as a momentum encoder is, but not by its optimizer.

    Args:
        walk: what was seen.
        frozen: names of the parameters that must not train.

    Example:
        >>> found = checks(Walk((2.0, 1.0), 2, ("SGD",), moved=("weight",), same=("base",)), frozenset())
        >>> [(check.key, check.state) for check in found]
        [('ran', 'passed'), ('falls', 'passed'), ('moves', 'passed'), ('same', 'passed')]
    """
    yield _ran(walk)
    yield _falls(walk)
    yield _moves(walk)
    yield _same(walk, frozen)


def _ran(walk: Walk) -> Check:
    kinds = ", ".join(walk.kinds)
    if walk.error:
        facts = {"number": len(walk.losses) + 1, "error": walk.error.splitlines()[0]}
        return Check("ran", FAILED, facts)
    return Check("ran", NOTED if walk.own else PASSED, {"n": walk.steps, "kinds": kinds})


def _falls(walk: Walk) -> Check:
    if not walk.losses:
        return Check("falls", OPEN)
    facts = {"first": _number(walk.losses[0]), "last": _number(walk.losses[-1])}
    if not all(map(math.isfinite, walk.losses)):
        return Check("falls", FAILED, facts)
    if len(walk.losses) < 2:
        return Check("falls", OPEN)
    return Check("falls", PASSED if walk.losses[-1] < walk.losses[0] else NOTED, facts)


def _moves(walk: Walk) -> Check:
    if not walk.losses:
        return Check("moves", OPEN)
    if walk.still:
        return Check("moves", FAILED, {"n": len(walk.still), "name": walk.still[0]})
    if walk.idle:
        return Check("moves", NOTED, {"n": len(walk.idle), "name": walk.idle[0], "moved": len(walk.moved)})
    return Check("moves", PASSED, {"n": len(walk.moved)})


def _same(walk: Walk, frozen: frozenset[str]) -> Check:
    changed = (*walk.pushed, *walk.written)
    wrong = [*walk.pushed, *(name for name in walk.written if name in frozen)]
    wrong += [name for name in walk.moved if name in frozen]
    if wrong:
        return Check("same", FAILED, {"n": len(wrong), "name": wrong[0]})
    if changed:
        return Check("same", NOTED, {"n": len(changed), "name": changed[0]})
    return Check("same", PASSED, {"n": len(walk.same)}) if walk.same else Check("same", OPEN)


def _number(value: float) -> str:
    return f"{value:.4g}"


def curve(losses: Sequence[float]) -> str:
    """Losses as a line of bars, the highest the largest; what is not finite is a ``!``.

    Example:
        >>> curve([2.0, 1.0, float("nan"), 0.0])
        '█▅!▁'
    """
    known = [loss for loss in losses if math.isfinite(loss)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = (high - low) or 1.0
    return "".join(
        BARS[round((loss - low) / span * (len(BARS) - 1))] if math.isfinite(loss) else "!" for loss in losses
    )


def lines(walk: Walk) -> Iterator[str]:
    """What stands below the points: the curve with its numbers."""
    if walk.losses:
        yield words("verify.curve", bars=curve(walk.losses), numbers=" ".join(map(_number, walk.losses)))
