"""Threads that a step starts, and work that it hands to a pool of threads: function modes hold in one thread only.

Source: https://docs.python.org/3/library/threading.html#threading.Thread.run
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from gradkit import patches
from gradkit.faults import on_behalf

Fork = Callable[[FrameType], AbstractContextManager[None] | None]


@contextlib.contextmanager
def heard(fork: Fork) -> Iterator[None]:
    """While the block runs, what is started in other threads runs inside of what ``fork(frame)`` returned for it.

    Args:
        fork: is called by the thread that starts another, with the frame that does; the context manager that it returns
            is entered and left by the other. None leaves that one alone.

    Example:
        >>> with heard(lambda frame: contextlib.nullcontext(print("started"))):
        ...     thread = threading.Thread(target=print, args=("running",))
        ...     thread.start()
        ...     thread.join()
        started
        running
    """
    thread_class: Any = threading.Thread
    pool_class: Any = ThreadPoolExecutor
    start, submit = thread_class.start, pool_class.submit
    pooling = threading.local()

    @functools.wraps(start)
    @on_behalf
    def start_heard(thread: threading.Thread) -> None:
        around = None if getattr(pooling, "on", False) else fork(sys._getframe(1))
        if around is not None:
            _surround(thread, around)
        try:
            start(thread)
        except BaseException:
            vars(thread).pop("run", None)
            raise

    @functools.wraps(submit)
    @on_behalf
    def submit_heard(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        around = fork(sys._getframe(1))
        pooling.on = True  # the pool's own threads outlive the work
        try:
            return submit(pool, function if around is None else _inside(around, function), *args, **kwargs)
        finally:
            pooling.on = False

    with patches.undone():
        patches.replace(thread_class, "start", start_heard)
        patches.replace(pool_class, "submit", submit_heard)
        yield


def _surround(thread: threading.Thread, around: AbstractContextManager[None]) -> None:
    """What the thread runs, it runs inside of ``around``; nothing of that is left on it once it runs."""
    run = thread.run

    @on_behalf
    def run_inside() -> None:
        vars(thread).pop("run", None)
        with around:
            run()

    thread.run = run_inside  # type: ignore[method-assign]


def _inside(around: AbstractContextManager[None], function: Callable[..., Any]) -> Callable[..., Any]:
    @on_behalf
    def work(*args: Any, **kwargs: Any) -> Any:
        with around:
            return function(*args, **kwargs)

    return work
