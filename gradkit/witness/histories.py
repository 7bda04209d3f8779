"""Who did what to which object: histories by identity, which keep nothing alive and end with what they tell of.

An ``id`` is used again after its object has died; so the weak reference drops the history along with the object, and
a history is handed out only for the very object that it was begun for.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from typing import Any

from gradkit.witness.deeds import Deed, Noted

_LATEST = 12  # kept, beside the first of each kind
_MOST = 40


class _History(weakref.ref[Any]):
    """What was done to the thing that it refers to, whose ``id`` it knows after that has gone."""

    __slots__ = ("first", "memory", "number", "rest")
    number: int
    first: Noted
    rest: list[Noted] | None  # most have none: what is made for each parameter, Python's garbage collector counts
    memory: int


_histories: dict[int, _History] = {}
_by_memory: dict[int, int] = {}
_unplaced: dict[int, None] = {}


def _forget(gone: Any) -> None:
    number, memory = gone.number, gone.memory
    if _histories.get(number) is gone:
        del _histories[number]
        _unplaced.pop(number, None)
        if memory:
            _by_memory.pop(memory, None)


def is_known(thing: object) -> bool:
    """Whether anything was seen to be done to an object."""
    known = _histories.get(id(thing))
    return known is not None and known() is thing


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
    if known is None or known() is not thing:
        return ()
    return tuple(Deed(*noted) for noted in (known.first, *(known.rest or ())))


def of_all() -> Iterator[tuple[object, tuple[Deed, ...]]]:
    """Every object that lives and has a history, with that.

    Example:
        >>> all(deeds for _, deeds in of_all())
        True
    """
    for known in list(_histories.values()):
        thing = known()
        if thing is not None:
            yield thing, tuple(Deed(*noted) for noted in (known.first, *(known.rest or ())))


def remember(thing: object, noted: Noted) -> None:
    """Add a deed to an object's history. What cannot be referred to weakly has none."""
    known = _histories.get(id(thing))
    if known is None or known() is not thing:
        try:
            known = _History(thing, _forget)
        except TypeError:
            return
        known.number, known.first, known.rest, known.memory = id(thing), noted, None, 0
        _histories[id(thing)] = known
    elif known.rest is None:
        known.rest = [noted]
    else:
        known.rest.append(noted)
        if len(known.rest) >= _MOST:
            known.rest = _shortened([known.first, *known.rest])[1:]


def take_over(thing: object, other: object) -> None:
    """Let an object that takes another's place have the history of that one, and none of how it was made."""
    if (own := _histories.get(id(thing))) is not None:
        _forget(own)
    known = _histories.get(id(other))
    if known is not None and known() is other:
        for noted in (known.first, *(known.rest or ())):
            remember(thing, noted)


def forget_since(order: int, kinds: Collection[str]) -> None:
    """Forget all that was done to those things to which something of these kinds was done after ``order``."""
    for known in list(_histories.values()):
        if any(one[0] in kinds and one[4] > order for one in (known.first, *(known.rest or ()))):
            _forget(known)


def _shortened(several: list[Noted]) -> list[Noted]:
    first: dict[str, Noted] = {}
    for noted in several:
        first.setdefault(noted[0], noted)
    kept = set(map(id, (*first.values(), *several[-_LATEST:])))
    return [noted for noted in several if id(noted) in kept]


def lies_in(tensor: object, memory: int) -> None:
    """Say which memory a tensor lies in, by any number that stands for it; only of one that has a history."""
    known = _histories.get(id(tensor))
    if known is not None and known() is tensor:
        known.memory = memory
        _by_memory[memory] = id(tensor)


def is_placed_later(tensor: object) -> None:
    """Leave to :func:`unplaced` which memory a tensor lies in: to ask costs more than all else that is kept of it."""
    number = id(tensor)
    _unplaced.pop(number, None)
    _unplaced[number] = None


def unplaced() -> list[object]:
    """Those of which that was left open, first to last; each is handed out once."""
    several = [thing for number in _unplaced if (thing := living(number)) is not None]
    _unplaced.clear()
    return several


def found_in(memory: int) -> object | None:
    """The tensor that was last said to lie in some memory; None if there is none any more."""
    number = _by_memory.get(memory)
    return living(number) if number is not None else None


def living(number: int) -> object | None:
    """The object whose history is kept under an ``id``, None if it has gone."""
    known = _histories.get(number)
    return known() if known is not None else None
