"""Numbers and arrays that remember which tensor they came from.

``item()``, ``tolist()`` and ``numpy()`` leave torch, and with it all that torch can tell. During a traced run they hand
out these subclasses of ``float``, ``numpy.float32``, ``numpy.float64`` and ``numpy.ndarray``, which compute like their
bases and pass their ``origins`` on, until a torch function takes them in again.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from gradkit.core import patches
from gradkit.source.faults import on_behalf

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_UNARY = ("neg", "pos", "abs")


def origins(value: object) -> tuple[int, ...]:
    """The numbers of the tensors that ``value`` was computed from; ``()`` for anything else.

    Example:
        >>> origins(2.0 * follow(1.5, (7,)) + 1), origins(3.0)
        ((7,), ())
    """
    return getattr(value, "gradkit_origins", ()) if isinstance(value, _KINDS) else ()


class Float(float):
    """A Python float with origins."""

    gradkit_origins: tuple[int, ...] = ()

    def __reduce__(self) -> Any:
        """Copied and saved, it is a plain number again."""
        return float, (float(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        """As ``copy.deepcopy`` asks for it: a plain number."""
        return float(self)

    def __copy__(self) -> Any:
        """A plain number."""
        return float(self)


class Float32(np.float32):
    """A NumPy float32 with origins."""

    gradkit_origins: tuple[int, ...] = ()

    def __reduce__(self) -> Any:
        """Copied and saved, it is a plain number again."""
        return np.float32, (float(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        """As ``copy.deepcopy`` asks for it: a plain number."""
        return np.float32(float(self))

    def __copy__(self) -> Any:
        """A plain number."""
        return np.float32(float(self))


class Float64(np.float64):
    """A NumPy float64 with origins."""

    gradkit_origins: tuple[int, ...] = ()

    def __reduce__(self) -> Any:
        """Copied and saved, it is a plain number again."""
        return np.float64, (float(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        """As ``copy.deepcopy`` asks for it: a plain number."""
        return np.float64(float(self))

    def __copy__(self) -> Any:
        """A plain number."""
        return np.float64(float(self))


class Array(np.ndarray):
    """A NumPy array with origins, which every view of it and everything computed from it inherits."""

    gradkit_origins: tuple[int, ...] = ()

    def __array_finalize__(self, parent: Any) -> None:
        self.gradkit_origins = getattr(parent, "gradkit_origins", ())
        if self.gradkit_origins:
            _arrays[id(self)] = self

    @on_behalf
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        found = _merged(*inputs)
        plain = tuple(x.view(np.ndarray) if isinstance(x, Array) else x for x in inputs)
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, Array) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        if out is not None:
            for target in out:
                if isinstance(target, Array):
                    target.gradkit_origins = _merged(target, *inputs)
            return out[0] if len(out) == 1 else out
        whole = _are_whole(inputs)
        if isinstance(result, tuple):
            return tuple(follow(r, found, whole=whole) for r in result)
        return follow(result, found, whole=whole)

    @on_behalf
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        given = (*_leaves(args), *_leaves(kwargs.values()))
        found, whole = _merged(*given), _are_whole(given)
        if type(result) in (tuple, list):
            return type(result)(follow(r, found, whole=whole) for r in result)
        return follow(result, found, whole=whole)

    @on_behalf
    def __getitem__(self, key: Any) -> Any:
        return follow(super().__getitem__(key), self.gradkit_origins)

    @on_behalf
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.gradkit_origins = _merged(self, value)

    @on_behalf
    def item(self, *args: Any) -> Any:
        """As NumPy's, with origins."""
        return follow(super().item(*args), self.gradkit_origins)

    @on_behalf
    def tolist(self) -> Any:
        """As NumPy's, with origins."""
        return follow(super().tolist(), self.gradkit_origins)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


_KINDS = (Float, Float32, Float64, Array)
_arrays: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
_kept: list[Array] = []
_values: dict[float, tuple[int, ...]] = {}
_lists: dict[tuple[float, ...], tuple[int, ...]] = {}
MOST_VALUES, MOST_ORIGINS = 1000, 64
_FEW = 4
_MAKERS = ("array", "asarray", "ascontiguousarray", "asfortranarray")
_FUNCTIONS = tuple(name for name, function in vars(math).items() if callable(function) and not name.startswith("_"))


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """While a run lasts, keep every array that left torch, and note the numbers that did, to know them again.

    NumPy's functions that make a plain array of any other hand out one with origins meanwhile, and those of the module
    ``math`` a number with origins.
    """
    before = [(vars(np), {name: getattr(np, name) for name in _MAKERS}, _with_origins)]
    before += [(vars(math), {name: getattr(math, name) for name in _FUNCTIONS}, _of_numbers)]
    with patches.undone():
        patches.later(_forget)
        for names, functions, wrap in before:
            patches.later(partial(names.update, functions))
            names.update({name: wrap(function) for name, function in functions.items()})
        yield


def _forget() -> None:
    _kept.clear()
    _values.clear()
    _lists.clear()
    _arrays.clear()  # one that the step has kept bears numbers of this run only


@functools.lru_cache(maxsize=16)
def _with_origins(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    @on_behalf
    def made(*args: Any, **kwargs: Any) -> Any:
        given = tuple(_leaves(args[:1]))
        return follow(function(*args, **kwargs), _merged(*given), whole=_are_whole(given))

    return made


@functools.lru_cache(maxsize=128)
def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``math``: it would take a tensor's bare number, and hand out another."""

    @functools.wraps(function)
    @on_behalf
    def made(*args: Any, **kwargs: Any) -> Any:
        numbers = [x.item() if isinstance(x, torch.Tensor) and x.numel() == 1 else x for x in args]
        found = _merged(*_leaves(numbers))
        result = function(*numbers, **kwargs)
        return follow(result, found) if found and type(result) is float else result

    return made


def note(values: Any, source: tuple[int, ...]) -> None:
    """Note numbers that left torch. Plain ones (0.25, 3.0) turn up everywhere: of these a whole list is noted only."""
    numbers = _numbers(values)
    if isinstance(values, list) and len(numbers) >= _FEW:
        _lists[tuple(numbers)] = source
    for value in numbers:
        if (value * 1000.0) % 1.0:
            _values[value] = source


def origins_of_values(values: Any) -> tuple[int, ...]:
    """The origins of the noted numbers that turn up in ``values`` (a list, an array, a number)."""
    if not _values and not _lists:
        return ()
    numbers = _numbers(values)
    whole = _lists.get(tuple(numbers), ())
    return whole or tuple(sorted({number for value in numbers for number in _values.get(value, ())}))


def _numbers(values: Any) -> list[float]:
    if isinstance(values, float):
        return [float(values)] if math.isfinite(values) else []
    few = values.flat[:MOST_VALUES] if isinstance(values, np.ndarray) else values
    few = few[:MOST_VALUES] if isinstance(few, (list, tuple)) else few
    try:
        flat = np.asarray(few, dtype=np.float64).ravel()[:MOST_VALUES]
    except (TypeError, ValueError):
        return []
    return [x for x in flat.tolist() if math.isfinite(x)]


def follow(value: Any, source: tuple[int, ...], *, whole: bool = False) -> Any:
    """``value`` with origins, where its type allows it: floats, float arrays, lists of such; anything else as it is.

    Args:
        whole: also an array of whole numbers: one that was computed from such, as of rounded pixels, and is no index.
    """
    if not source:
        return value
    kind = type(value)
    if kind in (float, Float):
        made: Any = Float(value)
    elif kind in (np.float32, Float32):
        made = Float32(value)
    elif kind in (np.float64, Float64):
        made = Float64(value)
    elif kind is list:
        return [follow(x, source, whole=whole) for x in value]
    elif isinstance(value, np.ndarray) and value.dtype.kind in ("fciu" if whole else "fc"):
        made = value.view(Array)
        _arrays[id(made)] = made
        _kept.append(made)
    else:
        return value
    made.gradkit_origins = source
    return made


def origins_of_memory(address: int) -> tuple[int, ...]:
    """The origins of the array that holds this address: for ``torch.from_numpy``, which no function mode sees."""
    for array in list(_arrays.values()):
        start = array.__array_interface__["data"][0]
        if start <= address < start + max(array.nbytes, 1):
            return array.gradkit_origins
    return ()


def _leaves(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def _are_whole(values: Iterable[object]) -> bool:
    """Whether all of these arrays that have origins hold whole numbers."""
    arrays = [value for value in values if isinstance(value, Array) and value.gradkit_origins]
    return bool(arrays) and all(one.dtype.kind in "iu" for one in arrays)


def _merged(*values: object) -> tuple[int, ...]:
    return tuple(sorted({number for value in values for number in origins(value)})[-MOST_ORIGINS:])


def _install(kind: type, name: str, function: Callable[..., Any]) -> None:
    def method(self: Any, *others: Any, **options: Any) -> Any:
        if others and isinstance(others[0], Array) and kind is not Array:
            return NotImplemented
        result = function(self, *others, **options)
        return result if result is NotImplemented else follow(result, _merged(self, *others))

    method.__name__ = name
    setattr(kind, name, method)


for _kind in (Float, Float32, Float64):
    _base = _kind.__mro__[1]
    _install(_kind, "__round__", getattr(_base, "__round__"))  # noqa: B009  NumPy's stubs do not know it
    for _name in [*(f"__{n}__" for n in _BINARY + _UNARY), *(f"__r{n}__" for n in _BINARY)]:
        _install(_kind, _name, getattr(_base, _name))
for _name in ("mean", "sum", "min", "max", "prod", "std", "var", "dot", "round"):
    _install(Array, _name, getattr(np.ndarray, _name))


def any_left() -> bool:
    """Whether anything with origins left torch so far."""
    return bool(_arrays or _values or _lists)
