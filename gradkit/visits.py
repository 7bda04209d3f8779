"""Which lines of some files run, heard through Python's own line tracing."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

Line = tuple[str, str, int]


class Visits:
    """Notes the lines of some files that run while it listens, in this thread and in those started meanwhile.

    A debugger or a coverage tool that listens in the same way hears nothing meanwhile, and is put back afterwards.

    Args:
        files: the files, by path.

    Attributes:
        lines: real path of the file, name of the function, and number of each line that ran.
        codes: the functions of these files that ran, by their ids.

    Example:
        >>> import textwrap
        >>> visits = Visits([textwrap.__file__])
        >>> with visits.listening():
        ...     _ = textwrap.shorten("a line", 10)
        >>> "shorten" in {name for _, name, _ in visits.lines}
        True
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._wanted = {os.path.realpath(file) for file in files}
        self._known: dict[str, str] = {}
        self.lines: set[Line] = set()
        self.codes: dict[int, CodeType] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While the block runs, lines are noted."""
        before = sys.gettrace(), threading.gettrace()
        threading.settrace(self._entered)
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before[0])
            threading.settrace(before[1])

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        real = self._known.get(file)
        if real is None:
            real = os.path.realpath(file)
            self._known[file] = real = real if real in self._wanted else ""
        if not real:
            return None
        self.codes[id(frame.f_code)] = frame.f_code
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            code = frame.f_code
            self.lines.add((self._known[code.co_filename], code.co_name, frame.f_lineno))
        return self._ran
