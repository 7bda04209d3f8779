"""What a step can reach: by closure, global names and attributes; through containers, objects, modules and hooks.

``owners`` asks which model a step trains, and looks no further than it must. Here everything counts that the step could
change. Of objects whose class is not the user's own, only those that hold tensors, modules, optimizers or random
generators are entered: a logger or a connection is more than what its attributes say.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from argparse import Namespace
from collections import UserDict, UserList, deque
from collections.abc import Iterable
from types import FunctionType, GeneratorType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gradkit import frames, owners, registered, strangers

_PLAIN = frozenset({int, float, str, bool, type(None), bytes, complex, torch.dtype, torch.device, torch.Size})
MANY = 256
"""Of a longer container the entries are taken for data: it is put back itself, they are not looked into."""
_MOST = 50_000  # things that are remembered and put back at every run, one by one: half a second for so many
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
    parts = [one for value in strangers.attributes(thing).values() for one in owners.members(value)]
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


def _parts(thing: Any, through: bool, root: bool) -> Iterable[Any]:
    unknown = owners.row(type(thing)) is None
    if unknown and is_iterator(thing):
        return _ahead(thing) if through else ()
    found = _contents(thing) if strangers.size(thing) <= MANY else []
    if is_kept(thing) or strangers.is_a(thing, FunctionType) or (unknown and root):
        found += _own(thing)
    return found


def _contents(thing: Any) -> list[Any]:
    """What a thing holds by its type, as far as it is the step's."""
    if strangers.is_a(thing, FunctionType):
        return _of_function(thing)
    if strangers.is_a(thing, ModuleType):
        return []  # all that a file names: see ``_of_function``
    # of what functools keeps it can only be told whether there is any
    return [value for kind, _, _, value in owners.contents(thing) if kind != owners.MEMO]


def _of_function(function: FunctionType) -> list[Any]:
    """What it works with, the names of a module of the user's that it uses among them; of a library's function nothing.

    A library's names and closures are more than the step could change.
    """
    code = function.__code__
    if not frames.is_user_file(code.co_filename):
        return []
    used = [value for *_, value in owners.contents(function)]
    modules = [vars(one) for one in used if type(one) is ModuleType and owners.is_users_module(one)]
    named = owners.names(code) if modules else ()
    return [*used, *(space[name] for space in modules for name in named if name in space)]


def _own(thing: Any) -> list[Any]:
    """Attributes and class. The tables of a module are put back with it, however long: what is in them is reached."""
    found: list[Any] = []
    for _, name, holder, value in owners.own(thing):
        is_table = name in registered.TABLES and strangers.is_a(holder, nn.Module)
        found += strangers.values(value) if is_table else [value]
    return found


def _ahead(thing: Any) -> Iterable[Any]:
    """What an iterator works with."""
    if isinstance(thing, GeneratorType):
        frame, names = thing.gi_frame, owners.names(thing.gi_code)
        if frame is None:
            return ()
        used = (value for name, value in frame.f_globals.items() if name in names)
        return [*frame.f_locals.values(), *used, *([thing.gi_yieldfrom] if thing.gi_yieldfrom else [])]
    return list(strangers.attributes(thing).values()) or gc.get_referents(thing)
