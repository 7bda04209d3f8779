"""One process, one report: a person's code that a command runs can neither end this process unseen nor report twice."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_ENDS = ("_exit", "execv", "execve")
_quit = os._exit  # it has no other name
_home = 0


@contextlib.contextmanager
def held(last_words: Callable[[str], object]) -> Iterator[None]:
    """While a person's code runs: what would end or replace this process at once (``os._exit``, ``os.exec*``) raises
    ``SystemExit`` instead, and a copy of the process that the code makes (``os.fork``) is known for one.

    Code in C is out of reach. In another thread than the main one there is nobody to raise to: the last words are
    said, and the process ends with status 2.

    Example:
        >>> with held(print):
        ...     os._exit(0)
        Traceback (most recent call last):
        ...
        SystemExit: os._exit(0)
    """
    global _home
    before, _home = _home, os.getpid()
    kept = [(place, name, getattr(place, name)) for place in _places() for name in _ENDS if hasattr(place, name)]
    try:
        for place, name, function in kept:
            setattr(place, name, _raising(name, function, last_words))
        yield
    finally:
        for place, name, function in kept:
            setattr(place, name, function)
        end_if_copy()
        _home = before


def _places() -> list[Any]:
    return [os, *(sys.modules[name] for name in ("posix", "nt") if name in sys.modules)]


def _raising(name: str, function: Callable[..., Any], last_words: Callable[[str], object]) -> Callable[..., Any]:
    def ends(*arguments: Any, **named: Any) -> Any:
        if os.getpid() != _home:
            return function(*arguments, **named)
        call = f"os.{name}({', '.join(map(repr, arguments))})"
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(call)
        last_words(call)
        return _quit(2)

    return ends


def end_if_copy() -> None:
    """End a copy of the process, once the code that made it has come back: the original reports, and no one else."""
    if _home and os.getpid() != _home:
        _quit(0)


def settle(status: int) -> None:
    """From here to its end, the process ends with this status, also if what a person's code left behind to run at exit
    calls ``os._exit``."""
    home = os.getpid()

    def ends(function: Callable[..., Any]) -> Callable[..., Any]:
        def end(*arguments: Any, **named: Any) -> NoReturn:
            if os.getpid() == home:
                _quit(status)
            function(*arguments, **named)
            raise AssertionError

        return end

    for place in _places():
        for name in _ENDS:
            if hasattr(place, name):
                setattr(place, name, ends(getattr(place, name)))
