"""While somebody listens: what is replaced in torch, when it begins and when it ends.

It holds for all threads of the process. ``paused`` is for gradkit's own runs of the user's code: what they do is no
deed of the program's, and the tracer finds torch as it is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch.utils.hooks import RemovableHandle

from gradkit.witness import grad_mode, modules, optimizers, tensors
from gradkit.witness.optimizers import Steps
from gradkit.witness.replaced import Replacements

_lock = threading.RLock()
_listeners: list[Listening] = []
_pauses = _ready = 0
_hears = False  # what every replaced function asks first


def hears() -> bool:
    """Whether somebody listens, and no run of gradkit's own is going on."""
    return _hears


_replaced = Replacements([one for module in (tensors, optimizers, grad_mode) for one in module.heard(hears)])
_handles: list[RemovableHandle] = []


class Listening:
    """Listens from ``open`` to ``close``, or as a ``with`` block. Several may be open at once.

    Args:
        until_steps: close when an optimizer has made so many steps; None: only at the end.

    Attributes:
        is_open: whether it listens.
    """

    def __init__(self, until_steps: int | None = None) -> None:
        self.is_open = False
        self._until = until_steps
        self._steps: Steps | None = None

    def open(self) -> Listening:
        """Begin; does nothing if it has begun."""
        with _lock:
            if not self.is_open:
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

    def _end(self) -> None:
        self.is_open = False
        if self in _listeners:
            _listeners.remove(self)
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


def _settle() -> None:
    """Bring what is replaced into line with who listens. Hooks stay in a pause: torch may be going through them."""
    global _hears
    _hears = bool(_listeners) and not _pauses
    if _hears:
        _replaced.install()
    else:
        _replaced.take_back()
        tensors.forget_replaced()
    if (_listeners or _ready) and not _handles:
        _handles.extend(modules.hooks(hears))
    while _handles and not _listeners and not _ready:
        _handles.pop().remove()
