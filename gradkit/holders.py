"""What a step can read, and by which way: closures, globals, attributes, lists, dictionaries, caches of functools."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit import owners, strangers
from gradkit.frames import is_user_file

ATTRIBUTE, ITEM, ELEMENT, VARIABLE, GLOBAL, MEMO, PART = (
    "attribute", "item", "element", "variable", "global", "memo", "part",
)  # fmt: skip
NAMED = (ATTRIBUTE, VARIABLE, GLOBAL)
MOST = 100_000

Memo: Any = type(functools.lru_cache(len))
_ATOMS = (str, bytes, int, float, complex, type(None), CodeType, types.FrameType, types.GeneratorType, torch.dtype)
_Found = tuple[str, Any, Any, Any]


@dataclass(frozen=True, eq=False)
class Edge:
    """One step on the way to something: ``holder`` has it under ``key``.

    Attributes:
        kind: ``"attribute"`` of an object, module or class, ``"item"`` of a dictionary, ``"element"`` of a list,
            ``"variable"`` (a closure's cell), ``"global"``, ``"memo"`` (a function's ``functools.lru_cache``), or
            ``"part"`` of something that cannot be changed.
        before: the step before; None at a root.
        code: of variables and globals, the function that uses them.
    """

    kind: str
    key: Any
    holder: Any
    before: Edge | None = None
    code: CodeType | None = None

    def way(self) -> list[Edge]:
        """The whole way, from its root on."""
        way: list[Edge] = []
        edge: Edge | None = self
        while edge is not None:
            way.append(edge)
            edge = edge.before
        return way[::-1]


def ways(
    roots: Iterable[Any], wanted: Collection[int], most: int = MOST, apart: Iterable[Any] = ()
) -> dict[int, list[Edge]]:
    """Every last step to the objects with the ids ``wanted``, and to memos, each by the shortest way.

    Args:
        roots: where to begin: a step, a model.
        most: how many objects are looked at.
        apart: what is not looked into.

    Example:
        >>> kept = {"x": torch.ones(2)}
        >>> [edge] = ways([lambda: kept["x"]], {id(kept["x"])})[id(kept["x"])]
        >>> [(one.kind, one.key) for one in edge.way()]
        [('global', 'kept'), ('item', 'x')]
    """
    found: dict[int, list[Edge]] = {}
    # keeps what it looks at alive, so that an id stays the id of one thing
    seen: dict[int, Any] = {id(thing): thing for thing in apart}
    todo: deque[tuple[Any, Edge | None]] = deque((root, None) for root in roots)
    while todo and len(seen) < most:
        thing, edge = todo.popleft()
        if edge is not None and (id(thing) in wanted or strangers.is_a(thing, Memo)):
            found.setdefault(id(thing), []).append(edge)
        if id(thing) in seen or strangers.is_a(thing, _ATOMS):
            continue
        seen[id(thing)] = thing
        code = thing.__code__ if strangers.is_a(thing, FunctionType) else None
        todo.extend((value, Edge(kind, key, holder, edge, code)) for kind, key, holder, value in held(thing))
    return found


def held(thing: Any) -> Iterator[_Found]:
    """What a thing holds, each with kind, key and holder. Nothing of the user's is called for it."""
    if strangers.is_a(thing, (Optimizer, property, staticmethod, classmethod, MethodType, functools.partial)):
        yield from ((PART, "", thing, part) for part in _parts(thing))
    elif strangers.is_a(thing, FunctionType):
        yield from _of_function(thing)
    elif strangers.is_a(thing, type):
        if is_users(thing):
            yield from ((ATTRIBUTE, name, thing, value) for name, value in vars(thing).items())
            yield from ((PART, "", thing, base) for base in thing.__bases__)
    elif strangers.is_a(thing, ModuleType):
        if is_user_file(vars(thing).get("__file__") or "<"):
            yield from ((GLOBAL, name, vars(thing), value) for name, value in vars(thing).items())
    elif strangers.is_a(thing, Memo):
        kept = gc.get_referents(thing)
        yield from ((MEMO, "", thing, value) for one in kept for value in _values(one))
    else:
        yield from _of_object(thing)


def _values(one: Any) -> list[Any]:
    return strangers.entries(one) if strangers.is_a(one, dict) else [one]


def _parts(thing: Any) -> list[Any]:
    if strangers.is_a(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if strangers.is_a(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if strangers.is_a(thing, property):
        return [thing.fget]
    return [] if strangers.is_a(thing, Optimizer) else [thing.__func__]


def _of_function(function: FunctionType) -> Iterator[_Found]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield VARIABLE, name, cell, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name, value in zip(reversed(names[: code.co_argcount]), reversed(function.__defaults__ or ()), strict=False):
        yield PART, name, function, value
    yield from ((PART, name, function, value) for name, value in (function.__kwdefaults__ or {}).items())
    yield from ((ATTRIBUTE, name, function, value) for name, value in vars(function).items())
    if is_user_file(code.co_filename):
        scope = function.__globals__
        yield from ((GLOBAL, name, scope, scope[name]) for name in owners.names(code) if name in scope)


def _of_object(thing: Any) -> Iterator[_Found]:
    if strangers.is_a(thing, dict):
        yield from ((ITEM, key, thing, value) for key, value in strangers.items(thing))
    elif strangers.is_a(thing, (list, deque, tuple, set, frozenset)):
        kind = ELEMENT if strangers.is_a(thing, (list, deque)) else PART
        yield from ((kind, i, thing, value) for i, value in enumerate(strangers.entries(thing)))
    if type(thing) in (dict, list, tuple, set):
        return
    inner = attributes(thing)
    yield from ((ATTRIBUTE, name, thing, value) for name, value in list(inner.items()))
    if is_users(type(thing)):
        yield PART, "", thing, type(thing)
        yield from _slots(thing)


def attributes(thing: Any) -> dict[str, Any]:
    """The dictionary of an object's own attributes, ``{}`` if it has none."""
    return strangers.attributes(thing)


def _slots(thing: Any) -> Iterator[_Found]:
    for base in type(thing).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield ATTRIBUTE, name, thing, member.__get__(thing)
                except AttributeError:  # not set
                    continue


def is_users(kind: type) -> bool:
    """Whether a class is written in a file of the user's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if kind.__module__ == "__main__" or (file is not None and is_user_file(file)):
        return True
    functions = (getattr(one, "__func__", getattr(one, "fget", one)) for one in vars(kind).values())
    return any(isinstance(one, FunctionType) and is_user_file(one.__code__.co_filename) for one in functions)
