"""What is replaced in torch and Python while a run lasts: one stack of what puts it back, last first.

Whoever replaces something enters first how it is put back, and replaces it then. An exception or Ctrl-C at any moment
may keep a block from its end; what lies on the stack is put back all the same, by the block around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

_GONE: Any = object()
_MOST_FRAMES = 5000
_stack: list[Callable[[], object]] = []


def later(back: Callable[[], object]) -> None:
    """Enter what puts something back, before that is changed. It may be called more than once, or for nothing."""
    _stack.append(back)


def replace(owner: Any, name: str, new: Any) -> None:
    """Set an attribute of a class or module until the block ends.

    Example:
        >>> import math
        >>> with undone():
        ...     replace(math, "pi", 3)
        ...     math.pi
        3
        >>> math.pi > 3
        True
    """
    later(partial(_put, owner, name, vars(owner).get(name, _GONE)))  # as it lies there: getattr() would bind it
    setattr(owner, name, new)


def _put(owner: Any, name: str, kept: Any) -> None:
    if kept is not _GONE:
        setattr(owner, name, kept)
    elif name in vars(owner):
        delattr(owner, name)


def nest_deeper() -> None:
    """Let calls nest as deep as they do without us, until the block ends: hooks and a function mode take frames."""
    limit = sys.getrecursionlimit()
    later(partial(sys.setrecursionlimit, limit))
    sys.setrecursionlimit(limit + min(limit // 2, _MOST_FRAMES) + 200)


def depth() -> int:
    """How much lies on the stack."""
    return len(_stack)


def undo(to: int = 0) -> list[Exception]:
    """Put back whatever lies above ``to``, each part also where another raises. Returns what was raised."""
    errors: list[Exception] = []
    while len(_stack) > to:
        try:
            _stack[-1]()
        except Exception as error:  # noqa: BLE001  one part must not keep the others from it
            errors.append(error)
        _stack.pop()
    return errors


class undone:  # noqa: N801  a block, as contextlib writes them
    """A block at whose end everything is put back that was entered in it.

    Example:
        >>> with undone():
        ...     later(lambda: print("back"))
        ...     print("changed")
        changed
        back
    """

    def __enter__(self) -> None:
        self._to = depth()

    def __exit__(self, *_: object) -> None:
        for error in undo(self._to):
            raise error
