"""Objects of anybody's, looked at without being asked: what their classes override may count, check, raise or lie.

A tuple may refuse ``len()`` (the irreducible representations of e3nn do), a dictionary may load what it is asked for,
an object may claim to be of another class. What Python itself keeps of them can be read all the same.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, TypeVar, overload

import torch

_ROWS: tuple[Any, ...] = (list, tuple, deque, set, frozenset)

Kind = TypeVar("Kind")


@overload
def is_a(thing: object, kinds: type[Kind]) -> TypeGuard[Kind]: ...


@overload
def is_a(thing: object, kinds: tuple[type[Any], ...]) -> TypeGuard[Any]: ...


def is_a(thing: object, kinds: Any) -> bool:
    """``isinstance``, of the class that an object has and not of the one that it claims to have.

    Example:
        >>> class Claims:
        ...     __class__ = property(lambda self: list)
        >>> isinstance(Claims(), list), is_a(Claims(), list)
        (True, False)
    """
    return issubclass(type(thing), kinds)


def is_mapping(thing: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether an object is of a class of mappings."""
    return issubclass(type(thing), (dict, Mapping))  # the first is cheaper to ask


def entries(thing: Any) -> list[Any]:
    """What a list, tuple, deque or set holds, or the values of a dictionary; ``[]`` of anything else.

    Example:
        >>> class Silent(tuple):
        ...     def __iter__(self): raise NotImplementedError
        ...     def __len__(self): raise NotImplementedError
        >>> entries(Silent("ab")), entries({"a": 1}), entries(3)
        (['a', 'b'], [1], [])
    """
    kind = type(thing)
    if issubclass(kind, dict):
        return list(_of_dict(kind).values(thing))
    base = next((one for one in _ROWS if issubclass(kind, one)), None)
    return list(base.__iter__(thing)) if base is not None else []


def size(thing: Any) -> int:
    """How many entries a list, tuple, deque, set or dictionary has; 0 of anything else."""
    kind = type(thing)
    if kind is dict or kind is list or kind is tuple:
        return len(thing)
    base = next((one for one in (dict, *_ROWS) if issubclass(kind, one)), None)
    return int(base.__len__(thing)) if base is not None else 0


def items(thing: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Keys and values of a dictionary."""
    return list(_of_dict(type(thing)).items(thing))


def values(thing: Mapping[Any, Any]) -> list[Any]:
    """The values of any mapping; ``[]`` of one that is no dictionary and does not tell."""
    if is_a(thing, dict):
        return entries(thing)
    try:
        return list(thing.values())
    except Exception:  # noqa: BLE001  it is the user's own, and may raise anything
        return []


def attributes(thing: Any) -> dict[str, Any]:
    """The dictionary of an object's own attributes, ``{}`` if it has none.

    Example:
        >>> class Odd:
        ...     def __getattribute__(self, name): raise RuntimeError(name)
        >>> odd = Odd(); object.__setattr__(odd, "a", 1); attributes(odd)
        {'a': 1}
    """
    try:
        found = object.__getattribute__(thing, "__dict__")
    except Exception:  # noqa: BLE001  a property of the user's own by that name may raise anything
        return {}
    return found if is_a(found, dict) else {}


def ask(thing: Any, name: str, otherwise: Any = None) -> Any:
    """An attribute, by all that a class does to answer; ``otherwise`` if that raises whatever it may.

    Example:
        >>> ask(3, "real"), ask(3, "missing", "-")
        (3, '-')
    """
    try:
        return getattr(thing, name, otherwise)
    except Exception:  # noqa: BLE001
        return otherwise


def text(thing: object) -> str:
    """``str``, and the name of the class where that raises.

    Example:
        >>> class Mute(Exception):
        ...     def __str__(self): raise ValueError
        >>> text(Mute()), text(ValueError("boom"))
        ('Mute', 'boom')
    """
    try:
        return str(thing)
    except Exception:  # noqa: BLE001
        return type(thing).__name__


def _of_dict(kind: Any) -> Any:
    return OrderedDict if issubclass(kind, OrderedDict) else dict


def one_line(value: object, depth: int = 4) -> str:
    """A value in one short line, for errors.

    Example:
        >>> one_line({"x": torch.zeros(2, 3)}), one_line((torch.tensor(1.5), None))
        ('{x: float32 [2, 3]}', '(float32 [], None)')
    """
    if is_a(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if is_mapping(value) and depth:
        inside = ", ".join(f"{text(key)[:60]}: {one_line(one, depth - 1)}" for key, one in mapping_items(value)[:12])
        return f"{'' if type(value) is dict else type(value).__name__}{{{inside}}}"
    held = entries(value) if depth and is_a(value, (list, tuple)) else []
    if any(is_a(one, (torch.Tensor, Mapping)) for one in held):
        inside = ", ".join(one_line(one, depth - 1) for one in held[:12])
        return f"[{inside}]" if is_a(value, list) else f"({inside})"
    if is_a(value, (bool, int, float, str)):
        return f"{type(value).__name__} {text(value)[:60]}"
    return "None" if value is None else type(value).__name__


def mapping_items(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of any mapping; ``[]`` of one that does not tell."""
    if is_a(value, dict):
        return items(value)
    try:
        return list(value.items())
    except Exception:  # noqa: BLE001  a mapping of the user's own may raise anything
        return []


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that does not keep its object alive: what goes at once is no work for Python's garbage collector.

    Example:
        >>> class Counter:
        ...     def add(self, one): return one + 1
        >>> counter = Counter()
        >>> weakly(counter.add)(1)
        2
    """
    held: Any = weakref.WeakMethod(method)

    def call(*given: Any) -> Any:
        return held()(*given)

    return call
