"""Whether a piece of source text is what a code object was compiled from: it is compiled anew, and compared."""

from __future__ import annotations
import __future__

import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

Compile = Callable[[bytes, str], CodeType]

_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_OPTIMIZED = 1  # set for functions, not for modules and bodies of classes


def holds(text: str, code: CodeType, name: str = "") -> bool:
    """Whether ``text`` compiles to an equal code object: same name, lines, columns, instructions and constants.

    What is compiled from within it may differ: that is asked for by itself.

    Args:
        name: its qualified name, where Python does not tell that by the code (before 3.11); ``""`` if not known.

    Example:
        >>> text = "def f(x):\\n    return x.detach()\\n"
        >>> exec(text)
        >>> holds(text, f.__code__), holds("\\n" + text, f.__code__), holds(text + "# more", f.__code__)
        (True, False, True)
    """
    wanted, name = outline(code), getattr(code, "co_qualname", name)
    flags = code.co_flags & _FUTURES  # as ``compile`` inherits them from the code that calls it
    found = (one for flag in dict.fromkeys((0, flags)) for one in _outlines(text, flag).get(wanted, ()))
    return any(name in ("", one) for one in found)


def alike(text: str, code: CodeType) -> bool:
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


def equal(text: str, other: str) -> bool:
    """Whether two texts compile to the same, down to the last function.

    Example:
        >>> equal("x = 1", "x = 1  # one"), equal("x = 1", "x = 2")
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
def _compiled(text: str, flags: int) -> CodeType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: CodeType = compile(text, "<text>", "exec", flags, dont_inherit=True)
            return made
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
