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
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gradkit import compiled, texts
from gradkit.records import Location

Named = tuple[str, CodeType]  # with its qualified name, "" if that is not known
_MOST_KEPT = 256


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
        return digest(self.text)

    def line(self, number: int) -> str:
        """One line without its end, counted from 1; ``""`` where there is none."""
        return self.lines[number - 1].rstrip("\n") if 0 < number <= len(self.lines) else ""


@dataclass(frozen=True)
class Read:
    """What can be told of the source of a file.

    Attributes:
        source: the text that the code which ran was compiled from; None if there is none.
        changed: the file as it stands holds other code.
        whole: all else that was imported from the file is in ``source``, too: the text may be searched for lines that
            are not known to have run.
    """

    source: Source | None = None
    changed: bool = False
    whole: bool = True


class _Look:
    """What one diagnosis knows: which code ran, and what was read of each file; each is read once."""

    def __init__(self) -> None:
        self.ran: dict[str, dict[int, CodeType]] = {}
        self.around: dict[str, dict[int, CodeType]] = {}
        self._answers: dict[str, Read] = {}

    def add(self, codes: Iterable[CodeType], to: dict[str, dict[int, CodeType]]) -> None:
        for code in codes:
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
_brought: dict[str, str] = {}  # file → the text that gradkit itself imported


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Within it, each file is read once, and has to hold all the code that is said to have run (:func:`ran`)."""
    global _look
    outer, _look = _look, _look or _Look()
    try:
        yield
    finally:
        _look = outer


def ran(codes: Iterable[CodeType], around: Iterable[CodeType] = ()) -> None:
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
        Read(source=None, changed=False, whole=True)
    """
    look = _look if _look is not None else _Look()
    if code is not None:
        look.add([code], look.ran)
    return look.read(file)


def bring(file: str, text: str | None = None) -> None:
    """Remember the text of a file that gradkit itself imports."""
    disk = _on_disk(file) if text is None else _keep(Source(file, text))
    if disk is not None:
        _brought[file] = disk.text


def of(spot: Location) -> Source | None:
    """The text in which a line was found; where it is not told, the file as it stands if that has the line."""
    if spot.digest:
        known = _kept.get((spot.file, spot.digest)) or now(spot.file)
        return known if known is not None and known.digest == spot.digest else None
    source = now(spot.file)
    return source if source is not None and spot.text and source.line(spot.line) == spot.text else None


def stands(spot: Location) -> bool:
    """Whether the file still is as it was when a line was found in it; True where that is not told."""
    source = now(spot.file)
    return not spot.changed and (not spot.digest or (source is not None and source.digest == spot.digest))


def now(file: str) -> Source | None:
    """The file, or the cell of a notebook, as it stands; None if it cannot be read as text."""
    return _in_memory(file) or _on_disk(file)


def digest(text: str) -> str:
    """What tells a text from others.

    Example:
        >>> digest("x = 1")
        '3d5bb4cffb4d0a02'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(file: str, ran: Sequence[Named], around: Sequence[Named]) -> Read:
    memory = _in_memory(file)
    if memory is not None:
        return Read(_keep(memory))
    disk, module = _on_disk(file), _module(file)
    if disk is None and not os.access(file, os.R_OK):  # gone, in an archive, or bytecode alone: there is no text
        return Read(_known(file, ran), whole=False)
    if disk is not None and all(_belongs(disk, name, code, module) for name, code in ran):
        return Read(_keep(disk), whole=_is_whole(disk, module, around))
    return Read(_known(file, (*ran, *around)) if ran else None, changed=True)


def _known(file: str, codes: Sequence[Named]) -> Source | None:
    """The last state of a file among those that were read here which holds all this code."""
    states = (source for (name, _), source in reversed(_kept.items()) if name == file)
    return next((one for one in states if all(compiled.holds(one.text, code, name) for name, code in codes)), None)


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
        return _from_disk(file, (now.st_mtime_ns, now.st_size, now.st_ino, now.st_ctime_ns))
    except (OSError, ValueError, SyntaxError, LookupError):
        return None


@functools.lru_cache(maxsize=64)
def _from_disk(file: str, _signature: tuple[int, ...]) -> Source:
    return _source(file, texts.decoded(Path(file).read_bytes()))


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


# -- does a text belong to code? ------------------------------------------------------------------------------------


def _belongs(disk: Source, name: str, code: CodeType, module: ModuleType | None) -> bool:
    """Whether code was compiled from the file as it stands; also where an import hook changed it on the way."""
    if compiled.holds(disk.text, code, name):
        return True
    if not compiled.alike(disk.text, code):
        return False
    if _untouched(disk.file) or compiled.asserting(disk.text, code):
        return True
    build = getattr(getattr(getattr(module, "__spec__", None), "loader", None), "source_to_code", None)
    own = build is not None and getattr(build, "__func__", None) is not SourceFileLoader.source_to_code
    return own and compiled.by_hook(disk.text, code, build)


def _is_whole(disk: Source, module: ModuleType | None, around: Sequence[Named]) -> bool:
    """Whether what was imported from a file beside the code that ran is in its text, too."""
    names = compiled.qualified(disk.text)
    live = (*around, *(one for one in _functions(module, disk.file) if one[0] in names))
    if not all(_belongs(disk, name, code, module) for name, code in live):
        return False
    if disk.file in _brought:
        return compiled.equal(_brought[disk.file], disk.text)
    return not _is_older(getattr(getattr(module, "__spec__", None), "cached", None), disk.file)


def _is_older(cached: Any, file: str) -> bool:
    """Whether the bytecode that Python wrote at the import was made from another state of the file."""
    try:
        head, now = Path(cached).read_bytes()[:16], os.stat(file)
    except (OSError, TypeError, ValueError):
        return False
    seconds, size = (int.from_bytes(head[at : at + 4], "little") for at in (8, 12))
    by_time = len(head) == 16 and not int.from_bytes(head[4:8], "little")
    return by_time and (seconds, size) != (int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF)


def _module(file: str) -> ModuleType | None:
    modules = (one for one in list(sys.modules.values()) if isinstance(one, ModuleType))
    return next((one for one in modules if vars(one).get("__file__") == file), None)


def _functions(module: ModuleType | None, file: str) -> Iterator[Named]:
    """The functions of a module and of its classes that were compiled from a file, each with its qualified name."""
    todo = list(vars(module).values()) if module is not None else []
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            if one.__code__.co_filename == file:
                yield getattr(one.__code__, "co_qualname", one.__qualname__), one.__code__
            todo += [value for value in (vars(one).get("__wrapped__"),) if value is not None]
        elif isinstance(one, type):
            todo += vars(one).values() if module is not None and one.__module__ == module.__name__ else ()
        elif isinstance(one, (staticmethod, classmethod)):
            todo.append(one.__func__)
        elif isinstance(one, (property, functools.cached_property)):
            todo += [getattr(one, name, None) for name in ("fget", "fset", "func")]


def _untouched(file: str) -> bool:
    """Whether a file is as it was when this process began."""
    try:
        now = os.stat(file)
    except OSError:
        return False
    return max(now.st_mtime, now.st_ctime) < _BEGAN


def _began() -> float:
    """When this process began, where the system tells it; else 0."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


_BEGAN = _began()
