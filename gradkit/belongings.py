"""What a step can reach: by closure, global names and attributes; through containers, objects, modules and hooks.

``owners`` asks which model a step trains, and looks no further than it must. Here everything counts that the step could
change. Of objects whose class is not the user's own, only those that hold tensors, modules, optimizers or random
generators are entered: a logger or a connection is more than what its attributes say.
"""

from __future__ import annotations

import functools
import gc
import random
import sys
import threading
from argparse import Namespace
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gradkit import frames, owners, strangers, undo

_PLAIN = frozenset({int, float, str, bool, type(None), bytes, complex, torch.dtype, torch.device, torch.Size})
_MANY = 256  # of a longer container, the entries are taken for data
_MOST = 50_000
_LIBRARY = (SimpleNamespace, Namespace, UserDict, UserList, GradScaler, nn.Module, Optimizer)
_HOLDING = (torch.Tensor, nn.Module, Optimizer, torch.Generator, random.Random)


def of(*roots: Any, through: bool = False) -> list[Any]:
    """Everything that can be reached, the roots included, nearest first; numbers and text left out.

    Args:
        through: also look into iterators: at what they are going to hand out, and at what a generator works with.

    Example:
        >>> seen = {"losses": []}
        >>> [type(one).__name__ for one in of(lambda: seen["losses"].append(1))]
        ['function', 'dict', 'list']
    """
    found: dict[int, Any] = {}
    waiting = deque(roots)
    while waiting and len(found) < _MOST:
        thing = waiting.popleft()
        if type(thing) not in _PLAIN and id(thing) not in found:
            found[id(thing)] = thing
            waiting.extend(_parts(thing, through, root=len(found) <= len(roots)))
    return list(found.values())


def is_kept(thing: Any) -> bool:
    """Whether a thing that was reached is one whose attributes are a matter of the step."""
    known = _is_kept(type(thing))
    if known is not None:
        return known
    return _holds(thing, 2)


def _holds(thing: Any, depth: int) -> bool:
    """A key-value cache holds layers, and these the tensors."""
    parts = [one for value in _attributes(thing) for one in owners.members(value)]
    if any(strangers.is_a(one, _HOLDING) for one in parts):
        return True
    return depth > 1 and any(_is_kept(type(one)) is None and _holds(one, depth - 1) for one in parts)


@owners.by_class
def _is_kept(kind: Any) -> bool | None:
    """By its class alone; None if that does not say."""
    if kind.__module__ == "builtins" or issubclass(kind, (torch.Tensor, threading.Thread, _BaseDataLoaderIter)):
        return False
    if issubclass(kind, _LIBRARY) or kind.__module__.startswith("torch.utils.data.") or owners.is_users(kind):
        return True
    return False if kind.__module__.partition(".")[0] in sys.stdlib_module_names else None


def is_iterator(thing: Any) -> bool:
    """Whether a thing is data under way: a generator, a DataLoader's iterator, or one of Python's own."""
    kind = type(thing)
    if issubclass(kind, (GeneratorType, _BaseDataLoaderIter)):
        return True
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


def _attributes(thing: Any) -> list[Any]:
    return [value for name, value in strangers.attributes(thing).items() if name not in _SLOTS]


def _parts(thing: Any, through: bool, root: bool) -> Iterable[Any]:
    way = _way(type(thing))
    if way is None and is_iterator(thing):
        return _behind(thing) if through else ()
    found = way(thing) if way is not None else ()
    if not is_kept(thing) and (way is not None or not root):
        return found
    kind = type(thing)
    slots = undo.slots_of(thing)
    return [*found, *_attributes(thing), *slots, *([kind] if owners.is_users(kind) else [])]


@owners.by_class
def _way(kind: Any) -> Callable[[Any], Iterable[Any]] | None:
    return next((parts for known, parts in _TABLE if issubclass(kind, known)), None)


def _function(thing: FunctionType) -> list[Any]:
    own = list(vars(thing).values())
    if not frames.is_user_file(thing.__code__.co_filename):
        return own
    used = owners.used(thing)
    modules = [one for one in used if type(one) is ModuleType and owners.is_users_module(one)]
    named = owners.names(thing.__code__) if modules else ()
    return [*used, *own, *(vars(one)[name] for one in modules for name in named if name in vars(one))]


def _class(thing: type) -> Iterable[Any]:
    return [*vars(thing).values(), *thing.__bases__] if owners.is_users(thing) else ()


def _mapping(thing: dict[Any, Any]) -> Iterable[Any]:
    return strangers.entries(thing) if strangers.size(thing) <= _MANY else ()


def _sequence(thing: Any) -> Iterable[Any]:
    return strangers.entries(thing) if strangers.size(thing) <= _MANY else ()


def _module(thing: nn.Module) -> Iterable[Any]:
    """However many there are."""
    own = vars(thing)
    tables = [own[name] for name in _SLOTS if own.get(name)]
    return [part for table in tables for part in table.values()]


def _tensor(thing: torch.Tensor) -> Iterable[Any]:
    hooks = (strangers.ask(thing, name) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))
    return [hook for table in hooks if table for hook in table.values()]


def _behind(thing: Any) -> Iterable[Any]:
    """What an iterator works with."""
    if isinstance(thing, GeneratorType):
        frame, names = thing.gi_frame, owners.names(thing.gi_code)
        if frame is None:
            return ()
        used = (value for name, value in frame.f_globals.items() if name in names)
        return [*frame.f_locals.values(), *used, *([thing.gi_yieldfrom] if thing.gi_yieldfrom else [])]
    return _attributes(thing) or gc.get_referents(thing)


_SLOTS = tuple(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))
_TABLE: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
    (torch.Tensor, _tensor),
    (dict, _mapping),
    ((list, tuple, set, frozenset, deque), _sequence),
    (nn.Module, _module),
    (FunctionType, _function),
    (MethodType, lambda thing: (thing.__self__, thing.__func__)),
    (BuiltinMethodType, lambda thing: (thing.__self__,)),
    (type, _class),
    ((staticmethod, classmethod, functools._lru_cache_wrapper), lambda thing: (thing.__wrapped__,)),  # noqa: SLF001
    (functools.partial, lambda thing: (thing.func, thing.args, thing.keywords)),
    (property, lambda thing: (thing.fget, thing.fset)),
    (Optimizer, lambda thing: thing.state.values()),
)
