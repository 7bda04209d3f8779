"""Take away what a step can read, for as long as a block runs, and put everything back as it was."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from gradkit import patches, strangers
from gradkit.holders import Edge
from gradkit.owners import ATTRIBUTE, ELEMENT, GLOBAL, ITEM, MEMO, PART, VARIABLE, Memo

Undo = Callable[[], object]


def steps(edge: Edge, memos: dict[int, list[Edge]]) -> list[Edge]:
    """The steps at which something can be taken away: where a part is held, where what it is part of is held.

    Args:
        memos: every step to each memo: a memo cannot be emptied and filled again, so that another takes its place.
    """
    if edge.kind == PART:
        return steps(edge.before, memos) if edge.before is not None else []
    return memos.get(id(edge.holder), []) if edge.kind == MEMO else [edge]


@contextlib.contextmanager
def restored(edges: Iterable[Edge]) -> Iterator[None]:
    """Whatever the block does to what holds the last of these steps is undone when it ends."""
    with patches.undone():
        for back in [back for edge in edges for one in edge.way()[-3:] for back in _snapshot(one)]:
            patches.later(back)
        yield


def empty(edges: Iterable[Edge], bare: bool) -> None:
    """Take away what these steps lead to.

    Args:
        bare: entries are left out and attributes are None; otherwise entries are None and attributes are left out.
    """
    for edge in edges:
        _take(edge, bare)


def _take(edge: Edge, bare: bool) -> None:
    holder, key = edge.holder, edge.key
    now = next(iter(at(edge)), None)
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
        elif key < strangers.size(holder):
            holder[key] = None
    elif edge.kind == ATTRIBUTE and not bare and key in strangers.attributes(holder):
        del strangers.attributes(holder)[key]
    else:
        put(edge, None)


def at(edge: Edge) -> list[Any]:
    """What a step leads to now, as a list of one; ``[]`` if nothing."""
    if edge.kind == VARIABLE:
        return [edge.holder.cell_contents]
    if edge.kind == ATTRIBUTE:
        inner = vars(edge.holder) if isinstance(edge.holder, type) else strangers.attributes(edge.holder)
        return [inner[edge.key]] if edge.key in inner else []
    if edge.kind == ELEMENT:
        return [edge.holder[edge.key]] if edge.key < strangers.size(edge.holder) else []
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
    elif edge.key in strangers.attributes(edge.holder):
        strangers.attributes(edge.holder)[edge.key] = value
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
    inner = strangers.attributes(holder)
    if isinstance(holder, type):
        return [partial(put, edge, vars(holder)[edge.key])]
    if edge.key not in inner:
        return [partial(put, edge, object.__getattribute__(holder, edge.key))]
    return [partial(_refill, inner, dict(inner))]


def _copy(holder: Any) -> Any:
    return dict(strangers.items(holder)) if strangers.is_a(holder, dict) else strangers.entries(holder)


def _refill(holder: Any, entries: Any) -> None:
    if strangers.is_a(holder, dict):
        if [(k, id(v)) for k, v in dict.items(holder)] != [(k, id(v)) for k, v in entries.items()]:
            holder.clear()
            holder.update(entries)
    elif [id(v) for v in strangers.entries(holder)] != [id(v) for v in entries]:
        holder.clear()
        holder.extend(entries)
