"""The one :class:`~gradkit.live.rank_sentry.Sentry` of a process that is one of several ranks; none where it is alone.

``gradkit.watch`` begins it, and hands it what it would otherwise tell by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch.optim import Optimizer

from gradkit.core import console
from gradkit.live import whole_weights
from gradkit.live.hearing import Hearing, safely
from gradkit.live.rank_records import Comparison
from gradkit.live.rank_sentry import Sentry
from gradkit.tracing import ranks

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation

_sentry: Sentry | None = None
_keeping: list[Callable[[Comparison], object]] = []


def begin(hearing: Hearing) -> None:
    """Where this process is one of several ranks, or is started to become one, watch together with the others.

    Args:
        hearing: what counts the steps, and hands them on.
    """
    global _sentry
    if _sentry is None and (ranks.several() or _is_launched()):
        _sentry = Sentry(_told, lambda: hearing.steps).begin()
        hearing.before_step = partial(_before_step, hearing)
        hearing.after_closure = _after_closure
        hearing.before_backward = _before_backward
        whole_weights.kept.steps, whole_weights.kept.due = lambda: hearing.steps, lambda: hearing.due


def keep(by: Callable[[Comparison], object]) -> None:
    """Hand what differs between ranks also to somebody who writes it down, in the process that tells of it.

    Args:
        by: called in a thread beside the main one.
    """
    _keeping.append(by)


def _told(comparison: Comparison) -> None:
    console.tell(comparison.text(), aside=True)
    for by in _keeping:
        by(comparison)


def _is_launched() -> bool:
    """Whether a launcher as ``torchrun`` says that there will be several processes."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1


def _before_step(hearing: Hearing, optimizer: Optimizer, frame: FrameType) -> None:
    if _sentry is not None:
        safely(partial(_before_a_step, _sentry, hearing, optimizer, frame))


def _before_a_step(sentry: Sentry, hearing: Hearing, optimizer: Optimizer, frame: FrameType) -> None:
    sentry.before_step(optimizer, frame)
    hearing.before_backward = _before_backward if sentry.hears_losses else None


def _after_closure(optimizer: Optimizer, frame: FrameType) -> None:
    if _sentry is not None:
        safely(partial(_sentry.went_backward, optimizer, frame, after_step=True))


def _before_backward(loss: torch.Tensor, frame: FrameType) -> None:
    if _sentry is not None:
        safely(partial(_sentry.heard, loss, frame))


def hold_signals() -> None:
    """Let a SIGTERM end this process a few seconds later, so that it can say first where it stands."""
    if _sentry is not None:
        _sentry.hold_signals()


def found(explanation: Explanation) -> bool:
    """Hand a silent fault to the ranks' one report; False if this process trains alone."""
    return _sentry is not None and _sentry.found(explanation)


def raising(error: BaseException) -> None:
    """An error is about to end this rank; others that ask are told of it while its reason is looked for."""
    if _sentry is not None:
        _sentry.raising(error)


def raised(explanation: Explanation | None) -> bool:
    """Tell the other ranks of the error that ends this one; whether it was told, by this rank or by another."""
    if _sentry is None:
        return False
    return _sentry.raised(_best(_sentry, explanation))


def as_told(explanation: Explanation) -> Explanation:
    """What was found of an error, as the ranks' one report has told it."""
    if _sentry is None:
        return explanation
    known = _best(_sentry, explanation) or explanation
    return known.on_one_rank() if _sentry.differs else known


def _best(sentry: Sentry, explanation: Explanation | None) -> Explanation | None:
    """DistributedDataParallel complains a step late: what that step itself has shown tells more."""
    report = explanation.report if explanation is not None else None
    return (sentry.hint or explanation) if report is not None and not report.runs else explanation


def end() -> bool:
    """Let what the ranks have to tell come to its end; whether this rank has told something."""
    if _sentry is None:
        return False
    _sentry.close()
    whole_weights.kept.close()
    return _sentry.spoke


def in_a_copy() -> None:
    """This process is a copy of a rank: the threads that watch are not in it."""
    global _sentry
    if _sentry is not None:
        _sentry.in_a_copy()
        whole_weights.kept.close()
        _sentry = None
