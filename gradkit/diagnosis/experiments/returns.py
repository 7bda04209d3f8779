"""Run the step again and watch which functions of the user's return: where what took the place of the loss comes from.

A number that Python has made of others has forgotten what it came from. Once it is known which lines have returned it,
the source tells which of the numbers that left torch are used there (``departures``).

Python's own hook for profilers tells, as nothing else does, by which of its lines a function returned. That of a
profiler that is running already is left alone; nothing is watched then.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import torch

from gradkit.core import introspection
from gradkit.core.trace import Chain, Trace
from gradkit.source import dataflow, frames, returns
from gradkit.source.faults import on_behalf
from gradkit.source.returns import Return
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.no_loss import EARLIER, NOTHING, NUMBER, NoLoss
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer


@dataclass(frozen=True)
class Returned:
    """Where what took the place of the loss was returned.

    Attributes:
        chain: the function that made it, and those that handed it on, innermost first; ``()`` if that was not seen.
        same: it is the very tensor that the first run returned, so that it is older than the step.
        left: indices of the calls by which a number left torch that came to be the loss, as far as the source tells.
        runs: how many times the step was run to find out.
    """

    chain: Chain = ()
    same: bool = False
    left: tuple[int, ...] = ()
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


def ask(
    session: Session, trace: Trace, no_loss: NoLoss | None, tensor: torch.Tensor | None, names: Iterable[str], *,
    replay: bool,
) -> Returned:  # fmt: skip
    """Where what took the place of the loss was returned, and which of the numbers that left torch it is made of.

    Args:
        trace: of the first run.
        tensor: what that returned, if it is a tensor that somebody still holds.
        names: the parameters from which nothing flows into the loss.
        replay: whether the step may be run again.
    """
    if no_loss is None:
        return Returned()
    if no_loss.kind == EARLIER and tensor is None and not any(value.past for value in trace.values):
        return Returned()  # made by what nobody hears
    found = find(session, no_loss, tensor) if replay else read(session.step, no_loss)
    if no_loss.kind != NUMBER:
        return found
    return replace(found, left=departures(trace, (*found.chain, *no_loss.asked), names))


def find(session: Session, no_loss: NoLoss, tensor: torch.Tensor | None) -> Returned:
    """Run the step again, and follow what it returned to where that was made.

    Args:
        tensor: what the first run returned, if it is a tensor that somebody still holds.
    """
    watching = WatchReturns(nothing=no_loss.kind == NOTHING)
    same = session.ask(lambda _, result: tensor is not None and result is tensor, watching)
    last = watching.outermost
    if last is None:
        return replace(read(session.step, no_loss), same=same, runs=1)
    return Returned(returns.handed_out(last, no_loss.asked), same, runs=1)


def read(step: Callable[[], Any], no_loss: NoLoss) -> Returned:
    """Where a step, or the loss function of one, returns, as far as its source alone tells."""
    given = introspection.ask(step, "step") or introspection.ask(step, "loss") or step
    code = introspection.ask(given, "__code__")
    if no_loss.asked or not introspection.is_a(code, CodeType):
        return Returned()
    return Returned(returns.only_return(code, nothing=no_loss.kind == NOTHING))


def departures(trace: Trace, end: Chain, names: Iterable[str]) -> tuple[int, ...]:
    """Indices of the calls by which something computed from the named parameters left torch and came to be the loss.

    Args:
        end: where the loss was returned, or ``backward()`` called on it.
    """
    flowing = {trace.values[trace.parameters[name]].parameter for name in names}
    starts = [number for number, value in enumerate(trace.values) if value.parameter in flowing]
    out = [c for c in trace.ahead(starts) if c.chain and any(trace.values[number].python for number in c.outputs)]
    return tuple(call.index for call in out if dataflow.is_used_in(call.chain, end))


def joined(trace: Trace, calls: Iterable[int]) -> Trace:
    """The trace with what some calls handed out as part of the loss."""
    last = trace.calls[trace.values[trace.loss].maker]
    numbers = (number for index in calls for number in trace.calls[index].outputs if number not in last.inputs)
    whole = replace(last, inputs=(*last.inputs, *numbers))
    return replace(trace, calls=(*trace.calls[: last.index], whole, *trace.calls[last.index + 1 :]))
