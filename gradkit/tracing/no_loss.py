"""What stood in the place of the loss in a run: a number, nothing at all, or a tensor from before the step.

A number is made a tensor while the run still listens, as one more call: where it left torch is then a cut on the way to
the loss like any other, and a rerun can undo it. That call stands on no line of the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch

from gradkit.core.trace import Chain, Trace, Value
from gradkit.load.call import numbers_in
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.tracing import tagged_values

NUMBER, NOTHING, EARLIER = "number", "nothing", "earlier"


@dataclass(frozen=True)
class NoLoss:
    """What stood in the place of the loss.

    Attributes:
        kind: ``"number"`` (a number, an array, a list of such), ``"nothing"`` (None) or ``"earlier"`` (a tensor that
            was computed before the step began).
        shown: in a few words, ``"float"``.
        asked: the user's frames where ``backward()`` was called on it; ``()`` if the step returned it.
    """

    kind: str
    shown: str = ""
    asked: Chain = ()


@on_behalf
def run(step: Callable[[], Any]) -> tuple[Any, NoLoss | None]:
    """Call a step: what it returned, or what it has called ``backward()`` on that has no such method.

    Example:
        >>> run(lambda: 0.5)
        (0.5, NoLoss(kind='number', shown='float', asked=()))
        >>> result, found = run(lambda: (2.0).backward())
        >>> result, found.kind, len(found.asked)
        (2.0, 'number', 1)
    """
    try:
        result = step()
    except AttributeError as error:
        if error.name != "backward" or _kind(error.obj) is None:
            raise
        return error.obj, _noted(error.obj, _raised_at(error.__traceback__))
    return result, _noted(result, ())


def _noted(value: Any, asked: Chain) -> NoLoss | None:
    kind = _kind(value)
    return NoLoss(kind, _name(value), asked) if kind is not None else None


def _kind(value: Any) -> str | None:
    return NOTHING if value is None else NUMBER if numbers_in(value) is not None else None


def _name(value: Any) -> str:
    """The class of a value, without what it is called while it has origins."""
    plain = next((kind for kind in type(value).__mro__ if kind.__module__ != tagged_values.__name__), type(value))
    return "None" if value is None else plain.__name__


def _raised_at(trace: TracebackType | None) -> Chain:
    """The user's frames, innermost first."""
    found = []
    while trace is not None:
        if frames.is_user_file(trace.tb_frame.f_code.co_filename):
            found.append((trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    return tuple(reversed(found))


def as_tensor(value: Any) -> torch.Tensor:
    """A number, an array or a list of such as a floating tensor; what it came from is known to a run that listens.

    Example:
        >>> as_tensor(2), as_tensor([1.5, [2.0, 3.0]])
        (tensor(2.), tensor([1.5000, 2.0000, 3.0000]))
    """
    parts = numbers_in(value) or []
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        array = parts[0]
        return torch.as_tensor(array.astype("float64" if array.dtype.itemsize > 4 else "float32", order="C"))
    numbers = [_number(part) for part in parts]
    return torch.as_tensor(numbers[0] if len(numbers) == 1 else numbers)


def _number(part: Any) -> Any:
    """A Python float, of an array its sum."""
    value = float(part.sum()) if isinstance(part, np.ndarray) else float(part)
    return tagged_values.follow(value, tagged_values.origins(part))


def is_from_before(trace: Trace) -> bool:
    """Whether the loss was computed before the step: what the step adds to it uses no parameter of the model.

    Example:
        >>> old = Value(-1, (), True, True, past=True)
        >>> is_from_before(Trace((), (old,), (), (), 0, {}))
        True
    """
    if trace.loss < 0:
        return False
    values, loss = trace.values, trace.values[trace.loss]
    if loss.past or (loss.maker < 0 and loss.floating and not loss.parameter):
        return True
    here = trace.sources([trace.loss], lambda number: not values[number].past)
    used = {number for call in trace.calls if here.intersection(call.outputs) for number in call.inputs}
    return any(values[number].past for number in used) and not any(_learns(values[number]) for number in here)


def _learns(value: Value) -> bool:
    return bool(value.parameter) or value.stray
