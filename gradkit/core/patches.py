"""What is replaced in torch and Python while a run lasts: one stack of what puts it back, last first.

Whoever replaces something enters first how it is put back, and replaces it then. An exception or Ctrl-C at any moment
may keep a block from its end; what lies on the stack is put back all the same, by the block around it. Ctrl-C while
something is put back waits until that is done.
Source: https://docs.python.org/3/library/signal.html#note-on-signal-handlers-and-exceptions
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
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
    outermost = not _before
    try:
        _hold()
        late = _to_its_end(work)
    finally:
        if outermost:
            _release()
    if late is not None:
        raise late


def _to_its_end(work: Callable[[], object]) -> BaseException | None:
    late: BaseException | None = None
    for _ in range(_MOST):
        try:
            work()
            break
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001  the caller raises it
            late = error
    return late


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


def _hear_again() -> None:
    for number, handler in list(_before.items()):
        signal.signal(number, handler)
        del _before[number]


def _release() -> None:
    try:
        _hear_again()
    except BaseException:  # the first handler that is back may raise what came meanwhile
        _hear_again()
        raise
    came = dict.fromkeys(_came)
    _came.clear()
    for number in came:
        signal.raise_signal(number)


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
