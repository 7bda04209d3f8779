"""Whether the text of a file is what was imported from it: by the code that ran, and by what its module holds."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from gradkit import compiled

Named = tuple[str, CodeType]  # with its qualified name, "" if that is not known


def belongs(text: str, named: Named) -> bool:
    """Whether code was compiled from the text that its file holds; also where an import hook changed it on the way."""
    name, code = named
    if compiled.holds(text, code, name):
        return True
    if not compiled.alike(text, code):
        return False
    if _untouched(code.co_filename) or compiled.asserting(text, code):
        return True
    spec = getattr(module(code.co_filename), "__spec__", None)
    build = getattr(getattr(spec, "loader", None), "source_to_code", None)
    if build is None or getattr(build, "__func__", None) is SourceFileLoader.source_to_code:
        return False
    return compiled.by_hook(text, code, build)


def alive(text: str, file: str, module: ModuleType | None) -> list[Named]:
    """The functions that a module holds from its file, but for those whose names the text does not know any more."""
    names = compiled.qualified(text)
    return [one for one in _functions(module, file) if one[0] in names]


def is_older(module: ModuleType | None, file: str) -> bool:
    """Whether the bytecode that Python wrote at the import was made from another state of the file."""
    spec = getattr(module, "__spec__", None)
    cached = getattr(spec, "cached", None)
    written = type(getattr(spec, "loader", None)) is SourceFileLoader and not sys.dont_write_bytecode
    if not cached or not written or not os.access(os.path.dirname(cached), os.W_OK):
        return False
    try:
        head, now = Path(cached).read_bytes()[:16], os.stat(file)
    except (OSError, ValueError):
        return False
    seconds, size = (int.from_bytes(head[at : at + 4], "little") for at in (8, 12))
    by_time = len(head) == 16 and not int.from_bytes(head[4:8], "little")
    return by_time and (seconds, size) != (int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF)


def module(file: str) -> ModuleType | None:
    """The module that was imported from a file; None if there is none."""
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
