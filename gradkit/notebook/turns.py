"""Whose turn it is: a cell's, or a job's. They share one process, its random state and its torch, so never both.

While a job runs, IPython's next cell waits, in a kernel and in a terminal: in a callback before it. If the wait is
interrupted, an AST transformer turns the cell down, since no callback can.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from html import escape
from types import CodeType, FrameType
from typing import Any, Protocol

from IPython.core.error import InputRejected
from IPython.core.interactiveshell import InteractiveShell

from gradkit.core import i18n
from gradkit.core.errors import GradkitError, in_place_of_a_traceback
from gradkit.core.i18n import words
from gradkit.source import frames

_PAUSE = 0.05
PATIENCE = 5.0
"""Seconds that the code which starts a job waits for its end."""
_NOT_WORTH_A_WORD = 0.3


class Waiter(Protocol):
    """What can have the turn: a :class:`gradkit.notebook.job.Job`, which says what each of these is."""

    thread: threading.Thread
    starter: threading.Thread
    in_cell: bool
    language: str

    def tell(self, stage: str) -> None:
        """What it does, or waits for, now."""

    def hold(self, *, cancel: bool = False) -> None:
        """A cell waits for it."""

    def cancel(self) -> None:
        """Ask for its end."""


_jobs: list[Waiter] = []
_lock = threading.RLock()


class CellNotRun(GradkitError, InputRejected):  # noqa: N818  # what IPython shows as the kind of the error
    """A cell that waited for its turn was interrupted. IPython runs nothing of it."""

    def __init__(self, language: str) -> None:
        super().__init__("cell_not_run")
        self._language = language

    def _render_traceback_(self) -> list[str]:
        return in_place_of_a_traceback(self.text(self._language))


def enter_cell(job: Waiter) -> None:
    """Line up. From here on cells wait until the job has left."""
    with _lock:
        _jobs.append(job)
        shell = frames.notebook_shell()
        if shell is not None and _hold not in shell.events.callbacks["pre_run_cell"]:
            shell.events.callbacks["pre_run_cell"].insert(0, _hold)


def leave_cell(job: Waiter) -> None:
    """The job has ended; what waits for it goes on."""
    with _lock:
        _jobs.remove(job)
        shell = frames.notebook_shell()
        if shell is not None and not _jobs and _hold in shell.events.callbacks["pre_run_cell"]:
            shell.events.unregister("pre_run_cell", _hold)


def await_turn(job: Waiter) -> None:
    """Wait for the jobs that were there before, and for the cell that is running. Called in the job's thread.

    Whoever started the job may wait for it, so neither the cell nor the job that did is waited for.

    Raises:
        Cancelled: the job was cancelled meanwhile.
    """
    while any(one.thread is not job.starter for one in _jobs[: _jobs.index(job)]):
        job.tell("waiting")
        time.sleep(_PAUSE)
    while not job.in_cell and _a_cell_runs():
        job.tell("cells")
        time.sleep(_PAUSE)


def wait_for(job: Waiter) -> None:
    """Wait until a job has ended, for ``PATIENCE`` seconds at most. Called by the code that started it.

    Raises:
        KeyboardInterrupt: Ctrl-C: the job was cancelled, and what it changed is put back.
    """
    asked, end = 0, time.monotonic() + PATIENCE
    with _interrupts_noted() as noted:
        while job.thread.is_alive() and (asked or time.monotonic() < end):
            if len(noted) > asked:
                asked = len(noted)
                job.cancel()
            time.sleep(_PAUSE)
    if noted:
        raise KeyboardInterrupt


def refuse_beside_a_job() -> None:
    """Called before something that is run by a click, and not in a job.

    Raises:
        GradkitError: a job is running in another thread.
    """
    if any(job.thread is not threading.current_thread() for job in tuple(_jobs)):
        raise GradkitError("panel_works")


def in_cell(frame: FrameType | None) -> bool:
    """Whether the code of a frame runs in a cell of IPython's."""
    return _RUNS in _codes(frame)


def _hold(_info: object = None) -> None:
    """Before a cell, and before what others do before a cell (``%autoreload``): wait for its turn. A click does not."""
    me = threading.current_thread()
    if any(job.thread is me for job in tuple(_jobs)):  # the step runs a cell, or a magic, itself
        return
    with _interrupts_noted() as noted:
        last = _held(noted)
    if noted:
        _Refusal(frames.notebook_shell(), CellNotRun(last.language if last is not None else i18n.language()))


class _Refusal:
    """Among IPython's AST transformers, for one cell: the one thing that is asked before it runs and may say no."""

    def __init__(self, shell: Any, error: CellNotRun) -> None:
        self._shell, self._error = shell, error
        with _lock:
            shell.ast_transformers = [self, *shell.ast_transformers]
            shell.events.register("post_execute", self._over)

    def visit(self, tree: object) -> object:
        """Called with the cell's syntax tree.

        Raises:
            CellNotRun: always.
        """
        raise self._error

    def _over(self) -> None:
        with _lock:
            self._shell.ast_transformers = [one for one in self._shell.ast_transformers if one is not self]
            self._shell.events.unregister("post_execute", self._over)


def _held(noted: list[int]) -> Waiter | None:
    """Wait until no job is left, and return the last. Each interrupt asks them to end."""
    last: Waiter | None = None
    said, asked, began = "", 0, time.monotonic()
    while _jobs:
        cancel, asked = len(noted) > asked, len(noted)
        for last in tuple(_jobs):  # it may change
            last.hold(cancel=cancel)
        key = "cell_stops" if noted else "cell_waits" if time.monotonic() - began > _NOT_WORTH_A_WORD else ""
        if last is not None and key != said:
            _tell(words(f"panel.{key}", last.language), again=bool(said))
            said = key
        time.sleep(_PAUSE)
    if said:
        frames.notebook_shell().display_pub.clear_output()
    return last


_RUNS, _WAITS = InteractiveShell.run_cell_async.__code__, _held.__code__


def _tell(text: str, *, again: bool) -> None:
    """Say in the cell's own output why nothing happens yet."""
    display = frames.notebook_shell().display_pub
    if again:
        display.clear_output(wait=True)
    page = f'<p style="margin: 4px 0; opacity: 0.75">{escape(text)}</p>'
    display.publish({"text/plain": text, "text/html": page})


def _a_cell_runs() -> bool:
    """Whether any thread runs a cell, or one stands at an ``await``. One that waits does not run."""
    stacks = [_codes(frame) for frame in sys._current_frames().values()]  # noqa: SLF001
    if any(_RUNS in codes and _WAITS not in codes for codes in stacks):
        return True
    loop = getattr(getattr(getattr(frames.notebook_shell(), "kernel", None), "io_loop", None), "asyncio_loop", None)
    waiting = [task.get_coro() for task in asyncio.all_tasks(loop)] if loop is not None else []
    return any(getattr(one, "cr_code", None) is _RUNS and not getattr(one, "cr_running", True) for one in waiting)


def _codes(frame: FrameType | None) -> set[CodeType]:
    """The code of a frame and of all that called it."""
    found = set()
    while frame is not None:
        found.add(frame.f_code)
        frame = frame.f_back
    return found


@contextlib.contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """While the block runs, Ctrl-C and the kernel's interrupt button add to a list and raise nothing."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
