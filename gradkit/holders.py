"""What a step can read, and by which way: closures, globals, attributes, lists, dictionaries, caches of functools."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit import strangers
from gradkit.frames import is_user_file
from gradkit.owners import ATTRIBUTE, GLOBAL, VARIABLE, Child, Memo, children, own

NAMED = (ATTRIBUTE, VARIABLE, GLOBAL)
MOST = 100_000  # things that are looked at; nothing is remembered of them, so there may be more than of belongings

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


def held(thing: Any) -> Iterator[Child]:
    """Of what a thing holds, that which a forward may read, each with kind, key and holder.

    That is not what an optimizer and a tensor's hooks hold: they work after it. What a library's function names is the
    library's own.
    """
    if strangers.is_a(thing, Optimizer):
        return
    if strangers.is_a(thing, torch.Tensor):
        yield from own(thing)
        return
    of_library = strangers.is_a(thing, FunctionType) and not is_user_file(thing.__code__.co_filename)
    yield from (child for child in children(thing) if not (of_library and child[0] == GLOBAL))
