"""What a function uses, what an object holds, and everything that a step can reach and so could change.

The models, optimizers and files that a function uses (``modules_of``, ``optimizers_of``, ``files_of``) are looked for
no further than needed. ``children`` lists what one object holds, by a table from its type. ``everything_reachable``
follows closures, global names, attributes, containers, modules and hooks to the end. Of objects whose class is not the
user's own, it enters only those that hold tensors, modules, optimizers or random generators: a logger or a connection
is more than what its attributes say.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import sys
import threading
import weakref
from argparse import Namespace
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, TypeVar

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.source import frames
from gradkit.source.frames import is_user_file
from gradkit.state import registered

Answer = TypeVar("Answer")
Child = tuple[str, Any, Any, Any]
"""One thing that is held: kind, key, holder, value; :class:`gradkit.state.holders.Edge` says what they mean."""
ATTRIBUTE, ITEM, ELEMENT, VARIABLE, GLOBAL, MEMO, PART = (
    "attribute", "item", "element", "variable", "global", "memo", "part",
)  # fmt: skip
GONE: Any = object()
"""What is said of a slot that is not filled."""
Memo: Any = type(functools.lru_cache(len))
PIECE = "gradkit_piece"
"""The attribute that marks a function which was made of some statements of a running one."""
_FEW = 64  # a longer container is taken for data: what a step is made of is named one by one
_BARE = (dict, list, tuple, set, frozenset, deque)


def by_class(ask: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """A question about a class that is answered once, and then remembered for as long as the class lives.

    The answer must not hold the class: what it is remembered with would never die.

    Example:
        >>> name = by_class(lambda kind: kind.__name__)
        >>> name(int), name(int)
        ('int', 'int')
    """
    known: dict[int, tuple[weakref.ref[Any], Answer]] = {}  # by identity: a metaclass may say what equals what

    @functools.wraps(ask)
    def answer(kind: Any) -> Answer:
        key = id(kind)
        found = known.get(key)
        if found is None:
            found = known[key] = weakref.ref(kind, lambda _: known.pop(key, None)), ask(kind)
        return found[1]

    return answer


def model_of(step: object, name: str) -> nn.Module:
    """The model that a step trains: ``step.model``, else the one module that it uses and that holds all others.

    Of a step that uses none, but a tensor that was computed before, it is the global that the tensor's graph leads to.

    Args:
        step: any callable.
        name: what to call it in errors.

    Raises:
        GradkitError: it uses no module, or several.

    Example:
        >>> net = nn.Linear(3, 1)
        >>> model_of(lambda: net.weight.sum(), "step") is net
        True
    """
    said = introspection.ask(step, "model")
    if introspection.is_a(said, nn.Module):
        return said
    found = modules_of(step) or registered.behind(_tensors_used(step), introspection.ask(step, "__globals__", {}))
    if not found:
        raise GradkitError("no_model_in_step", name=name)
    if len(found) > 1:
        raise GradkitError("many_models", name=name, models=", ".join(type(one).__name__ for one in found))
    return found[0]


def modules_of(step: object) -> tuple[nn.Module, ...]:
    """The outermost modules that a callable uses; those without parameters (a loss) only if there are no others."""
    outer = registered.outermost(one for one in _things_used(step, set()) if introspection.is_a(one, nn.Module))
    return tuple([one for one in outer if registered.parameters(one)] or outer)


def _tensors_used(step: object) -> list[torch.Tensor]:
    held = (one for thing in _things_used(step, set()) for one in _members(thing, _named(thing)))
    return [one for one in held if introspection.is_a(one, torch.Tensor)]


def optimizers_of(step: object, model: nn.Module) -> tuple[Optimizer, ...]:
    """The optimizers that a step or a model can reach: by closure, by global names, as attributes, in lists.

    Example:
        >>> from torch.optim import Adam
        >>> net = nn.Linear(3, 1)
        >>> net.optimizer = Adam(net.parameters(), lr=0.1)
        >>> optimizers_of(lambda: net.weight.sum(), net) == (net.optimizer,)
        True
    """
    found: dict[int, Optimizer] = {}
    things = [*_things_used(introspection.ask(step, "step", step), set()), *registered.each(model)]
    for thing in things:
        for one in _members(thing, children(thing)):
            if type(one) in _PLAIN:
                continue
            held = one if introspection.is_a(one, Optimizer) else introspection.attributes(one).get("optimizer")
            if introspection.is_a(held, Optimizer):
                found.setdefault(id(held), held)
    return tuple(found.values())


def files_of(*things: object) -> tuple[str, ...]:
    """The user's own source files among those of some functions, all that they call by name, and modules."""
    files: dict[str, None] = {}
    for thing in things:
        for one in _things_used(thing, set()):
            functions = (
                [getattr(type(part), "forward", None) for part in registered.each(one)]
                if introspection.is_a(one, nn.Module)
                else [one]
            )
            for function in functions:
                code = introspection.ask(function, "__code__")
                if introspection.is_a(code, CodeType) and is_user_file(code.co_filename):
                    files.setdefault(code.co_filename)
    return tuple(files)


def _things_used(thing: Any, seen: set[int]) -> Iterator[Any]:
    """A callable, and whatever it reaches without being called: modules and further functions of the user's."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    if introspection.is_a(thing, nn.Module):
        return
    for one in _members(thing, _named(thing)):
        # of objects (a trainer) only those that a function names: theirs in turn would lead anywhere
        if _leads_on(one) or (introspection.is_a(thing, (MethodType, FunctionType)) and _is_plain_object(one)):
            yield from _things_used(one, seen)


def _named(thing: Any) -> Iterable[Child]:
    """Of functions what they work with; of objects and classes their attributes.

    Not the class of an object: its methods, and those of its bases, name more than a step uses.
    """
    if introspection.is_a(thing, (FunctionType, MethodType, functools.partial)):
        return contents(thing)
    return (child for child in children(thing) if child[0] == ATTRIBUTE)


def _members(thing: Any, found: Iterable[Child]) -> Iterator[Any]:
    """What is held, small containers opened; of a partial those that are bound, as those that a function names."""
    bound = introspection.is_a(thing, functools.partial)
    for *_, value in found:
        for one in members(value):
            yield from members(one) if bound else [one]


def _leads_on(value: Any) -> bool:
    if introspection.is_a(value, FunctionType):
        return is_user_file(value.__code__.co_filename)
    if introspection.is_a(value, type):
        return not issubclass(value, nn.Module) and is_users(value)
    return introspection.is_a(value, (nn.Module, functools.partial, MethodType))


def members(part: Any) -> list[Any]:
    """What a small container holds; anything else by itself."""
    if type(part) in _PLAIN:
        return [part]
    is_mapping = introspection.is_mapping(part)
    if not (is_mapping or introspection.is_a(part, (list, tuple))) or introspection.size(part) > _FEW:
        return [part]
    held = introspection.values(part) if is_mapping else introspection.entries(part)
    return held if len(held) <= _FEW else [part]


def names_in(code: CodeType) -> set[str]:
    """The names in a function's code that could be globals, those of functions inside it too."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*(names_in(one) for one in inner))


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an object of a class of the user's, such as a trainer that holds the model."""
    kind = type(value)
    if kind.__module__ == "builtins" or introspection.is_a(value, (ModuleType, type)):
        return False
    return is_users(kind) or kind.__name__ in ("SimpleNamespace", "Namespace")


@by_class
def is_users(kind: Any) -> bool:
    """Whether a class is the user's own: by the module that it was written in, or by the functions in it.

    What runs as ``__main__`` is the user's, also where a profiler or a debugger started it.
    """
    if kind.__module__ == "__main__" or is_users_module(sys.modules.get(kind.__module__)):
        return True
    functions = (one for one in map(_behind, vars(kind).values()) if introspection.is_a(one, FunctionType))
    return any(is_user_file(one.__code__.co_filename) for one in functions)


def _behind(member: Any) -> Any:
    """The function behind a property or a decorated method."""
    if introspection.is_a(member, (staticmethod, classmethod)):
        return member.__func__
    if introspection.is_a(member, property):
        return member.fget
    return member.func if introspection.is_a(member, functools.cached_property) else member


def is_users_module(module: ModuleType | None) -> bool:
    """Whether a module is the user's own; what is typed into a notebook is."""
    file = getattr(module, "__file__", None)
    return is_user_file(file) if isinstance(file, str) else getattr(module, "__name__", "") == "__main__"


def children(thing: Any) -> Iterator[Child]:
    """All that a thing holds: what its type has, then its attributes. Nothing of the user's is called for it.

    Example:
        >>> [(kind, key) for kind, key, _, _ in children({"a": 1})], [kind for kind, *_ in children([1, 2])]
        ([('item', 'a')], ['element', 'element'])
    """
    yield from contents(thing)
    yield from own(thing)


def contents(thing: Any) -> Iterable[Child]:
    """What a thing holds because of its type: entries, variables, what a method belongs to."""
    found = row(type(thing))
    return found(thing) if found is not None else ()


@by_class
def row(kind: Any) -> Callable[[Any], Iterable[Child]] | None:
    """The row of the table for a class; None if there is none: its objects hold attributes alone."""
    return next((held for known, held in _TABLE if issubclass(kind, known)), None)


def own(thing: Any) -> Iterator[Child]:
    """The attributes of an object or a function, those in slots, and the class of an object of the user's."""
    kind = type(thing)
    if kind in _BARE or issubclass(kind, ModuleType):
        return
    yield from ((ATTRIBUTE, name, thing, value) for name, value in list(introspection.attributes(thing).items()))
    for member in slots(kind):
        value = slot(member, thing)
        if value is not GONE:
            yield ATTRIBUTE, member.__name__, thing, value
    if is_users(kind):
        yield PART, "", thing, kind


def slots(kind: Any) -> list[MemberDescriptorType]:
    """The slots of the objects of a class that is the user's own, or that has one of theirs among its bases."""
    if not _has_slots(kind):
        return []
    slotted = (base for base in kind.__mro__ if "__slots__" in vars(base))
    return [one for base in slotted for one in vars(base).values() if introspection.is_a(one, MemberDescriptorType)]


@by_class
def _has_slots(kind: Any) -> bool:
    if kind.__module__ == "builtins":
        return False
    return any("__slots__" in vars(base) for base in kind.__mro__) and any(map(is_users, kind.__mro__))


def slot(member: MemberDescriptorType, thing: Any) -> Any:
    """What a slot of an object holds; ``GONE`` if it is not filled."""
    try:
        return member.__get__(thing)
    except AttributeError:
        return GONE


def _of_function(function: FunctionType) -> Iterator[Child]:
    """What it works with before it is given anything: closure, defaults, the globals that its code names."""
    code, scope = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            yield VARIABLE, name, cell, cell.cell_contents
    given = reversed(code.co_varnames[: code.co_argcount])
    for name, value in zip(given, reversed(function.__defaults__ or ()), strict=False):
        yield PART, name, function, value
    yield from ((PART, name, function, value) for name, value in (function.__kwdefaults__ or {}).items())
    named = names_in(code)
    yield from [(GLOBAL, name, scope, value) for name, value in scope.items() if name in named]


def _of_class(cls: type) -> Iterator[Child]:
    if is_users(cls):
        yield from ((ATTRIBUTE, name, cls, value) for name, value in type.__getattribute__(cls, "__dict__").items())
        yield from _named_parts(cls, *type.__getattribute__(cls, "__bases__"))


def _of_module(module: ModuleType) -> Iterator[Child]:
    space = vars(module)
    if is_users_module(module):
        yield from [(GLOBAL, name, space, value) for name, value in space.items()]


def _of_memo(memo: Any) -> Iterator[Child]:
    """The function, and what was kept of its results: ``functools`` tells of these to the garbage collector alone."""
    function = introspection.ask(memo, "__wrapped__")
    yield PART, "", memo, function
    for one in gc.get_referents(memo):
        if one is not function and one is not introspection.attributes(memo):
            kept = introspection.entries(one) if introspection.is_a(one, dict) else [one]
            yield from ((MEMO, "", memo, value) for value in kept)


def _of_tensor(tensor: torch.Tensor) -> Iterator[Child]:
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        yield from _named_parts(tensor, *(introspection.ask(tensor, name) or {}).values())


def _named_parts(thing: Any, *held: Any) -> list[Child]:
    return [(PART, "", thing, one) for one in held]


def _entries(kind: str) -> Callable[[Any], list[Child]]:
    return lambda thing: [(kind, at, thing, value) for at, value in enumerate(introspection.entries(thing))]


_TABLE: tuple[tuple[Any, Callable[[Any], Iterable[Child]]], ...] = (
    (torch.Tensor, _of_tensor),
    (dict, lambda thing: [(ITEM, key, thing, value) for key, value in introspection.items(thing)]),
    ((list, deque), _entries(ELEMENT)),
    ((tuple, set, frozenset), _entries(PART)),
    (FunctionType, _of_function),
    (MethodType, lambda thing: _named_parts(thing, thing.__self__, thing.__func__)),
    (BuiltinMethodType, lambda thing: _named_parts(thing, thing.__self__)),
    (type, _of_class),
    (ModuleType, _of_module),
    (Memo, _of_memo),
    ((staticmethod, classmethod), lambda thing: _named_parts(thing, thing.__func__)),
    (property, lambda thing: _named_parts(thing, thing.fget, thing.fset, thing.fdel)),
    (functools.cached_property, lambda thing: _named_parts(thing, thing.func)),
    (
        (functools.partial, functools.partialmethod),
        lambda thing: _named_parts(thing, thing.func, thing.args, thing.keywords),
    ),
    (Optimizer, lambda thing: _named_parts(thing, *thing.state.values())),
)

_PLAIN = frozenset({int, float, str, bool, type(None), bytes, complex, torch.dtype, torch.device, torch.Size})
MANY = 256
"""Of a longer container the entries are taken for data: it is put back itself, they are not looked into."""
_MOST = 50_000  # things that are remembered and put back at every run, one by one: half a second for so many
_LIBRARY = (SimpleNamespace, Namespace, UserDict, UserList, GradScaler, nn.Module, Optimizer)
_HOLDING = (torch.Tensor, nn.Module, Optimizer, torch.Generator, random.Random)


def everything_reachable(*roots: Any, through: bool = False) -> list[Any]:
    """Everything that can be reached, the roots included, nearest first; numbers and text left out.

    Args:
        through: also look into iterators: at what they are going to hand out, and at what a generator works with.

    Example:
        >>> seen = {"losses": []}
        >>> [type(one).__name__ for one in everything_reachable(lambda: seen["losses"].append(1))]
        ['function', 'dict', 'list']
    """
    found: dict[int, Any] = {}
    waiting = deque(roots)
    while waiting and len(found) < _MOST:
        thing = waiting.popleft()
        if type(thing) not in _PLAIN and id(thing) not in found:
            found[id(thing)] = thing
            waiting.extend(_parts_of(thing, through, root=len(found) <= len(roots)))
    return list(found.values())


def is_kept(thing: Any) -> bool:
    """Whether a thing that was reached is one whose attributes are a matter of the step."""
    known = _is_kept(type(thing))
    if known is not None:
        return known
    return _holds(thing, 2)


def _holds(thing: Any, depth: int) -> bool:
    """A key-value cache holds layers, and these the tensors."""
    parts = [one for value in introspection.attributes(thing).values() for one in members(value)]
    if any(introspection.is_a(one, _HOLDING) for one in parts):
        return True
    return depth > 1 and any(_is_kept(type(one)) is None and _holds(one, depth - 1) for one in parts)


@by_class
def _is_kept(kind: Any) -> bool | None:
    """By its class alone; None if that does not say."""
    if kind.__module__ == "builtins" or issubclass(kind, (torch.Tensor, threading.Thread, _BaseDataLoaderIter)):
        return False
    if issubclass(kind, _LIBRARY) or kind.__module__.startswith("torch.utils.data.") or is_users(kind):
        return True
    return False if kind.__module__.partition(".")[0] in sys.stdlib_module_names else None


def is_iterator(thing: Any) -> bool:
    """Whether a thing is data under way: a generator, a DataLoader's iterator, or one of Python's own."""
    kind = type(thing)
    if issubclass(kind, (GeneratorType, _BaseDataLoaderIter)):
        return True
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


def _parts_of(thing: Any, through: bool, root: bool) -> Iterable[Any]:
    unknown = row(type(thing)) is None
    if unknown and is_iterator(thing):
        return _ahead(thing) if through else ()
    found = _contents(thing) if introspection.size(thing) <= MANY else []
    if is_kept(thing) or introspection.is_a(thing, FunctionType) or (unknown and root):
        found += _own(thing)
    return found


def _contents(thing: Any) -> list[Any]:
    """What a thing holds by its type, as far as it is the step's."""
    if introspection.is_a(thing, FunctionType):
        return _reached_from_function(thing)
    if introspection.is_a(thing, ModuleType):
        return []  # all that a file names: see ``_of_function``
    # of what functools keeps it can only be told whether there is any
    return [value for kind, _, _, value in contents(thing) if kind != MEMO]


def _reached_from_function(function: FunctionType) -> list[Any]:
    """What it works with, the names of a module of the user's that it uses among them; of a library's function nothing.

    A library's names and closures are more than the step could change. A piece of a library's that is run by itself
    works with the variables of the frame that it was taken from: its own, not its module's.
    """
    code = function.__code__
    if not frames.is_user_file(code.co_filename):
        is_piece = vars(function).get(PIECE) is True
        return [value for kind, *_, value in contents(function) if kind in (VARIABLE, PART)] if is_piece else []
    used = [value for *_, value in contents(function)]
    modules = [vars(one) for one in used if type(one) is ModuleType and is_users_module(one)]
    named = names_in(code) if modules else ()
    return [*used, *(space[name] for space in modules for name in named if name in space)]


def _own(thing: Any) -> list[Any]:
    """Attributes and class. The tables of a module are put back with it, however long: what is in them is reached."""
    found: list[Any] = []
    for _, name, holder, value in own(thing):
        is_table = name in registered.TABLES and introspection.is_a(holder, nn.Module)
        found += introspection.values(value) if is_table else [value]
    return found


def _ahead(thing: Any) -> Iterable[Any]:
    """What an iterator works with."""
    if isinstance(thing, GeneratorType):
        frame, names = thing.gi_frame, names_in(thing.gi_code)
        if frame is None:
            return ()
        used = (value for name, value in frame.f_globals.items() if name in names)
        return [*frame.f_locals.values(), *used, *([thing.gi_yieldfrom] if thing.gi_yieldfrom else [])]
    return list(introspection.attributes(thing).values()) or gc.get_referents(thing)
