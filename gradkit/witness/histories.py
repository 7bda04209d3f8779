"""Who did what to which object: histories by identity, which keep nothing alive and end with what they tell of.

An ``id`` is used again after its object has died; so the weak reference drops the history along with the object, and
a history is handed out only for the very object that it was begun for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from gradkit.witness.deeds import Deed

_LATEST = 12  # kept, beside the first of each kind
_MOST = 40


class _Key(weakref.ref[Any]):
    """A weak reference that knows the ``id`` of what it refers to after that has gone."""

    __slots__ = ("number",)
    number: int


class _History:
    __slots__ = ("deeds", "key", "memory")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.deeds: list[Deed] = []
        self.memory = 0


_histories: dict[int, _History] = {}
_by_memory: dict[int, int] = {}


def _forget(key: Any) -> None:
    known = _histories.get(key.number)
    if known is not None and known.key is key:
        del _histories[key.number]
        if known.memory:
            _by_memory.pop(known.memory, None)


def is_known(thing: object) -> bool:
    """Whether anything was seen to be done to an object."""
    known = _histories.get(id(thing))
    return known is not None and known.key() is thing


def deeds_of(thing: object) -> tuple[Deed, ...]:
    """What was done to a tensor, a module or an optimizer, first to last.

    Of many, the first of each kind and the last dozen are kept.

    Example:
        >>> import torch
        >>> from gradkit.witness.listening import listening
        >>> with listening():
        ...     layer = torch.nn.Linear(2, 1).requires_grad_(False)
        >>> [deed.kind for deed in deeds_of(layer.weight)]
        ['registered', 'frozen']
        >>> deeds_of(torch.ones(1))
        ()
    """
    known = _histories.get(id(thing))
    return tuple(known.deeds) if known is not None and known.key() is thing else ()


def of_all() -> Iterator[tuple[object, tuple[Deed, ...]]]:
    """Every object that lives and has a history, with that.

    Example:
        >>> all(deeds for _, deeds in of_all())
        True
    """
    for known in list(_histories.values()):
        thing = known.key()
        if thing is not None and known.deeds:
            yield thing, tuple(known.deeds)


def remember(thing: object, deed: Deed) -> None:
    """Add a deed to an object's history. What cannot be referred to weakly has none."""
    known = _histories.get(id(thing))
    if known is None or known.key() is not thing:
        try:
            key = _Key(thing, _forget)
        except TypeError:
            return
        key.number = id(thing)
        known = _histories[id(thing)] = _History(key)
    known.deeds.append(deed)
    if len(known.deeds) > _MOST:
        known.deeds = _shortened(known.deeds)


def _shortened(deeds: list[Deed]) -> list[Deed]:
    first: dict[str, Deed] = {}
    for deed in deeds:
        first.setdefault(deed.kind, deed)
    kept = set(map(id, (*first.values(), *deeds[-_LATEST:])))
    return [deed for deed in deeds if id(deed) in kept]


def lies_in(tensor: object, memory: int) -> None:
    """Say which memory a tensor lies in, by any number that stands for it; only of one that has a history."""
    known = _histories.get(id(tensor))
    if known is not None and known.key() is tensor:
        known.memory = memory
        _by_memory[memory] = id(tensor)


def found_in(memory: int) -> object | None:
    """The tensor that was last said to lie in some memory; None if there is none any more."""
    number = _by_memory.get(memory)
    return living(number) if number is not None else None


def living(number: int) -> object | None:
    """The object whose history is kept under an ``id``, None if it has gone."""
    known = _histories.get(number)
    return known.key() if known is not None else None
