"""Whose exception it is that comes out of a run: raised by the user's step, or by gradkit around it.

Both have frames of gradkit's in their traceback, as every call of torch in a traced step goes through them. What counts
is the innermost frame that is the user's, a library's or gradkit's: torch's and Python's own raise for who called them.
Functions of gradkit's that only carry out what the user's code asked for are marked with ``on_behalf``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, TypeVar

from gradkit.core import package
from gradkit.core.errors import GradkitError
from gradkit.source import frames

_PACKAGE = str(package.FOLDER) + os.sep
_MARK = "_gradkit_raised_it"
_on_behalf: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])
_earlier: list[BaseException] = []


@contextlib.contextmanager
def apart_from(error: BaseException | None) -> Iterator[None]:
    """While the block runs, nothing is taken to be raised from an exception that is being handled outside of it.

    Python says so of whatever is raised in an ``except`` block, of a step that is run again there too.

    Example:
        >>> try: 1 / 0
        ... except ZeroDivisionError as error:
        ...     with apart_from(error):
        ...         try: [][0]
        ...         except IndexError as other: print(list(raised_from(other)))
        [IndexError('list index out of range')]
    """
    before = list(_earlier)
    if error is not None:
        _earlier.append(error)
    try:
        yield
    finally:
        _earlier[:] = before


def raised_from(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it was raised from, or while they were handled."""
    one: BaseException | None = error
    seen = {id(earlier) for earlier in _earlier}
    while one is not None and id(one) not in seen:
        yield one
        seen.add(id(one))
        one = one.__cause__ or one.__context__


def on_behalf(function: _Function) -> _Function:
    """Mark a function that calls something for the user's code: what that raises is not gradkit's.

    Keep such a function to that call: a mistake in its own lines would be taken for the user's.

    Example:
        >>> @on_behalf
        ... def divide(a, b): return a / b
        >>> divide.__code__ in _on_behalf
        True
    """
    _on_behalf.add(function.__code__)
    return function


def claim(error: Exception) -> Exception:
    """Mark an exception as gradkit's own, whoever raised it."""
    vars(error)[_MARK] = True
    return error


def is_ours(error: BaseException) -> bool:
    """Whether gradkit raised an exception, or one that it was raised from.

    A ``GradkitError`` speaks of the user's program.

    Example:
        >>> try: 1 / 0
        ... except ZeroDivisionError as error: is_ours(error)
        False
    """
    return any(_MARK in vars(one) or _is_raised_by_us(one) for one in raised_from(error))


def _is_raised_by_us(error: BaseException) -> bool:
    if isinstance(error, GradkitError):
        return False
    innermost = None
    for code in _codes(error):
        if _is_of_package(code.co_filename):
            innermost = code
        elif not frames.is_torch_file(code.co_filename):
            innermost = None
    return innermost is not None and innermost not in _on_behalf


def _codes(error: BaseException) -> Iterator[CodeType]:
    """The code of every frame that an exception has passed, outermost first."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code
        trace = trace.tb_next


def _is_of_package(filename: str) -> bool:
    return filename.startswith(_PACKAGE) and not frames.is_user_file(filename)
