"""Who switched autograd off, or on, and has not switched it back: by thread, as the grad mode is.

Switches in torch's own code are left out: each stands in a ``with``, and a library's that is never left is a bug of
another kind. An ``__enter__`` without its ``__exit__`` and ``set_grad_enabled(False)`` as a statement stay open.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.autograd import grad_mode

from gradkit.source.faults import on_behalf
from gradkit.witness import deeds
from gradkit.witness.deeds import SWITCHED, Deed


@dataclass
class _Open:
    """A switch that holds. Who is gone can't switch back: then it was left on for good."""

    on: bool
    owner: weakref.ref[Any]
    deed: Deed
    left: bool = False


class _Held(threading.local):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[_Open] = []


_held = _Held()


def grad_mode_deeds() -> tuple[Deed, ...]:
    """The switches by which this thread's autograd is off right now, outermost first; ``()`` if it is on.

    Each has the facts ``"by"`` (``"no_grad"``, ``"set_grad_enabled"``, ``"inference_mode"``) and ``"left"`` (``"yes"``
    where nothing is left that could switch it back).
    """
    let_go()
    if torch.is_grad_enabled():
        return ()
    found: list[_Open] = []
    for one in reversed(_held.open):
        if one.on:
            break
        found.append(one)
    return tuple(deeds.told_again(one.deed, SWITCHED, {"left": "yes"} if one.left else {}) for one in reversed(found))


def let_go() -> None:
    """Forget the switches of this thread if autograd is on although the last of them has switched it off.

    It was switched on while nobody listened; what switches it off after that may be another line. To be called whenever
    that can be seen: as somebody begins to listen, or ends.
    """
    if _held.open and not _held.open[-1].on and torch.is_grad_enabled():
        _held.open.clear()


def heard(hears: Callable[[], bool]) -> list[tuple[Any, str, Any]]:
    """What is to be replaced: class, attribute, and what stands for it.

    Args:
        hears: whether somebody listens, in this thread.
    """
    opened: list[tuple[Any, str, Callable[[Any], bool]]] = [
        (grad_mode.no_grad, "__enter__", lambda _: False),
        (grad_mode.enable_grad, "__enter__", lambda _: True),
        (grad_mode.set_grad_enabled, "__init__", lambda owner: bool(owner.mode)),
        (grad_mode.set_grad_enabled, "__enter__", lambda owner: bool(owner.mode)),
        (grad_mode.inference_mode, "__enter__", lambda owner: not owner.mode),
    ]
    switch = grad_mode.set_grad_enabled
    return [
        *((mode, name, _opens(hears, vars(mode)[name], on)) for mode, name, on in opened),
        *((mode, "__exit__", _closes(hears, mode.__exit__)) for mode in dict.fromkeys(mode for mode, _, _ in opened)),
        (switch, "__call__", _decorates(hears, switch.__call__)),
    ]


def _opens(hears: Callable[[], bool], original: Any, on: Callable[[Any], bool]) -> Callable[..., Any]:
    torchs = deeds.TORCHS

    @functools.wraps(original)
    @on_behalf
    def enter(owner: Any) -> Any:
        result = original(owner)
        frame = sys._getframe(1)
        if frame.f_code.co_filename not in torchs:
            _tell_opened(owner, on, frame, hears)
        return result

    @functools.wraps(original)
    @on_behalf
    def init(owner: Any, mode: bool) -> None:
        original(owner, mode)
        frame = sys._getframe(1)
        if frame.f_code.co_filename not in torchs:
            _tell_opened(owner, on, frame, hears)

    return init if original.__name__ == "__init__" else enter


def _closes(hears: Callable[[], bool], original: Any) -> Callable[..., Any]:
    held = _held

    @functools.wraps(original)
    @on_behalf
    def leave(owner: Any, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        result = original(owner, exc_type, exc_value, traceback)
        if held.open and hears():
            _close(owner)
        return result

    return leave


def _decorates(hears: Callable[[], bool], original: Any) -> Callable[..., Any]:
    """The switch becomes a decorator: the mode is what it was before."""

    @functools.wraps(original)
    @on_behalf
    def decorate(owner: Any, orig_func: Any) -> Any:
        result = original(owner, orig_func)
        if _held.open and hears():
            _close(owner)
        return result

    return decorate


def _tell_opened(owner: Any, on: Callable[[Any], bool], frame: FrameType, hears: Callable[[], bool]) -> None:
    try:
        if deeds.is_torchs(frame) or not hears() or any(one.owner() is owner for one in _held.open):
            return
        if getattr(owner, "prev", False):  # it was on: what was open has been switched back by a way that is not heard
            _held.open.clear()
        deed = deeds.new(SWITCHED, frame, {"by": type(owner).__name__})
        opened = _held.open

        def gone(owner: weakref.ref[Any]) -> None:
            for one in [one for one in opened if one.owner is owner]:
                if hears():
                    one.left = True
                else:  # it may have been left since
                    opened.remove(one)

        opened.append(_Open(on(owner), weakref.ref(owner, gone), deed))
    except Exception:  # noqa: BLE001  what only listens never stops the program
        return


def _close(owner: Any) -> None:
    """What was switched since goes with it: the mode is what it was before."""
    for index in range(len(_held.open) - 1, -1, -1):
        if _held.open[index].owner() is owner:
            del _held.open[index:]
            return
