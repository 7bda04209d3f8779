"""Source text as it was when the code that ran was imported: the one place that source is read from to name a line.

People edit a file while a kernel keeps what it imported before. So a text is handed out only if it compiles to the code
that ran: the file as it stands, else an earlier state of it that was read here before, else none.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import hashlib
import io
import linecache
import os
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType

from gradkit.core import patches, regular_files
from gradkit.core.records import Location
from gradkit.source import files, provenance
from gradkit.source.provenance import Named

_MOST_KEPT = 256
_FRESH = 2.0


@dataclass(frozen=True)
class Source:
    """A state of a file, or the text of a notebook's cell."""

    file: str
    text: str

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines, each with its end."""
        return io.StringIO(self.text).readlines()

    @property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None if it is no Python."""
        return _parse(self.text)

    @functools.cached_property
    def digest(self) -> str:
        """What tells it from other texts."""
        return text_digest(self.text)

    def line(self, number: int) -> str:
        """One line without its end, counted from 1; ``""`` where there is none."""
        return self.lines[number - 1].rstrip("\n") if 0 < number <= len(self.lines) else ""


@dataclass(frozen=True)
class Read:
    """What can be told of the source of a file.

    Attributes:
        source: the text that the code which ran was compiled from; None if there is none.
        changed: the file as it stands holds other code.
    """

    source: Source | None = None
    changed: bool = False
    _around: tuple[Named, ...] = field(default=(), repr=False)

    @functools.cached_property
    def whole(self) -> bool:
        """Whether all else that was imported from the file is in ``source``, too: only then may the text be searched
        for lines that are not known to have run."""
        source = self.source
        if source is None or self.changed:
            return False
        return _in_memory(source.file) is not None or _is_whole(source, self._around)


class _Look:
    """What one diagnosis knows: which code ran, and what was read of each file; each is read once."""

    def __init__(self) -> None:
        self.ran: dict[str, dict[int, CodeType]] = {}
        self.around: dict[str, dict[int, CodeType]] = {}
        self._answers: dict[str, Read] = {}

    def add(self, codes: Iterable[CodeType], to: dict[str, dict[int, CodeType]]) -> None:
        for code in map(provenance.whole, codes):
            known = to.setdefault(code.co_filename, {})
            if id(code) not in known:
                known[id(code)] = code
                self._answers.pop(code.co_filename, None)

    def read(self, file: str) -> Read:
        if file not in self._answers:
            ran, around = self.ran.get(file, {}), self.around.get(file, {})
            self._answers[file] = _read(file, _named(ran), _named(around))
        return self._answers[file]


_look: _Look | None = None
_kept: OrderedDict[tuple[str, str], Source] = OrderedDict()  # by file and digest, the last used last
_later: dict[str, str] = {}  # cell → the cell that holds its text after a change
_brought: dict[str, str] = {}  # file → the text that gradkit itself imported


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """While the block runs, each file is read once, and has to hold all the code that ``codes_ran`` was told of."""
    with patches.undone():
        patches.later(partial(_look_with, _look))
        _look_with(_look or _Look())
        yield


def _look_with(look: _Look | None) -> None:
    global _look
    _look = look


def codes_ran(codes: Iterable[CodeType], around: Iterable[CodeType] = ()) -> None:
    """Say which code ran, and which other code (of the model's classes) was imported with it."""
    if _look is not None:
        _look.add(codes, _look.ran)
        _look.add(around, _look.around)


def read(file: str, code: CodeType | None = None) -> Read:
    """The source of a file as it was imported, if that is known.

    Args:
        code: code of this file that ran.

    Example:
        >>> read("no_such_file.py")
        Read(source=None, changed=False)
    """
    look = _look if _look is not None else _Look()
    if code is not None:
        look.add([code], look.ran)
    return look.read(file)


def bring_up_to_date(file: str) -> None:
    """Remember the text of a file that gradkit itself imports."""
    disk = _on_disk(file)
    if disk is not None:
        _brought[file] = _keep(disk).text


def source_of(spot: Location) -> Source | None:
    """The text in which a line was found; where it is not told, the file as it stands if that has the line.

    What was found in another process is known here from the first look on, also once the file is changed.
    """
    if spot.digest:
        known = _kept.get((spot.file, spot.digest)) or text_now(spot.file)
        return _keep(known) if known is not None and known.digest == spot.digest else None
    source = text_now(spot.file)
    return source if source is not None and spot.text and source.line(spot.line) == spot.text else None


def stands_as_imported(spot: Location) -> bool:
    """Whether the file still is as it was when a line was found in it; True where that is not told."""
    source = text_now(spot.file)
    return not spot.changed and (not spot.digest or (source is not None and source.digest == spot.digest))


def text_now(file: str) -> Source | None:
    """The file, or the cell of a notebook, as it stands; None if it cannot be read as text."""
    return _in_memory(file) or _on_disk(file)


def now_in(file: str) -> str:
    """Where the text of a file stands now: IPython gives a cell another name once it was changed and run again."""
    return _later.get(file, file)


def stands_in(file: str, later: str) -> None:
    """Remember that what stood in a cell stands, after a change, in what IPython calls ``later``.

    Example:
        >>> stands_in("3.py", "4.py"); now_in("3.py")
        '4.py'
        >>> stands_in("3.py", "3.py"); now_in("3.py")
        '3.py'
    """
    _later[file] = later


def text_digest(text: str) -> str:
    """What tells a text from others.

    Example:
        >>> text_digest("x = 1")
        '8ff436def1451285'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(file: str, ran: Sequence[Named], around: Sequence[Named]) -> Read:
    memory = _in_memory(file)
    if memory is not None:
        return Read(_keep(memory))
    disk = _on_disk(file)
    if disk is None and not os.access(file, os.R_OK):  # gone, in an archive, or bytecode alone: there is no text
        return Read(_known(file, ran))
    if disk is not None and all(provenance.is_source_of(disk.text, one) for one in ran):
        return Read(_keep(disk), _around=tuple(around))
    return Read(_known(file, (*ran, *around)) if ran else None, changed=True)


def _known(file: str, codes: Sequence[Named]) -> Source | None:
    """The last state of a file among those that were read here which holds all this code."""
    states = (source for (name, _), source in reversed(_kept.items()) if name == file)
    return next(
        (one for one in states if all(provenance.compiles_to(one.text, code, name) for name, code in codes)), None
    )


def _is_whole(disk: Source, around: Sequence[Named]) -> bool:
    """Whether what was imported from a file beside the code that ran is in its text, too."""
    module = provenance.module(disk.file)
    live = (*around, *provenance.alive_functions(disk.text, disk.file, module))
    if not all(provenance.is_source_of(disk.text, one) for one in live):
        return False
    if disk.file in _brought:
        return provenance.equal_codes(_brought[disk.file], disk.text)
    return not provenance.is_older(module, disk.file)


def _named(codes: Mapping[int, CodeType]) -> list[Named]:
    """Code objects with their qualified names: before Python 3.11, only their functions know those."""
    names = {}
    if sys.version_info < (3, 11) and codes:
        functions = (one for one in gc.get_referrers(*codes.values()) if isinstance(one, FunctionType))
        names = {id(one.__code__): one.__qualname__ for one in functions}
    found = [(getattr(code, "co_qualname", names.get(key, "")), code) for key, code in codes.items()]
    return [(name if name.rpartition(".")[2] == code.co_name else "", code) for name, code in found]


def _keep(source: Source) -> Source:
    key = (source.file, source.digest)
    source = _kept.setdefault(key, source)
    _kept.move_to_end(key)
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return source


def _in_memory(file: str) -> Source | None:
    """The text of what is no file: a cell of a notebook, or what was typed in."""
    entry = linecache.cache.get(file)
    if entry is not None and len(entry) == 4 and entry[1] is None:
        return _source(file, "".join(entry[2]))
    return _source(file, "".join(lines)) if file.startswith("<") and (lines := linecache.getlines(file)) else None


def _on_disk(file: str) -> Source | None:
    """The file as it stands; None if it cannot be read as text."""
    try:
        now = os.stat(file)
        if max(now.st_mtime, now.st_ctime) > time.time() - _FRESH:  # its times may not tell one save from the next
            return _source(file, files.decoded_source(regular_files.read_regular(file, regular_files.SOURCE)))
        return _from_disk(file, (now.st_mtime_ns, now.st_size, now.st_ino, now.st_ctime_ns))
    except (OSError, ValueError, SyntaxError, LookupError):
        return None


@functools.lru_cache(maxsize=64)
def _from_disk(file: str, _signature: tuple[int, ...]) -> Source:
    return _source(file, files.decoded_source(regular_files.read_regular(file, regular_files.SOURCE)))


@functools.lru_cache(maxsize=64)
def _source(file: str, text: str) -> Source:
    return Source(file, text)


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a wrong escape is the file's own affair
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
