"""The forward of a custom ``torch.autograd.Function`` that a frame runs in.

Autograd records nothing inside of it. What calls it is compiled code in torch 2.14 and newer, so that only the frame of
``forward`` itself tells.
Source: https://pytorch.org/docs/stable/notes/extending.html#extending-torch-autograd
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction


@dataclass(frozen=True)
class Forward:
    """A forward that is running.

    Attributes:
        name: the name of the Function.
        handed: what it was called with, without ``ctx``: the values that its arguments have by now.
        frame: its frame; where it is wrapped (``custom_fwd``), the wrapper's.
    """

    name: str
    handed: tuple[Any, ...]
    frame: FrameType


class Forwards:
    """Knows the forwards of all custom Functions by their code."""

    def __init__(self) -> None:
        self._owners: dict[CodeType, type[Function] | None] = {}

    def around(self, frame: FrameType | None, stop: CodeType) -> Forward | None:
        """The innermost forward that ``frame`` runs in, up to the code object ``stop``; None if it runs in none.

        Example:
            >>> import sys
            >>> class Double(Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         found.append(Forwards().around(sys._getframe(), stop))
            ...         return 2 * x
            >>> def run(): return Double.apply(3.0)
            >>> found, stop = [], run.__code__
            >>> run(), found[0].name, found[0].handed
            (6.0, 'Double', (3.0,))
        """
        while frame is not None and frame.f_code is not stop:
            owner = self._owner(frame.f_code)
            if owner is not None:
                return _outermost(frame, owner, self._owner)
            frame = frame.f_back
        return None

    def _owner(self, code: CodeType) -> type[Function] | None:
        if code not in self._owners:
            self._owners[code] = next((cls for cls in _derived(Function) if code in _codes(cls)), None)
        return self._owners[code]


def _outermost(frame: FrameType, owner: type[Function], owner_of: Callable[[CodeType], Any]) -> Forward:
    """The forward together with what wraps it: the frames outside of it that are the same Function's."""
    handed = _arguments(frame)
    if not (handed and isinstance(context := handed[0], BackwardCFunction)):
        return Forward(owner.__name__, handed, frame)
    outside = frame.f_back
    while outside is not None and owner_of(outside.f_code) is not None:
        further = _arguments(outside)
        if not further or further[0] is not context:
            break
        frame, handed, outside = outside, further, outside.f_back
    return Forward(type(context).__name__.removesuffix("Backward"), handed[1:], frame)


def _arguments(frame: FrameType) -> tuple[Any, ...]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    named = tuple(values.get(name) for name in code.co_varnames[:count])
    rest = code.co_varnames[count : count + bool(code.co_flags & inspect.CO_VARARGS)]
    return (*named, *(value for name in rest for value in values.get(name, ())))


def _derived(cls: type[Function]) -> Iterator[type[Function]]:
    for one in cls.__subclasses__():
        yield one
        yield from _derived(one)


def _codes(cls: type[Function]) -> Iterator[CodeType]:
    """The code of its own ``forward`` and ``setup_context``, and of all that they wrap."""
    for name in ("forward", "setup_context"):
        function = vars(cls).get(name)
        while function is not None:
            function = getattr(function, "__func__", function)
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield code
            function = getattr(function, "__wrapped__", None)
