"""The streams and the process of a command: what it says comes through whole and once, or it is said that it did not.

What a person's code closes, replaces or prints to meanwhile is none of the command's. It can neither end this process
unseen nor report twice.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, cast

from gradkit.core import printable
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words

_ENDS = ("_exit", "execv", "execve")
_quit = os._exit  # it has no other name
_home = 0


@contextlib.contextmanager
def held_process(last_words: Callable[[str], object]) -> Iterator[None]:
    """While a person's code runs: what would end or replace this process at once (``os._exit``, ``os.exec*``) raises
    ``SystemExit`` instead, and a copy of the process that the code makes (``os.fork``) is known for one.

    Code in C is out of reach. In another thread than the main one there is nobody to raise to: the last words are
    said, and the process ends with status 2.

    Example:
        >>> with held_process(print):
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


def settle_exit(status: int) -> None:
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


class Stopped(KeyboardInterrupt):
    """The process was told to end by a signal other than Ctrl-C.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def say(text: str, end: str = "\n") -> None:
    """Write to stdout.

    Raises:
        BrokenPipeError: the reader has seen enough.
        GradkitError: it cannot be written.
    """
    with _writing():
        if sys.stdout is None:  # the process was started with its stdout closed
            raise GradkitError("cannot_print", reason=os.strerror(9))
        sys.stdout.write(text + end)


def flush() -> None:
    """Hand on what was said; see :func:`say`."""
    with _writing():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            _to_nowhere(sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise GradkitError("cannot_print", reason=reason) from error


def ended_itself(code: object) -> str:
    """The sentence for a program that ended the process, with what ``SystemExit`` says of it."""
    call = code if isinstance(code, str) and code.startswith("os.") else f"sys.exit({code!r})"
    return words("cli.error", message=words("error.program_ended_itself", call=printable.name(call)))


def _to_nowhere(number: int) -> None:
    """Let what still waits in the buffer of a stream go nowhere, so that the end of the process does not stumble."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def tell(text: str, *, aside: bool = False) -> None:
    """Write a line to stderr, if there is one.

    Args:
        text: without the newline at its end.
        aside: to the stream that the process was started with, whatever stands in for it while this is told.
    """
    line = printable.inert(printable.escaped(text)) + "\n"
    stream = (sys.__stderr__ if aside else None) or sys.stderr
    try:
        stream.write(line)
        stream.flush()
    except AttributeError:  # the process was started without
        pass
    except ValueError:  # the program closed it
        with contextlib.suppress(OSError):
            os.write(2, line.encode("ascii", printable.PLAINLY))
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            _to_nowhere(sys.stderr.fileno())


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """While a command runs, its streams write a likeness of what their encoding cannot say."""
    changed = [one for one in (sys.stdout, sys.stderr) if isinstance(one, io.TextIOWrapper)]
    before = [one.errors for one in changed]
    for one in changed:
        one.reconfigure(errors=printable.PLAINLY)
    try:
        yield
    finally:
        for one, errors in zip(changed, before, strict=True):
            with contextlib.suppress(ValueError, OSError):  # closed meanwhile
                one.reconfigure(errors=errors)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """While a command runs, a signal that would end it is raised as :class:`Stopped`, so that all is put back."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    kept: dict[int, Any] = {}
    try:
        for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                with contextlib.suppress(ValueError):  # not in the main thread
                    kept[number] = signal.signal(number, stop)
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def program_output_aside() -> Iterator[None]:
    """What a person's program prints goes to stderr: it is no part of what a command says.

    Both streams are there again afterwards, also if the program closed or replaced them, by their objects or by their
    numbers. What :func:`console.held_process` says holds as well.
    """
    out, err = sys.stdout, sys.stderr
    with _numbers_kept(), held_process(lambda call: tell(ended_itself(call))):
        if err is not None:
            sys.stdout = sys.stderr = cast(Any, _Unclosable(err))
        try:
            yield
        finally:
            sys.stdout, sys.stderr = out, err
    if isinstance(out, io.TextIOWrapper) and out.closed:
        sys.stdout = open(1, "w", encoding=out.encoding, errors=printable.PLAINLY, closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def _numbers_kept() -> Iterator[None]:
    """The file descriptors 1 and 2 afterwards are what they were; meanwhile 1 writes where 2 does."""
    kept: dict[int, int] = {}
    with contextlib.suppress(OSError):
        kept = {number: os.dup(number) for number in (1, 2)}
        os.dup2(2, 1)
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


class _Unclosable:
    """A stream that writes to another, and that can be closed without closing the other."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)
