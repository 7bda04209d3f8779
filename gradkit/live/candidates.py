"""Which units of which frames may be the failing step, the likeliest first; and where recording was switched off."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

import torch
from torch import nn
from torch.autograd import function
from torch.utils import _contextlib

from gradkit.core import introspection
from gradkit.core.trace import Chain
from gradkit.live.stack import Point
from gradkit.source import frames, locations, units
from gradkit.source.units import Unit

MOST = 8
"""Units that are looked at for one explanation."""
_CALLS = (nn.Module._call_impl, nn.Module._wrapped_call_impl, function.BackwardCFunction.apply)  # noqa: SLF001
_BACKWARDS = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_APPLY: CodeType = function.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_STEP_OF = frozenset({_APPLY, *(one.__code__ for one in (*_CALLS, *_BACKWARDS))})
_TOOLS = tuple(f"{os.sep}{name}{os.sep}" for name in ("IPython", "ipykernel", "_pytest", "pluggy", "torch"))
INSIDE, OUTSIDE = "inside", "outside"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A unit that may be the step. It keeps a frame alive: hold it no longer than needed.

    Attributes:
        stack: the frames, outermost first.
        at: which of them the unit was taken from.
        unit: the statements.
        cells: how earlier cells of the notebook are run before it; a constant of ``earlier_cells``.
    """

    stack: tuple[Point, ...]
    at: int
    unit: Unit
    cells: str = ""

    @property
    def point(self) -> Point:
        """The frame that the unit was taken from."""
        return self.stack[self.at]

    @property
    def function(self) -> str:
        """The qualified name of its function."""
        return locations.qualified_name(self.point.code)

    @property
    def callers(self) -> Chain:
        """The user's frames further out, innermost first."""
        return tuple((one.code, one.lasti) for one in reversed(self.stack[: self.at]) if _is_users(one))

    @property
    def place(self) -> tuple[str, int]:
        """File and line of the innermost frame that is the user's, from the unit's frame on; else a library's."""
        inner = self.stack[self.at :]
        users = [one for one in inner if _is_users(one)] or [one for one in inner if not _is_torchs(one)]
        return (users[-1].code.co_filename, users[-1].line) if users else ("", 0)


def candidates(stack: Sequence[Point], *, inclusive: bool = True) -> Iterator[Candidate]:
    """The units of a stack: from the innermost frame outwards, in each from its innermost loop outwards.

    What lies inside of a module's call, a custom Function or a backward is run by whoever calls that. Beyond the second
    frame that stands in a loop, and beyond the module's level, lies the whole program: nothing is tried there.

    Args:
        stack: the frames, outermost first.
        inclusive: the failing statement belongs to the unit; else the innermost frame's units end at the last backward,
            unless that statement is the call of a module that does all of it inside.
    """
    stack = tuple(stack)
    end = _end(stack)
    loops, innermost = 0, end == len(stack)
    for at in reversed(range(_begin(stack), end)):
        point = stack[at]
        if _is_torchs(point) or any(part in point.code.co_filename for part in _TOOLS):
            continue
        wanted = inclusive or not innermost
        found = units.units_of(point.code, point.lasti, point.line, inclusive=wanted)
        if found or units.units_of(point.code, point.lasti, point.line):
            innermost = False  # where ``optimizer.step()`` stands alone in a function, what calls that is run
        for unit in found:
            if unit.kind == units.LOOP or not loops:
                yield Candidate(stack, at, unit)
        loops += any(unit.kind == units.LOOP for unit in found)
        if loops == 2 or point.code.co_name.startswith(("<module", "<cell")):
            return


def _begin(stack: tuple[Point, ...]) -> int:
    """The outermost frame of the user's: what lies further out, a test runner or a notebook, is not the program."""
    return next((at for at, point in enumerate(stack) if _is_users(point)), len(stack))


def _end(stack: tuple[Point, ...]) -> int:
    return next((at for at, point in enumerate(stack) if point.code in _STEP_OF), len(stack))


def _is_users(point: Point) -> bool:
    return frames.is_user_file(point.code.co_filename)


def _is_torchs(point: Point) -> bool:
    return frames.is_torch_file(point.code.co_filename)


def files(stack: Sequence[Point]) -> tuple[str, ...]:
    """The user's files that a stack goes through, the innermost first."""
    return tuple(dict.fromkeys(one.code.co_filename for one in reversed(stack) if _is_users(one)))


def recording_off(candidate: Candidate) -> str:
    """What keeps autograd from recording while the frames still run.

    Returns:
        ``"inside"``: the unit itself, or what it called, has entered it, and will enter it again. ``"outside"``: a
        ``with`` or a decorator further out. ``""``: recording is on, or was switched off for good.
    """
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return ""
    stack, at, unit = candidate.stack, candidate.at, candidate.unit
    if any(_enters(point) for point in stack[at + 1 :]):
        return INSIDE
    own = locations.around((candidate.point.code, candidate.point.lasti))
    if own is not None:
        rebuilt = {getattr(one, "lineno", 0) for one in unit.around}
        return INSIDE if unit.first <= own.line <= unit.last or own.line in rebuilt else OUTSIDE
    return OUTSIDE if any(_enters(point) for point in stack[:at]) else ""


def runs_without(candidate: Candidate) -> bool:
    """Whether the unit's own function is called by way of a decorator that switches recording off."""
    return candidate.at > 0 and _is_decorator(candidate.stack[candidate.at - 1])


def _enters(point: Point) -> bool:
    if point.code is _APPLY:
        return True
    return _is_decorator(point) or (_is_users(point) and locations.around((point.code, point.lasti)) is not None)


def _is_decorator(point: Point) -> bool:
    """Whether a frame is torch's own, of a function that a grad mode decorates."""
    if point.code.co_filename != _contextlib.__file__:
        return False
    maker = point.frame.f_locals.get("ctx_factory")
    kind = type(introspection.ask(maker, "__self__", maker))
    return kind.__module__ == "torch.autograd.grad_mode" and kind.__name__ != "enable_grad"
