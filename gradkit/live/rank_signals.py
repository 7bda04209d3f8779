"""A rank that is about to be ended from outside has a word first; one that crashes in C++ leaves where it stood.

``torchrun`` ends the other ranks (SIGTERM) as soon as one has ended. Their main threads wait in a collective then,
where no handler of Python's can run; a thread that reads Python's wake-up pipe can. A crash (SIGABRT, SIGSEGV) leaves
the Python lines in a file, by faulthandler, which a rank of the same machine reads.
Sources: https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd,
https://docs.python.org/3/library/faulthandler.html
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import linecache
import os
import re
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gradkit.live.rank_places import place_and_branch
from gradkit.live.rank_records import CRASHED, RankRecord
from gradkit.source import frames

_LAUNCHED = "TORCHELASTIC_RUN_ID"
_SIGNAL = signal.SIGTERM


class FirstAWord:
    """Between SIGTERM and the end of this process, something is done.

    Args:
        act: what; in a thread beside the main one.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._pipe: tuple[int, int] | None = None
        self._home = os.getpid()
        self._path: Path | None = None
        self._words: Callable[[], IO[str] | None] = lambda: None  # the file, as long as faulthandler writes into it
        self._thread: threading.Thread | None = None
        self._acts = threading.Event()

    def begin(self) -> FirstAWord:
        """Only in the main thread of a process that ``torchrun`` has started, and where nobody else handles SIGTERM."""
        mine = threading.current_thread() is threading.main_thread() and os.name == "posix"
        if not mine or not is_launched() or signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return self
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, end == self._pipe[0])
        before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if before != -1:  # another's
            signal.set_wakeup_fd(before)
            self._close_pipe(*self._pipe)
            return self
        signal.signal(_SIGNAL, self._handle)
        self._thread = threading.Thread(target=self._read, name="gradkit-ranks-end", daemon=True)
        self._thread.start()
        if not faulthandler.is_enabled():
            with contextlib.suppress(OSError):
                self._path = last_words_file(int(os.environ.get("RANK", "0")))
                words = self._path.open("w")
                faulthandler.enable(words)
                self._words = weakref.ref(words)  # should the program enable it for another file, this one is let go
        return self

    def close(self) -> None:
        """Leave signals as they were found; where SIGTERM has come, this process ends here."""
        if self._acts.is_set() and self._thread is not None:
            self._thread.join()
        if self._pipe is not None and threading.current_thread() is threading.main_thread():
            self._leave_signals(self._pipe[1])
            self._close_pipe(self._pipe[1])  # the thread reads that, and closes the other end
        self._leave_words()
        self._take_words_away()

    def in_a_copy(self) -> None:
        """This process is a copy of one that waited: it ends, or crashes, as others do. The file is the other's."""
        if self._pipe is not None:
            with contextlib.suppress(ValueError):
                self._leave_signals(self._pipe[1])
            self._close_pipe(*self._pipe)
        self._leave_words()
        self._path = None

    def _leave_signals(self, mine: int) -> None:
        """What the program itself has set meanwhile stays."""
        if (other := signal.set_wakeup_fd(-1)) != mine:
            signal.set_wakeup_fd(other)
        if signal.getsignal(_SIGNAL) == self._handle:
            signal.signal(_SIGNAL, signal.SIG_DFL)

    def _close_pipe(self, *ends: int) -> None:
        self._pipe = None
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(end)

    def _leave_words(self) -> None:
        words, self._words = self._words(), lambda: None
        if words is not None:
            faulthandler.disable()
            words.close()

    def _take_words_away(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _handle(self, number: int, _: object) -> None:
        """The thread ends the process; where there is none any more, this does."""
        if self._pipe is None or os.getpid() != self._home:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _read(self) -> None:
        pipe = self._pipe
        while pipe is not None:
            with contextlib.suppress(OSError):
                heard = os.read(pipe[0], 1)
                if not heard:
                    break
                if heard[0] == _SIGNAL:
                    self._end()
        if pipe is not None:
            os.close(pipe[0])

    def _end(self) -> None:
        self._acts.set()
        try:
            self._act()
        finally:
            self._take_words_away()
            ctypes.pythonapi.PyOS_setsig(int(_SIGNAL), 0)  # signal.signal works in the main thread only
            os.kill(self._home, _SIGNAL)


def is_launched() -> bool:
    """Whether ``torchrun`` has started this process."""
    return _LAUNCHED in os.environ


def last_words_file(rank: int) -> Path:
    """The file in which a rank of this machine leaves where it stood when it crashed."""
    run = re.sub(r"\W", "", "".join(os.environ.get(one, "") for one in (_LAUNCHED, "MASTER_PORT")))
    return Path(tempfile.gettempdir()) / f"gradkit-rank-{os.getuid() if os.name == 'posix' else 0}-{run}-{rank}.txt"


def last_words(rank: int, world: int) -> RankRecord | None:
    """Where a rank of this machine stood when it crashed; None if it left nothing. What it left is taken away.

    ``place`` is ``""`` if it stood in no line of the user's.

    Args:
        rank: that does not answer.
        world: how many there are.
    """
    path, text = last_words_file(rank), ""
    with contextlib.suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
    lines = [
        (one[1], int(one[2])) for one in re.finditer(r'^  File "(.+)", line (\d+)', _main_thread(text), re.MULTILINE)
    ]
    for file, line in lines:
        if frames.is_user_file(file):
            place, branch = place_and_branch(file, line)
            code = linecache.getline(file, line).strip()
            return RankRecord(rank, world, CRASHED, place, code, branch, error=_fatal(text))
    return RankRecord(rank, world, CRASHED, error=_fatal(text)) if text else None


def _fatal(text: str) -> str:
    return text.partition("\n")[0].removeprefix("Fatal Python error: ")


def _main_thread(text: str) -> str:
    """The part of a faulthandler's file that tells of the thread which crashed, else of the one begun first."""
    parts: list[Any] = re.split(r"^(?=(?:Current thread|Thread) 0x)", text, flags=re.MULTILINE)[1:]
    return next((one for one in parts if one.startswith("Current") and 'File "' in one), parts[-1] if parts else "")
