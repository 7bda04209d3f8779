"""What a step can read, and by which way: closures, globals, attributes, lists, dictionaries, caches.

What is held can be taken away for as long as a block runs, and is put back as it was.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit.core import introspection, patches
from gradkit.source.frames import is_user_file
from gradkit.state.reachable import ATTRIBUTE, ELEMENT, GLOBAL, ITEM, MEMO, PART, VARIABLE, Child, Memo, children, own

NAMED = (ATTRIBUTE, VARIABLE, GLOBAL)
MOST = 100_000  # things looked at; nothing is remembered of them, so more than by ``everything_reachable``

_ATOMS = (str, bytes, int, float, complex, type(None), CodeType, types.FrameType, types.GeneratorType, torch.dtype)


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


def paths_to(
    roots: Iterable[Any], wanted: Collection[int], most: int = MOST, apart: Iterable[Any] = ()
) -> dict[int, list[Edge]]:
    """Every last step to the objects with the ids ``wanted``, and to memos, each by the shortest way.

    Args:
        roots: where to begin: a step, a model.
        most: how many objects are looked at.
        apart: what is not looked into.

    Example:
        >>> kept = {"x": torch.ones(2)}
        >>> [edge] = paths_to([lambda: kept["x"]], {id(kept["x"])})[id(kept["x"])]
        >>> [(one.kind, one.key) for one in edge.way()]
        [('global', 'kept'), ('item', 'x')]
    """
    found: dict[int, list[Edge]] = {}
    # keeps what it looks at alive, so that an id stays the id of one thing
    seen: dict[int, Any] = {id(thing): thing for thing in apart}
    todo: deque[tuple[Any, Edge | None]] = deque((root, None) for root in roots)
    while todo and len(seen) < most:
        thing, edge = todo.popleft()
        if edge is not None and (id(thing) in wanted or introspection.is_a(thing, Memo)):
            found.setdefault(id(thing), []).append(edge)
        if id(thing) in seen or introspection.is_a(thing, _ATOMS):
            continue
        seen[id(thing)] = thing
        code = thing.__code__ if introspection.is_a(thing, FunctionType) else None
        todo.extend(
            (value, Edge(kind, key, holder, edge, None if kind == ATTRIBUTE else code))
            for kind, key, holder, value in held_at(thing)
        )
    return found


def held_at(thing: Any) -> Iterator[Child]:
    """Of what a thing holds, that which a forward may read, each with kind, key and holder.

    That is not what an optimizer and a tensor's hooks hold: they work after it. What a library's function names is the
    library's own.
    """
    if introspection.is_a(thing, Optimizer):
        return
    if introspection.is_a(thing, torch.Tensor):
        yield from own(thing)
        return
    of_library = introspection.is_a(thing, FunctionType) and not is_user_file(thing.__code__.co_filename)
    yield from (child for child in children(thing) if not (of_library and child[0] == GLOBAL))


Undo = Callable[[], object]


def path_steps(edge: Edge, memos: dict[int, list[Edge]]) -> list[Edge]:
    """The steps at which something can be taken away: where a part is held, where what it is part of is held.

    Args:
        memos: every step to each memo: a memo cannot be emptied and filled again, so that another takes its place.
    """
    if edge.kind == PART:
        return path_steps(edge.before, memos) if edge.before is not None else []
    return memos.get(id(edge.holder), []) if edge.kind == MEMO else [edge]


@contextlib.contextmanager
def put_back(edges: Iterable[Edge]) -> Iterator[None]:
    """Whatever the block does to what holds the last of these steps is undone when it ends."""
    with patches.undone():
        for back in [back for edge in edges for one in edge.way()[-3:] for back in _snapshot(one)]:
            patches.later(back)
        yield


def remove(edges: Iterable[Edge], bare: bool) -> None:
    """Take away what these steps lead to.

    Args:
        bare: entries are left out and attributes are None; otherwise entries are None and attributes are left out.
    """
    for edge in edges:
        _take(edge, bare)


def _take(edge: Edge, bare: bool) -> None:
    holder, key = edge.holder, edge.key
    now = next(iter(value_at(edge)), None)
    if isinstance(now, Memo):
        put(edge, functools.lru_cache(**now.cache_parameters())(now.__wrapped__))
    elif edge.kind == ITEM:
        if bare:
            holder.pop(key, None)
        else:
            holder[key] = None
    elif edge.kind == ELEMENT:
        if bare:
            holder.clear()
        elif key < introspection.size(holder):
            holder[key] = None
    elif edge.kind == ATTRIBUTE and not bare and key in introspection.attributes(holder):
        del introspection.attributes(holder)[key]
    else:
        put(edge, None)


def value_at(edge: Edge) -> list[Any]:
    """What a step leads to now, as a list of one; ``[]`` if nothing."""
    if edge.kind == VARIABLE:
        return [edge.holder.cell_contents]
    if edge.kind == ATTRIBUTE:
        inner = vars(edge.holder) if isinstance(edge.holder, type) else introspection.attributes(edge.holder)
        return [inner[edge.key]] if edge.key in inner else []
    if edge.kind == ELEMENT:
        return [edge.holder[edge.key]] if edge.key < introspection.size(edge.holder) else []
    if edge.kind == PART:
        return []
    return [edge.holder[edge.key]] if edge.key in edge.holder else []


def put(edge: Edge, value: Any) -> None:
    """Let a step lead to something else."""
    if edge.kind == VARIABLE:
        edge.holder.cell_contents = value
    elif edge.kind in (GLOBAL, ITEM, ELEMENT):
        edge.holder[edge.key] = value
    elif isinstance(edge.holder, type):
        type.__setattr__(edge.holder, edge.key, value)
    elif edge.key in introspection.attributes(edge.holder):
        introspection.attributes(edge.holder)[edge.key] = value
    else:
        object.__setattr__(edge.holder, edge.key, value)  # a slot


def _snapshot(edge: Edge) -> list[Undo]:
    """What puts the holder of a step back: its entries, its attributes, or the one variable."""
    holder = edge.holder
    if edge.kind == VARIABLE:
        return [partial(put, edge, holder.cell_contents)]
    if edge.kind == GLOBAL:
        return [partial(put, edge, holder[edge.key])]
    if edge.kind in (ITEM, ELEMENT):
        return [partial(_refill, holder, _copy(holder))]
    if edge.kind != ATTRIBUTE:
        return []
    inner = introspection.attributes(holder)
    if isinstance(holder, type):
        return [partial(put, edge, vars(holder)[edge.key])]
    if edge.key not in inner:
        return [partial(put, edge, object.__getattribute__(holder, edge.key))]
    return [partial(_refill, inner, dict(inner))]


def _copy(holder: Any) -> Any:
    return dict(introspection.items(holder)) if introspection.is_a(holder, dict) else introspection.entries(holder)


def _refill(holder: Any, entries: Any) -> None:
    if introspection.is_a(holder, dict):
        if [(k, id(v)) for k, v in dict.items(holder)] != [(k, id(v)) for k, v in entries.items()]:
            holder.clear()
            holder.update(entries)
    elif [id(v) for v in introspection.entries(holder)] != [id(v) for v in entries]:
        holder.clear()
        holder.extend(entries)
