"""How one thing is put back as it is now: a table from its type to what remembers it.

Nothing is copied deeply: what is remembered of a container or an object is what it holds, by reference. Compared is by
identity, as tensors cannot be compared by ``==``. A subclass is filled by the methods of Python's own class: what it
overrides may count or check.
"""

from __future__ import annotations

import functools
import operator
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.source import frames
from gradkit.state import reachable, registered

_NOT_THERE: Any = object()
Back = Callable[[], None]


def restore(now: dict[Any, Any], kept: dict[Any, Any]) -> None:
    """Make a dictionary what it was, entry by entry, so that no moment is without what did not change.

    Example:
        >>> now = {"a": 2, "b": 1}
        >>> restore(now, {"a": 1}); now
        {'a': 1}
    """
    if same_contents(list(now), list(kept)) and same_contents(list(now.values()), list(kept.values())):
        return
    for name in [name for name in now if name not in kept]:
        del now[name]
    for name, value in kept.items():
        if now.get(name, _NOT_THERE) is not value:
            now[name] = value


def mapping_restorer(thing: Any) -> Back:
    """A function that gives a dictionary its entries again, in their order."""
    kind: Any = OrderedDict if isinstance(thing, OrderedDict) else dict  # what a subclass overrides is not asked
    keys, values = list(kind.keys(thing)), list(kind.values(thing))

    def back() -> None:
        if same_contents(list(kind.keys(thing)), keys) and same_contents(list(kind.values(thing)), values):
            return
        kind.clear(thing)
        for key, value in zip(keys, values, strict=True):
            kind.__setitem__(thing, key, value)

    return back


def list_restorer(thing: list[Any]) -> Back:
    """A function that gives a list its entries again."""
    entries = list(list.__iter__(thing))

    def back() -> None:
        if not same_contents(thing if type(thing) is list else list(list.__iter__(thing)), entries):
            list.__setitem__(thing, slice(None), entries)

    return back


def deque_restorer(thing: deque[Any]) -> Back:
    """A function that gives a deque its entries again."""
    entries = list(deque.__iter__(thing))

    def back() -> None:
        if not same_contents(list(deque.__iter__(thing)), entries):
            deque.clear(thing)
            deque.extend(thing, entries)

    return back


def set_restorer(thing: set[Any]) -> Back:
    """A function that gives a set its entries again."""
    entries = set(set.__iter__(thing))

    def back() -> None:
        if not set.__eq__(thing, entries):
            set.clear(thing)
            set.update(thing, entries)

    return back


def same_contents(now: Any, before: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(now) == len(before) and all(map(operator.is_, now, before))


_GONE = reachable.GONE
_SMALL = 2**20  # bytes: of an array in NumPy nobody knows whether it is written, so it is copied at once


def restorer(thing: Any, kept: bool = False) -> Back | None:
    """A function that puts a thing back as it is now, and may be called more than once; None if there is no way.

    Args:
        kept: whether its attributes are to be put back too; a module's always are.

    Example:
        >>> seen, dice = [1], random.Random(0)
        >>> backs = [restorer(seen), restorer(dice)]
        >>> seen.append(2); first = dice.random()
        >>> for back in backs: back()
        >>> seen, dice.random() == first
        ([1], True)
    """
    remember = _way(type(thing))
    if remember is None:
        return _attributes(thing) if kept else None
    try:
        back = remember(thing)
    except Exception:  # noqa: BLE001  an object may be broken in any way: SystemRandom has no state
        return None
    if not kept or remember is _layer:
        return back
    own = _attributes(thing)

    def both() -> None:
        back()
        own()

    return both


@reachable.by_class
def _way(kind: Any) -> Callable[[Any], Back] | None:
    return next((remember for known, remember in (*_TABLE, *_numpy()) if issubclass(kind, known)), None)


def _attributes(thing: Any) -> Back:
    """The attributes of an object: its dictionary, and its slots."""
    members = [(one, reachable.slot(one, thing)) for one in reachable.slots(type(thing))]
    space = introspection.attributes(thing)
    own = dict(space)

    def back() -> None:
        restore(space, own)
        for member, value in members:
            if reachable.slot(member, thing) is not value:
                member.__delete__(thing) if value is _GONE else member.__set__(thing, value)

    return back


def _layer(thing: nn.Module) -> Back:
    """A module: its attributes, and the tables of parameters, buffers, modules and hooks among them."""
    own = dict(vars(thing))
    own_tables = [table for name, table in own.items() if name in registered.TABLES]
    tables = [(table, mapping_restorer(table) if table else None) for table in own_tables]

    def back() -> None:
        restore(vars(thing), own)
        for table, refill in tables:
            if refill is not None:
                refill()
            elif table:
                table.clear()

    return back


def _function(thing: FunctionType) -> Back:
    """What its closure and the global names in its code stand for, and its attributes.

    Names in torch's and Python's own modules are no part of a step: what a run changes there, it takes back itself.
    """
    cells = [(cell, _content(cell)) for cell in thing.__closure__ or ()]
    names = () if frames.is_torch_file(thing.__code__.co_filename) else reachable.names_in(thing.__code__)
    space = thing.__globals__
    values = {name: space.get(name, _GONE) for name in names}
    own = dict(vars(thing))

    def back() -> None:
        restore(vars(thing), own)
        for cell, content in cells:
            if _content(cell) is not content:
                if content is _GONE:
                    del cell.cell_contents
                else:
                    cell.cell_contents = content
        for name, value in values.items():
            if space.get(name, _GONE) is not value:
                if value is _GONE:
                    del space[name]
                else:
                    space[name] = value

    return back


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _GONE


def _class(thing: type) -> Back:
    kept = dict(vars(thing))

    def back() -> None:
        for name in [name for name in vars(thing) if name not in kept]:
            type.__delattr__(thing, name)
        for name, value in kept.items():
            if vars(thing).get(name, _GONE) is not value:
                type.__setattr__(thing, name, value)

    return back


def _module(thing: ModuleType) -> Back:
    """What its names stand for; a name is never taken away: it may be a module that was imported meanwhile."""
    kept = dict(vars(thing)) if reachable.is_users_module(thing) else {}
    return lambda: vars(thing).update({n: v for n, v in kept.items() if vars(thing).get(n, _GONE) is not v})


def _state(get: Callable[[Any], Any], put: Callable[[Any, Any], object]) -> Callable[[Any], Back]:
    def remember(thing: Any) -> Back:
        state = get(thing)
        return lambda: discard(put(thing, state))

    return remember


def discard(_: object) -> None:
    """Drop what a function returned, where a caller must not get it."""


def _cache(thing: Any) -> Back:
    """Of a function's cache it cannot be told what is in it; what was empty is emptied."""
    count = thing.cache_info().currsize
    return lambda: thing.cache_clear() if not count and thing.cache_info().currsize else None


def _array(thing: Any) -> Back:
    copy = thing.copy() if thing.flags.writeable and thing.nbytes <= _SMALL and not thing.dtype.hasobject else None

    def back() -> None:
        if copy is not None and thing.shape == copy.shape and thing.tobytes() != copy.tobytes():
            thing[...] = copy

    return back


def _numpy() -> tuple[tuple[type, Callable[[Any], Back]], ...]:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return ()

    def put(thing: Any, state: Any) -> None:
        thing.bit_generator.state = state

    legacy = numpy.random.RandomState
    return (
        (numpy.ndarray, _array),
        (numpy.random.Generator, _state(lambda thing: thing.bit_generator.state, put)),
        (legacy, _state(legacy.get_state, legacy.set_state)),
    )


_TABLE: tuple[tuple[type, Callable[[Any], Back]], ...] = (
    (nn.Module, _layer),
    (dict, mapping_restorer),
    (list, list_restorer),
    (set, set_restorer),
    (deque, deque_restorer),
    (FunctionType, _function),
    (type, _class),
    (ModuleType, _module),
    (functools._lru_cache_wrapper, _cache),  # noqa: SLF001
    (torch.Generator, _state(torch.Generator.get_state, torch.Generator.set_state)),
    (random.Random, _state(random.Random.getstate, random.Random.setstate)),
)
