"""Run the step again and watch which functions of the user's return: where what took the place of the loss comes from.

Python's own hook for profilers tells, as nothing else does, by which of its lines a function returned. That of a
profiler that is running already is left alone; nothing is watched then.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gradkit.core.trace import Chain
from gradkit.source import frames, returns
from gradkit.source.faults import on_behalf
from gradkit.source.returns import Return
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.no_loss import NOTHING, NoLoss
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer


@dataclass(frozen=True)
class Returned:
    """Where what took the place of the loss was returned.

    Attributes:
        chain: the function that made it, and those that handed it on, innermost first; ``()`` if that was not seen.
        same: it is the very tensor that the first run returned, so that it is older than the step.
        runs: how many times the step was run to find out.
    """

    chain: Chain = ()
    same: bool = False
    runs: int = 0


class WatchReturns(Intervention):
    """Notes every return of a function of the user's.

    Args:
        nothing: only those that return None are of interest.

    Attributes:
        outermost: the return of the step; None if it was not seen.
    """

    def __init__(self, *, nothing: bool = False) -> None:
        self._nothing = nothing
        self._within: dict[int, dict[int, Return]] = {}
        self.outermost: Return | None = None

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """Watch; nobody does so afterwards."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._heard)
        try:
            yield
        finally:
            sys.setprofile(None)

    @on_behalf
    def _heard(self, frame: FrameType, event: str, value: Any) -> None:
        if event != "return" or not frames.is_user_file(frame.f_code.co_filename):
            return
        within = tuple(self._within.pop(id(frame), {}).values())
        if self._nothing and value is not None:
            return
        caller = _caller(frame)
        point = (caller.f_code, caller.f_lasti) if caller is not None else None
        found = Return((frame.f_code, frame.f_lasti), point, within)
        if caller is None:
            self.outermost = found
        else:
            self._within.setdefault(id(caller), {})[caller.f_lasti] = found


def _caller(frame: FrameType) -> FrameType | None:
    """The next frame of the user's further out, in the step."""
    outer = frame.f_back
    while outer is not None and outer.f_code is not Tracer.run.__code__:
        if frames.is_user_file(outer.f_code.co_filename):
            return outer
        outer = outer.f_back
    return None


def find(session: Session, no_loss: NoLoss, tensor: torch.Tensor | None) -> Returned:
    """Run the step again, and follow what it returned to where that was made.

    Args:
        tensor: what the first run returned, if it is a tensor that somebody still holds.
    """
    watching = WatchReturns(nothing=no_loss.kind == NOTHING)
    same = session.ask(lambda _, result: tensor is not None and result is tensor, watching)
    last = watching.outermost
    return Returned(returns.handed_out(last, no_loss.asked) if last is not None else (), same, 1)
