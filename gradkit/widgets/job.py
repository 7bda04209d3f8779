"""Work beside the kernel's main thread, so that clicks are heard while it runs, and one of them may cancel it."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import torch


class Cancelled(BaseException):
    """The person changed their mind. No ``Exception``, so that a user's ``except Exception`` does not swallow it."""


class Job:
    """One piece of work in a thread of its own, under the same grad mode and default device as the thread that asks.

    Args:
        work: called with the job; what it returns becomes ``result``. It calls ``tell`` as it goes on, and runs
            whatever may take long through ``guard``.
        done: called with the job at the end, in the job's thread.
        heard: called with the job after every ``tell`` and about twice a second, from any thread.

    Attributes:
        result: what ``work`` returned.
        error: what it raised, a :class:`Cancelled` included; None if it came through.
        stage: the name told last.

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
        self.stage = ""
        self.cancelled = False
        self._work, self._done, self._heard = work, done, heard
        self._lock = threading.Lock()
        self._guarded = False
        self._over = threading.Event()
        self._grad, self._device = torch.is_grad_enabled(), torch.get_default_device()
        # The messages that the thread sends belong to the click that started it.
        context, ticking = contextvars.copy_context(), contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="gradkit", daemon=True)
        self._ticker = threading.Thread(target=ticking.run, args=(self._tick,), name="gradkit-clock", daemon=True)

    def start(self) -> Job:
        """Begin. Returns the job itself."""
        self._began = time.monotonic()
        self._thread.start()
        self._ticker.start()
        return self

    def wait(self, seconds: float | None = None) -> Job:
        """Wait for the end, ``done`` included. Returns the job itself."""
        self._thread.join(seconds)
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
        self.stage = stage
        self._heard(self)

    def guard(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The same function, but one that ``cancel`` can interrupt between two of its Python instructions.

        Outside of such functions a cancelled job only ends at the next ``tell``: what puts the model back is never
        interrupted.
        """

        def guarded() -> Any:
            try:
                with self._lock:
                    self._guarded = True
                if self.cancelled:
                    raise Cancelled
                return function()
            finally:
                self._leave()

        return guarded

    def cancel(self) -> None:
        """Ask the job to end as soon as it can. Once is enough; later calls do nothing."""
        if self.cancelled:  # before the lock, which an interrupted thread may have left held
            return
        with self._lock:
            self.cancelled = True
            if self._guarded and self._thread.ident is not None:
                _raise_in(self._thread.ident, Cancelled)

    def _leave(self) -> None:
        """From here on nothing is raised in this thread, also not what ``cancel`` sent a moment ago."""
        with contextlib.suppress(Cancelled), self._lock:
            self._guarded = False
        self._guarded = False
        _raise_in(threading.get_ident(), None)
        if self.cancelled:
            raise Cancelled

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad)
        if self._device.type != "cpu":
            torch.set_default_device(self._device)
        try:
            self.result = self._work(self)
        except (Exception, Cancelled, SystemExit) as error:  # noqa: BLE001  # told to the person, by ``done``
            self.error = Cancelled() if self.cancelled else error
        finally:
            self._over.set()
        self._done(self)

    def _tick(self) -> None:
        while not self._over.wait(0.5):
            self._heard(self)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in another thread at its next Python instruction; None takes back one not yet raised."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind) if kind else None)
