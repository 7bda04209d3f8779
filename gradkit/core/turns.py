"""One at a time: while a step runs, torch is patched for the whole process, so that another diagnosis has to wait."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words

_turn: dict[str, int] = {}
_present: dict[int, object] = {}
_inside: set[int] = set()
_PAUSE, _PATIENCE = 0.01, 1.0  # seconds


def take(who: object, tell: Callable[[str], None] | None = None) -> None:
    """Wait until this thread may run a step. A step that runs may ask for another diagnosis itself.

    Args:
        who: who gives the turn back.
        tell: called with ``"waiting"`` if it has to wait; None: after a second it is said on the error stream.

    Raises:
        GradkitError: the step that has the turn has started this thread, and may be waiting for it.

    Example:
        >>> take("outer"); take("inner"); give("inner"); is_free()
        False
        >>> give("outer"); is_free()
        True
    """
    me, began, told = threading.get_ident(), time.monotonic(), False
    while (other := _turn.setdefault("thread", me)) != me:
        if me in _inside:
            raise GradkitError("diagnosis_in_thread")
        if other not in sys._current_frames():  # noqa: SLF001
            _turn.pop("thread", None)
        elif not told and (tell is not None or time.monotonic() - began > _PATIENCE):
            _say(tell)
            told = True
        time.sleep(_PAUSE)
    _present[id(who)] = who


def give(who: object) -> None:
    """Let others have their turn, once all who took it have given it back; may be called more than once."""
    _present.pop(id(who), None)
    if not _present and _turn.get("thread") == threading.get_ident():
        _turn.pop("thread", None)


def is_free() -> bool:
    """Whether nobody has the turn."""
    return not _turn


def is_mine() -> bool:
    """Whether this thread has the turn, or runs a part of the step that has it."""
    me = threading.get_ident()
    return _turn.get("thread") == me or me in _inside


def enter(thread: int) -> None:
    """A thread runs a part of the step that has the turn."""
    _inside.add(thread)


def is_inside(thread: int) -> bool:
    """Whether a thread runs a part of the step that has the turn, which started it."""
    return thread in _inside


def leave(thread: int) -> None:
    """A thread runs the part of the step no longer."""
    _inside.discard(thread)


def _say(tell: Callable[[str], None] | None) -> None:
    if tell is not None:
        tell("waiting")
    else:
        sys.stderr.write(words("report.waiting") + "\n")


def _forget() -> None:
    _turn.clear()
    _present.clear()
    _inside.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
