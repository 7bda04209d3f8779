"""Ctrl-C while something is put back: it waits until that is done.

Source: https://docs.python.org/3/library/signal.html#note-on-signal-handlers-and-exceptions
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

_before: dict[int, Any] = {}
_came: list[int] = []
_MOST = 1000


def insist(work: Callable[[], object]) -> None:
    """Do something to its end: what interrupts it begins it anew, and is raised afterwards.

    Args:
        work: may be begun as often as need be. An ``Exception`` of its own ends it.

    Example:
        >>> tries = []
        >>> def work():
        ...     tries.append(1)
        ...     if len(tries) == 1:
        ...         raise KeyboardInterrupt
        >>> try: insist(work)
        ... except KeyboardInterrupt: print(len(tries))
        2
    """
    late: BaseException | None = None
    _hold()
    try:
        for _ in range(_MOST):
            try:
                work()
                break
            except Exception:
                raise
            except BaseException as error:  # noqa: BLE001  it is raised below
                late = error
    finally:
        _release()
    if late is not None:
        raise late


def handler(number: int) -> Any:
    """What handles a signal, or is going to once nothing is held any more."""
    return _before.get(number, signal.getsignal(number))


def set_handler(number: int, new: Any) -> None:
    """Let something else handle a signal; Python allows it in the main thread only, elsewhere nothing happens."""
    if number in _before:
        _before[number] = new
    elif threading.current_thread() is threading.main_thread() and signal.getsignal(number) is not new:
        signal.signal(number, new)


def are_held() -> bool:
    """Whether signals are noted only."""
    return bool(_before)


def _hold() -> None:
    """Signals that have a handler in Python are noted from here on; only the main thread hears them."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler) and handler is not _note:
            _before[number] = handler
            signal.signal(number, _note)


def _note(number: int, _frame: object) -> None:
    _came.append(number)


def _release() -> None:
    for number, handler in list(_before.items()):
        signal.signal(number, handler)
        del _before[number]
    came = dict.fromkeys(_came)
    _came.clear()
    for number in came:
        signal.raise_signal(number)
