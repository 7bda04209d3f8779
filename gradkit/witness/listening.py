"""While somebody listens: what is replaced in torch, when it begins and when it ends.

It holds for all threads of the process. ``paused`` is for gradkit's own runs of the user's code: what they do is no
deed of the program's, and the tracer finds torch as it is.

A program that trains may be set up once more: it freezes, thaws and copies between two phases. So listening may go on
late, once the first steps are made, to what is rare then: flags and copies of parameters, what is registered,
optimizers. Nothing stands on ``torch.Tensor`` any more, so that no step waits for it; and where those are not rare,
it ends by itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch.utils.hooks import RemovableHandle

from gradkit.witness import deeds, grad_mode, histories, modules, optimizers, tensors
from gradkit.witness.deeds import FROZEN, THAWED
from gradkit.witness.optimizers import Steps
from gradkit.witness.replaced import Replacements

MOST_LATE = 50_000
"""So much is heard late, which takes some tenths of a second in all; a flag that is set counts twice."""

_lock = threading.RLock()
_listeners: list[Listening] = []
_late: list[Listening] = []
_pauses = _ready = 0
_hears = _hears_late = False  # what every replaced function asks first
_left = _late_since = 0


def hears() -> bool:
    """Whether somebody listens, and no run of gradkit's own is going on."""
    return _hears


def hears_late() -> bool:
    """The same of those who listen late, to whom one thing more happens."""
    global _left
    if not _hears_late:
        return False
    _left -= 1
    if _left < 0:
        _end_late()
    return _left >= 0


def _hears_any() -> bool:
    return _hears or hears_late()


_replaced = Replacements([one for module in (tensors, optimizers, grad_mode) for one in module.heard(hears)])
_replaced_late = Replacements([*tensors.heard_late(hears_late), *optimizers.heard(hears_late)])
_handles: list[RemovableHandle] = []


class Listening:
    """Listens from ``open`` to ``close``, or as a ``with`` block. Several may be open at once.

    Args:
        until_steps: close when an optimizer has made so many steps; None: only at the end.
        then_late: go on late after those steps, to the end or to ``MOST_LATE``.

    Attributes:
        is_open: whether it listens to all.
    """

    def __init__(self, until_steps: int | None = None, *, then_late: bool = False) -> None:
        self.is_open = False
        self._until, self._then_late = until_steps, then_late
        self._steps: Steps | None = None

    def open(self) -> Listening:
        """Begin, or listen to all once more where that went on late; does nothing if it has begun."""
        with _lock:
            if not self.is_open:
                self._end()
                self.is_open = True
                _listeners.append(self)
                if self._until is not None:
                    self._steps = Steps(self._until, hears, self._enough)
                _settle()
        return self

    def close(self) -> None:
        """End; what was heard is kept. Does nothing if it has ended."""
        with _lock:
            if self._steps is not None:
                self._steps.leave()
            self._end()

    def _enough(self) -> None:
        with _lock:
            if self._steps is not None:
                self._steps.leave(inside=True)
            self._end()
            if self._then_late:
                _begin_late(self)

    def _end(self) -> None:
        self.is_open = False
        for several in (_listeners, _late):
            if self in several:
                several.remove(self)
        _settle()

    def __enter__(self) -> Listening:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def listening(until_steps: int | None = None) -> Listening:
    """Hear who makes, freezes, writes, copies and replaces parameters and builds optimizers.

    Args:
        until_steps: as for ``Listening``.

    Example:
        >>> from torch import nn
        >>> from gradkit.witness.histories import deeds_of
        >>> with listening():
        ...     layer = nn.Linear(2, 1)
        ...     layer.bias.requires_grad = False
        >>> deeds_of(layer.bias)[-1].kind
        'frozen'
    """
    return Listening(until_steps)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Hear nothing while the block runs, in any thread, and leave torch's classes as they are without us."""
    global _pauses
    with _lock:
        _pauses += 1
        _settle()
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            _settle()


@contextlib.contextmanager
def ready() -> Iterator[None]:
    """While the block lasts, ``Listening`` may also be opened by a hook that torch calls as something is registered.

    Torch goes through its hooks then, and none may be added or taken away.
    """
    global _ready
    with _lock:
        _ready += 1
        _settle()
    try:
        yield
    finally:
        with _lock:
            _ready -= 1
            _settle()


def _begin_late(who: Listening) -> None:
    global _left, _late_since
    _late.append(who)
    _left, _late_since = MOST_LATE, deeds.now()
    _settle()


def _end_late() -> None:
    """What a program freezes and thaws all the time is not rare. Who did it last is not known from here on."""
    with _lock:
        if _late:
            _late.clear()
            histories.forget_since(_late_since, (FROZEN, THAWED))
            _settle()


def _settle() -> None:
    """Bring what is replaced into line with who listens. Hooks stay in a pause: torch may be going through them."""
    global _hears, _hears_late
    grad_mode.let_go()
    _hears = bool(_listeners) and not _pauses
    _hears_late = bool(_late) and not _listeners and not _pauses
    if not _hears:
        _replaced.take_back()
        tensors.forget_replaced()
    if not _hears_late:
        _replaced_late.take_back()
    if _hears:
        _replaced.install()
    if _hears_late:
        _replaced_late.install()
    if (_listeners or _late or _ready) and not _handles:
        _handles.extend(modules.hooks(_hears_any))
    while _handles and not _listeners and not _late and not _ready:
        _handles.pop().remove()
