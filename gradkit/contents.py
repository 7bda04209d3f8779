"""What a dictionary, list, set or deque holds, put back. Compared by identity: tensors cannot be compared by ``==``.

A subclass is filled by the methods of Python's own class: what it overrides may count or check.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

_GONE: Any = object()
Back = Callable[[], None]


def restore(now: dict[Any, Any], kept: dict[Any, Any]) -> None:
    """Make a dictionary what it was, entry by entry, so that no moment is without what did not change.

    Example:
        >>> now = {"a": 2, "b": 1}
        >>> restore(now, {"a": 1}); now
        {'a': 1}
    """
    if same(list(now), list(kept)) and same(list(now.values()), list(kept.values())):
        return
    for name in [name for name in now if name not in kept]:
        del now[name]
    for name, value in kept.items():
        if now.get(name, _GONE) is not value:
            now[name] = value


def mapping(thing: Any) -> Back:
    """A function that gives a dictionary its entries again, in their order."""
    kind: Any = OrderedDict if isinstance(thing, OrderedDict) else dict  # what a subclass overrides is not asked
    keys, values = list(kind.keys(thing)), list(kind.values(thing))

    def back() -> None:
        if same(list(kind.keys(thing)), keys) and same(list(kind.values(thing)), values):
            return
        kind.clear(thing)
        for key, value in zip(keys, values, strict=True):
            kind.__setitem__(thing, key, value)

    return back


def of_list(thing: list[Any]) -> Back:
    """A function that gives a list its entries again."""
    entries = list(list.__iter__(thing))

    def back() -> None:
        if not same(thing if type(thing) is list else list(list.__iter__(thing)), entries):
            list.__setitem__(thing, slice(None), entries)

    return back


def of_deque(thing: deque[Any]) -> Back:
    """A function that gives a deque its entries again."""
    entries = list(deque.__iter__(thing))

    def back() -> None:
        if not same(list(deque.__iter__(thing)), entries):
            deque.clear(thing)
            deque.extend(thing, entries)

    return back


def of_set(thing: set[Any]) -> Back:
    """A function that gives a set its entries again."""
    entries = set(set.__iter__(thing))

    def back() -> None:
        if not set.__eq__(thing, entries):
            set.clear(thing)
            set.update(thing, entries)

    return back


def same(now: Any, before: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(now) == len(before) and all(map(operator.is_, now, before))
