"""Whether the text of a file is what the code that ran was compiled from.

It is compiled anew and compared, by the code that ran and by what its module holds.
"""

from __future__ import annotations
import __future__

import functools
import operator
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

Compile = Callable[[bytes, str], CodeType]

FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
"""The flags of code that ``from __future__`` sets."""
_OPTIMIZED = 1  # set for functions, not for modules and bodies of classes


_parts: weakref.WeakKeyDictionary[CodeType, CodeType] = weakref.WeakKeyDictionary()


def cut_out(part: CodeType, whole: CodeType) -> None:
    """Say that code was compiled from a part of what ``whole`` was compiled from: they have one source."""
    _parts[part] = whole


def whole(code: CodeType) -> CodeType:
    """The code that another was cut out of; any other code itself.

    Example:
        >>> whole(whole.__code__) is whole.__code__
        True
    """
    return _parts.get(code, code)


def compiles_to(text: str, code: CodeType, name: str = "") -> bool:
    """Whether ``text`` compiles to an equal code object: same name, lines, columns, instructions and constants.

    What is compiled from within it may differ: that is asked for by itself.

    Args:
        name: its qualified name, where Python does not tell that by the code (before 3.11); ``""`` if not known.

    Example:
        >>> text = "def f(x):\\n    return x.detach()\\n"
        >>> exec(text)
        >>> [compiles_to(one, f.__code__) for one in (text, "\\n" + text, text + "# more")]
        [True, False, True]
    """
    wanted, name = outline(code), getattr(code, "co_qualname", name)
    flags = code.co_flags & FUTURES  # as ``compile`` inherits them from the code that calls it
    found = (one for flag in dict.fromkeys((0, flags)) for one in _outlines(text, flag).get(wanted, ()))
    return any(name in ("", one) for one in found)


def alike_codes(text: str, code: CodeType) -> bool:
    """Whether ``text`` has a function of that name which begins on that line."""
    return (code.co_name, code.co_firstlineno) in {one[:2] for one in _outlines(text, 0)}


def asserting(text: str, code: CodeType) -> bool:
    """Whether ``code`` is a function of ``text`` after pytest has taken its ``assert`` statements apart."""
    if not any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames)):
        return False
    mine, lines = _own_names(code), _lines(code)
    same = (
        one for _, one in _codes(text, 0) if (one.co_name, one.co_firstlineno) == (code.co_name, code.co_firstlineno)
    )
    return any(_own_names(one) == mine and _lines(one) == lines for one in same)


def by_hook(text: str, code: CodeType, build: Compile) -> bool:
    """Whether ``code`` is what an import hook, such as a type checker's, makes of ``text``."""
    try:
        made = build(text.encode(), code.co_filename)
    except Exception:  # noqa: BLE001  a stranger's hook
        return False
    return outline(code) in {outline(one) for _, one in _within(made, "<module>")}


def equal_codes(text: str, other: str) -> bool:
    """Whether two texts compile to the same, down to the last function.

    Example:
        >>> equal_codes("x = 1", "x = 1  # one"), equal_codes("x = 1", "x = 2")
        (True, False)
    """
    return text == other or (bool(_outlines(text, 0)) and _outlines(text, 0) == _outlines(other, 0))


@functools.lru_cache(maxsize=64)
def qualified(text: str) -> frozenset[str]:
    """The qualified names of all that is compiled from a text.

    Example:
        >>> sorted(qualified("class A:\\n    def f(self): return lambda: 1"))
        ['<module>', 'A', 'A.f', 'A.f.<locals>.<lambda>']
    """
    return frozenset(name for name, _ in _codes(text, 0))


def outline(code: CodeType) -> tuple[Any, ...]:
    """What makes a code object equal to another, but for what is compiled from within it."""
    return (
        code.co_name, code.co_firstlineno, code.co_code, code.co_linetable, code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_argcount, code.co_kwonlyargcount, _plain(code.co_consts),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """A constant that equals another only if it is the same: 1 is not 1.0 or True, and nan is nan."""
    if isinstance(value, CodeType):
        return CodeType, value.co_name, value.co_firstlineno
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, frozenset):
        return frozenset(map(_plain, value))
    return type(value), repr(value)


def compiled(text: str, file: str, flags: int = 0) -> list[tuple[str, CodeType]]:
    """All code objects of a text under the name of a file, each with its qualified name; ``[]`` if it is no Python.

    Example:
        >>> [name for name, _ in compiled("def f(): return lambda: 1", "a.py")]
        ['<module>', 'f', 'f.<locals>.<lambda>']
    """
    made = _compiled(text, flags, file)
    return list(_within(made, "<module>")) if made is not None else []


def _within(code: CodeType, name: str) -> Iterator[tuple[str, CodeType]]:
    """A code object and all that was compiled from within it, each with its qualified name."""
    yield name, code
    inside = "" if name == "<module>" else f"{name}.<locals>." if code.co_flags & _OPTIMIZED else f"{name}."
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _within(one, getattr(one, "co_qualname", f"{inside}{one.co_name}"))


def _own_names(code: CodeType) -> set[str]:
    names = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return {name for name in names if not name.startswith(("@", "_"))} - {"AssertionError", "locals"}


def _lines(code: CodeType) -> set[int | None]:
    return {line for *_, line in code.co_lines() if line}


@functools.lru_cache(maxsize=64)
def _outlines(text: str, flags: int) -> dict[tuple[Any, ...], set[str]]:
    """The qualified names of what is compiled from a text, by how it looks."""
    found: dict[tuple[Any, ...], set[str]] = {}
    for name, code in _codes(text, flags):
        found.setdefault(outline(code), set()).add(name)
    return found


def _codes(text: str, flags: int) -> list[tuple[str, CodeType]]:
    made = _compiled(text, flags)
    return list(_within(made, "<module>")) if made is not None else []


@functools.lru_cache(maxsize=64)
def _compiled(text: str, flags: int, file: str = "<text>") -> CodeType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: CodeType = compile(text, file, "exec", flags, dont_inherit=True)
            return made
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


Named = tuple[str, CodeType]  # with its qualified name, "" if that is not known


def is_source_of(text: str, named: Named) -> bool:
    """Whether code was compiled from the text that its file holds; also where an import hook changed it on the way."""
    name, code = named
    if compiles_to(text, code, name):
        return True
    if not alike_codes(text, code):
        return False
    if _untouched(code.co_filename) or asserting(text, code):
        return True
    spec = getattr(module(code.co_filename), "__spec__", None)
    build = getattr(getattr(spec, "loader", None), "source_to_code", None)
    if build is None or getattr(build, "__func__", None) is SourceFileLoader.source_to_code:
        return False
    return by_hook(text, code, build)


def alive_functions(text: str, file: str, module: ModuleType | None) -> list[Named]:
    """The functions that a module holds from its file, but for those whose names the text does not know any more."""
    names = qualified(text)
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
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, FunctionType):
            if thing.__code__.co_filename == file:
                yield getattr(thing.__code__, "co_qualname", thing.__qualname__), thing.__code__
            todo += [value for value in (vars(thing).get("__wrapped__"),) if value is not None]
        elif isinstance(thing, type):
            todo += vars(thing).values() if module is not None and thing.__module__ == module.__name__ else ()
        elif isinstance(thing, (staticmethod, classmethod)):
            todo.append(thing.__func__)
        elif isinstance(thing, (property, functools.cached_property)):
            todo += [getattr(thing, name, None) for name in ("fget", "fset", "func")]


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
