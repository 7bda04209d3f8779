"""Work beside the kernel's main thread, so that clicks are heard while it runs, and one of them may cancel it."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from gradkit.notebook import turns

_PULSE = 0.05
_BEATS = 10


class Cancelled(BaseException):
    """The person changed their mind. No ``Exception``, so that a user's ``except Exception`` does not swallow it."""


class Job:
    """One piece of work in a thread of its own, under the same grad mode and default device as the thread that asks.

    It has the process to itself: it waits for the job before it and for the cell that is running, and IPython's next
    cell waits for it (:mod:`gradkit.notebook.turns`).

    Args:
        work: called with the job; what it returns becomes ``result``. It calls ``tell`` as it goes on, and runs
            whatever may take long through ``guard``.
        done: called with the job at the end, in the job's thread.
        heard: called with the job after every ``tell`` and about twice a second, from any thread.

    Attributes:
        result: what ``work`` returned.
        error: what it raised, of whatever kind, a :class:`Cancelled` included; None if it came through.
        stage: the name told last.
        held: a cell waits for the end of this job.
        language: the language of whoever looks at it.
        starter: the thread that started it.
        in_cell: whether code of a cell did.

    Example:
        >>> job = Job(lambda job: job.guard(lambda: 6 * 7)(), lambda job: None)
        >>> job.start().wait().result
        42
    """

    def __init__(
        self,
        work: Callable[[Job], Any],
        done: Callable[[Job], None],
        heard: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.stage, self.language = "", "en"
        self.cancelled = self.held = self.in_cell = False
        self._work, self._done, self._heard = work, done, heard
        self._asked = self._sent = 0
        self._guarded = self._sending = False
        self._over = threading.Event()
        self._grad, self._device = torch.is_grad_enabled(), torch.get_default_device()
        # The messages that the thread sends belong to the click that started it.
        context, ticking = contextvars.copy_context(), contextvars.copy_context()
        self.starter = threading.current_thread()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name="gradkit", daemon=True)
        self._ticker = threading.Thread(target=ticking.run, args=(self._tick,), name="gradkit-clock", daemon=True)

    def start(self) -> Job:
        """Begin. Returns the job itself."""
        self._began = time.monotonic()
        self.starter, self.in_cell = threading.current_thread(), turns.in_cell(sys._getframe())
        turns.enter_cell(self)
        self.thread.start()
        self._ticker.start()
        return self

    def wait(self, seconds: float | None = None) -> Job:
        """Wait for the end, ``done`` included. Returns the job itself."""
        self.thread.join(seconds)
        return self

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._began

    def tell(self, stage: str) -> None:
        """Called by the work as each stage begins.

        Raises:
            Cancelled: the job was cancelled meanwhile.
        """
        if self.cancelled:
            raise Cancelled
        if stage != self.stage:
            self.stage = stage
            self._hear()

    def beat(self) -> None:
        """Called again and again by work that only waits.

        Raises:
            Cancelled: the job was cancelled meanwhile.
        """
        if self.cancelled:
            raise Cancelled

    def hold(self, *, cancel: bool = False) -> None:
        """A cell waits for this job; with ``cancel``, the person would rather have the cell."""
        if cancel:
            self.cancel()
        if cancel or not self.held:
            self.held = True
            self._hear()

    def guard(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The same function, but one that ``cancel`` can interrupt between two of its Python instructions.

        Outside of such functions a cancelled job only ends at the next ``tell``: what puts the model back is never
        interrupted.
        """

        def guarded() -> Any:
            try:
                self._guarded = True
                if self.cancelled:
                    raise Cancelled
                return function()
            finally:
                self._guarded = False  # one store, which nothing can come before: from here on nothing is sent
                self._settle()

        guarded.__wrapped__ = function  # type: ignore[attr-defined]  # an error in it is explained by what it calls
        return guarded

    def cancel(self) -> None:
        """Ask the job to end as soon as it can; asked again, a step that swallowed the first is interrupted anew."""
        self.cancelled = True
        self._asked += 1

    def _settle(self) -> None:
        """Wait for what the clock may be sending at this moment, and let it arrive here."""
        while self._sending:
            time.sleep(0)
        if self._sent:
            _swallow()
        if self.cancelled:
            raise Cancelled

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad)
        if self._device.type != "cpu":
            torch.set_default_device(self._device)
        try:
            turns.await_turn(self)
            self.result = self._work(self)
        except BaseException as error:  # noqa: BLE001  # told to the person, by ``done``
            self.error = Cancelled() if self.cancelled else error
        self._over.set()
        try:
            self._done(self)
        except BaseException as error:  # noqa: BLE001  # there is nobody to raise it to
            self.error = self.error or error
        finally:
            turns.leave_cell(self)

    def _tick(self) -> None:
        """The clock: it alone interrupts the work, so that what is sent can be waited for."""
        beat = 0
        while not self._over.wait(_PULSE):
            beat += 1
            if self._sent != self._asked:
                self._send()
            if beat % _BEATS == 0:
                self._hear()

    def _send(self) -> None:
        asked = self._asked
        self._sending = True
        if self._guarded and self.thread.ident is not None:
            _raise_in(self.thread.ident, Cancelled)
            self._sent = asked
        self._sending = False

    def _hear(self) -> None:
        """What is shown of a job must not end it."""
        with contextlib.suppress(Exception):
            self._heard(self)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread at its next Python instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _swallow() -> None:
    """Leave nothing behind of an exception that was sent to this thread, and may not have been raised yet.

    Taken back by a null pointer, it would leave Python looking for it for ever: all code is slower from then on, and
    under ``sys.settrace`` Python 3.11 never gets beyond the next call.
    """
    with contextlib.suppress(Cancelled):
        _raise_in(threading.get_ident(), Cancelled)
        while True:
            pass
