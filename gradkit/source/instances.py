"""Whether an object is there that a method belongs to: of several classes, the one that the program has used.

A file may hold a trainer, and variants of it which override how it freezes or what its optimizer is given. Source alone
does not tell which of them ran. The objects that are alive do: the step holds the trainer that it belongs to.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from gradkit.core.records import Location

LIVING, IDLE, UNKNOWN = "living", "idle", "unknown"
_Item = TypeVar("_Item")


def of_living(found: Iterable[tuple[_Item, Location]]) -> list[_Item]:
    """What stands in no method of a class without objects, where something else stands in a method of one that has any.

    All of them where none does: an object may have been let go of since.
    """
    items = list(found)
    told = statuses(spot for _, spot in items) if len(items) > 1 else {}
    states = [told.get(_key(spot), UNKNOWN) for _, spot in items]
    if LIVING not in states:
        return [item for item, _ in items]
    return [item for (item, _), state in zip(items, states, strict=True) if state != IDLE]


def statuses(spots: Iterable[Location]) -> dict[tuple[str, str], str]:
    """For each place in a method, by its file and function: whether an object is alive that would run the method.

    ``"unknown"`` where there is no class of this name with such a method from that file.

    Example:
        >>> class Trainer:
        ...     def freeze(self): pass
        >>> place = Location(Trainer.freeze.__code__.co_filename, 2, function="Trainer.freeze")
        >>> trainer = Trainer()
        >>> list(statuses([place]).values())
        ['living']
    """
    wanted = {_key(spot): tuple(_methods(spot.function)) for spot in spots}
    names = {name for ways in wanted.values() for name, _ in ways}
    classes = [cls for cls in _below(object) if cls.__name__ in names] if names else []
    heirs = {
        key: [
            one
            for name, method in ways
            for cls in classes
            if _is_meant(cls, name, method, key[0])
            for one in _heirs(cls, method)
        ]
        for key, ways in wanted.items()
    }
    alive = _alive({one for ones in heirs.values() for one in ones})
    return {key: _state(ones, alive) for key, ones in heirs.items()}


def _state(ones: list[type], alive: set[type]) -> str:
    if not ones:
        return UNKNOWN
    return LIVING if alive.intersection(ones) else IDLE


def _key(spot: Location) -> tuple[str, str]:
    return spot.file, spot.function


def _methods(function: str) -> Iterator[tuple[str, str]]:
    """The pairs in a qualified name that may be a class and its method."""
    parts = function.split(".")
    return itertools.pairwise(parts)


def _below(cls: type) -> Iterator[type]:
    """A class and all that are derived from it, each once."""
    todo, known = [cls], {cls}
    while todo:
        one = todo.pop()
        yield one
        fresh = set[type](type.__subclasses__(one)) - known
        known |= fresh
        todo += fresh


def _is_meant(cls: type, name: str, method: str, file: str) -> bool:
    code = getattr(getattr(vars(cls).get(method), "__wrapped__", vars(cls).get(method)), "__code__", None)
    return cls.__name__ == name and code is not None and code.co_filename == file


def _heirs(cls: type, method: str) -> Iterator[type]:
    """The class and those derived from it, whose objects have this very method."""
    return (one for one in _below(cls) if next((base for base in one.__mro__ if method in vars(base)), None) is cls)


def _alive(classes: set[type]) -> set[type]:
    """Those of which there is an object."""
    return {type(one) for one in gc.get_referrers(*classes) if type(one) in classes} if classes else set()
