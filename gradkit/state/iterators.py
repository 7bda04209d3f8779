"""Data that was begun before the step: every run gets the same, whatever it takes with ``next()``.

An iterator that can be copied is never touched: each run works with a copy, put in its place. What a DataLoader or a
generator hands out is kept while the diagnosis lasts, and handed out again in the next run. A DataLoader's iterator
hands it out once more afterwards; a generator can take nothing back: it has moved on by what one run took.

A generator that runs a module is left alone, or its part of the run would be missing in the next.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FunctionType, GeneratorType
from typing import Any

import torch
from torch import nn, overrides
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gradkit.core import introspection
from gradkit.source.faults import on_behalf
from gradkit.state import holders, process, reachable, registered
from gradkit.state.holders import Edge

_SWITCHES = frozenset(("no_grad", "enable_grad", "set_grad_enabled", "inference_mode"))


class ReplayedIterators:
    """The iterators among what a step can reach.

    Args:
        reached: all that it can reach.
        keep: told of everything that is handed out, to put it back as it came.

    Example:
        >>> data = (n for n in range(9))
        >>> step = lambda: next(data) + next(data)
        >>> tapes = ReplayedIterators(reachable.everything_reachable(step), lambda one: None)
        >>> tapes.start(); first = step()
        >>> tapes.start(); first, step()
        (1, 1)
    """

    def __init__(self, reached: Iterable[Any], keep: Callable[[Any], object]) -> None:
        reached = list(reached)
        self._loaders: dict[int, ReplayedIterator] = {}
        self._stands: dict[int, Callable[[], Any]] = {}
        self._taped: list[ReplayedIterator] = []
        self._keep = keep
        for one in reached:
            if reachable.is_iterator(one):
                self._enter(one)
        self._places: list[tuple[int, Callable[[Any], None]]] = []
        if self._stands:
            found = ((id(value), put) for one in reached for value, put in _places(one))
            self._places = [(key, put) for key, put in found if key in self._stands]

    def _enter(self, one: Any) -> None:
        if self._twin(one) is not None:
            if not introspection.is_a(one, _BaseDataLoaderIter):
                self._stands[id(one)] = lambda: self._twin(one)
        elif not _runs_a_module(one):
            tape = ReplayedIterator(one.__next__, one, self._keep)
            self._taped.append(tape)
            self._stands[id(one)] = lambda: tape

    def start(self) -> None:
        """Before a run: put copies and tapes in place. They are gone once all that the step reaches is put back."""
        for tape in (*self._taped, *self._loaders.values()):
            tape.at = 0
        stands = {key: make() for key, make in self._stands.items()}
        for key, put in self._places:
            put(stands[key])
        for tape in self._loaders.values():
            vars(tape.source).update(_next_data=tape.__next__, _num_yielded=tape.yielded)

    def handed_out(self) -> list[Any]:
        """What DataLoaders and generators have handed out so far."""
        return [item for tape in (*self._taped, *self._loaders.values()) for item in tape.items]

    def end(self) -> None:
        """After the last run: what a DataLoader has handed out, it is going to hand out again."""
        for tape in self._loaders.values():
            vars(tape.source).pop("_next_data", None)
            tape.source._num_yielded = tape.yielded  # noqa: SLF001
            if tape.items:
                _give_again(tape.source, tape.items)

    def _twin(self, iterator: Any) -> Any:
        """A copy that goes on from the same place, a DataLoader's iterator itself; None if there can be none."""
        if introspection.is_a(iterator, _BaseDataLoaderIter):
            if id(iterator) not in self._loaders and not _runs_a_module(iterator):
                self._loaders[id(iterator)] = ReplayedIterator(iterator._next_data, iterator, self._keep)  # noqa: SLF001
            return iterator if id(iterator) in self._loaders else None
        if introspection.is_a(iterator, GeneratorType):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make, args, *state = iterator.__reduce__()
            copy = make(*(self._part(x) for x in args))
            if state and state[0] is not None:
                copy.__setstate__(self._part(state[0], saved=True))
        except (TypeError, ValueError, _NoTwinError):
            return None
        return copy

    def _part(self, part: Any, saved: bool = False) -> Any:
        """What an iterator works with: other iterators copied too, data as it is."""
        if reachable.is_iterator(part):
            twin = self._twin(part)
            if twin is None:
                raise _NoTwinError
            return twin
        if (
            type(part) in (list, tuple)
            and len(part) <= reachable.MANY
            and (saved or any(map(reachable.is_iterator, part)))
        ):
            return type(part)(self._part(x, saved) for x in part)
        return part


class _NoTwinError(Exception):
    """An iterator works with another that cannot be copied."""


class ReplayedIterator:
    """Stands in for an iterator: hands out what it gave before, from the beginning, then what it gives next."""

    def __init__(self, following: Callable[[], Any], source: Any, keep: Callable[[Any], object]) -> None:
        self.source, self.items, self.at = source, [], 0
        self.yielded = getattr(source, "_num_yielded", 0)
        self._following, self._keep = following, keep

    items: list[Any]

    def __iter__(self) -> ReplayedIterator:
        return self

    @on_behalf
    def __next__(self) -> Any:
        if self.at == len(self.items):
            self.items.append(self._drawn())
        self.at += 1
        return self.items[self.at - 1]

    @on_behalf
    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @on_behalf
    def _drawn(self) -> Any:
        """Unheard, and with the process's random generators left where they are: as it will be in the next run."""
        back = process.random_draws()
        try:
            with _unheard():
                item = self._following()
        finally:
            back()
        self._keep(item)
        return item


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Without our own function modes, but with those of others."""
    count = torch._C._len_torch_function_stack()  # noqa: SLF001
    modes = [overrides._pop_mode() for _ in range(count)][::-1]  # type: ignore[no-untyped-call]  # noqa: SLF001
    others = [mode for mode in modes if not type(mode).__module__.startswith("gradkit.")]
    _push(others)
    try:
        yield
    finally:
        for _ in others:
            overrides._pop_mode()  # type: ignore[no-untyped-call]  # noqa: SLF001
        _push(modes)


def _push(modes: list[Any]) -> None:
    for mode in modes:
        overrides._push_mode(mode)  # type: ignore[no-untyped-call]  # noqa: SLF001


def _runs_a_module(one: Any) -> bool:
    """Whether what an iterator hands out may be of use to a backward, or whether it switches grad mode."""
    for thing in reachable.everything_reachable(one, through=True):
        if introspection.is_a(thing, nn.Module) and registered.parameters(thing):
            return True
        if introspection.is_a(thing, torch.Tensor) and thing.requires_grad:
            return True
        if introspection.is_a(thing, GeneratorType) and _SWITCHES & reachable.names_in(thing.gi_code):
            return True
    return False


def _places(holder: Any) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """What is held in a place where another can be put, and how to put it there."""
    found = [*reachable.contents(holder)] if introspection.size(holder) <= reachable.MANY else []
    if reachable.is_kept(holder) or introspection.is_a(holder, FunctionType):
        found += reachable.own(holder)
    yield from (
        (value, partial(holders.put, Edge(kind, key, inner)))
        for kind, key, inner, value in found
        if kind not in (reachable.PART, reachable.MEMO)
    )


def _give_again(loader: Any, items: Iterable[Any]) -> None:
    """Let a DataLoader's iterator hand out some items before it goes on; a new epoch does without them."""
    waiting, own = deque(items), vars(loader)

    def following() -> Any:
        item = waiting.popleft()
        if not waiting:
            del own["_next_data"], own["_reset"]
        return item

    def reset(*args: Any, **kwargs: Any) -> None:
        del own["_next_data"], own["_reset"]
        loader._reset(*args, **kwargs)  # noqa: SLF001

    own.update(_next_data=following, _reset=reset)
