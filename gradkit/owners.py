"""Which modules, and which of the user's files, a function uses: read off its closure, arguments and globals."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from gradkit import registered, strangers
from gradkit.errors import GradkitError
from gradkit.frames import is_user_file

Answer = TypeVar("Answer")


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
    said = strangers.ask(step, "model")
    if strangers.is_a(said, nn.Module):
        return said
    found = modules_of(step)
    if not found:
        raise GradkitError("no_model_in_step", name=name)
    if len(found) > 1:
        raise GradkitError("many_models", name=name, models=", ".join(type(one).__name__ for one in found))
    return found[0]


def modules_of(step: object) -> tuple[nn.Module, ...]:
    """The outermost modules that a callable uses; those without parameters (a loss) only if there are no others."""
    found = {id(one): one for one in _things(step, set()) if strangers.is_a(one, nn.Module)}
    inner = {id(child) for one in found.values() for child in registered.each(one) if child is not one}
    outer = [one for key, one in found.items() if key not in inner]
    return tuple([one for one in outer if registered.parameters(one)] or outer)


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
    things = [*_things(strangers.ask(step, "step", step), set()), *registered.each(model)]
    for thing in things:
        parts = [*_parts(thing), *_own(thing)]
        for one in (one for part in parts for one in members(part)):
            held = one if strangers.is_a(one, Optimizer) else strangers.attributes(one).get("optimizer")
            if strangers.is_a(held, Optimizer):
                found.setdefault(id(held), held)
    return tuple(found.values())


def files_of(*things: object) -> tuple[str, ...]:
    """The user's own source files among those of some functions, all that they call by name, and modules."""
    files: dict[str, None] = {}
    for thing in things:
        for one in _things(thing, set()):
            functions = (
                [getattr(type(part), "forward", None) for part in registered.each(one)]
                if strangers.is_a(one, nn.Module)
                else [one]
            )
            for function in functions:
                code = strangers.ask(function, "__code__")
                if strangers.is_a(code, CodeType) and is_user_file(code.co_filename):
                    files.setdefault(code.co_filename)
    return tuple(files)


def _things(thing: Any, seen: set[int]) -> Iterator[Any]:
    """A callable, and whatever it reaches without being called: modules and further functions of the user's."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    if strangers.is_a(thing, nn.Module):
        return
    for part in _parts(thing):
        for one in members(part):
            # of objects (a trainer) only those that a function names: theirs in turn would lead anywhere
            if _leads_on(one) or (strangers.is_a(thing, (MethodType, FunctionType)) and _is_plain_object(one)):
                yield from _things(one, seen)


def _parts(thing: Any) -> list[Any]:
    if strangers.is_a(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if strangers.is_a(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if strangers.is_a(thing, FunctionType):
        return used(thing)
    return _own(thing)


def _own(thing: Any) -> list[Any]:
    """The attributes of an object's own; of a class, all that is written in it."""
    inner = type.__getattribute__(thing, "__dict__") if strangers.is_a(thing, type) else strangers.attributes(thing)
    return list(inner.values())


def _leads_on(value: Any) -> bool:
    if strangers.is_a(value, FunctionType):
        return is_user_file(value.__code__.co_filename)
    if strangers.is_a(value, type):
        return not issubclass(value, nn.Module) and is_users(value)
    return strangers.is_a(value, (nn.Module, functools.partial, MethodType))


def members(part: Any) -> list[Any]:
    """What a small container holds; anything else by itself."""
    is_mapping = strangers.is_mapping(part)
    if not (is_mapping or strangers.is_a(part, (list, tuple))) or strangers.size(part) > 64:
        return [part]
    held = strangers.values(part) if is_mapping else strangers.entries(part)
    return held if len(held) <= 64 else [part]


def used(function: FunctionType) -> list[Any]:
    """What a function works with before it is given anything: defaults, closure, the globals that its code names."""
    parts: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            parts.append(cell.cell_contents)
    named = names(function.__code__)
    parts += [value for key, value in function.__globals__.items() if key in named]
    return parts


def names(code: CodeType) -> set[str]:
    """The names in a function's code that could be globals, those of functions inside it too."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*(names(one) for one in inner))


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an object of a class of the user's, such as a trainer that holds the model."""
    kind = type(value)
    if kind.__module__ == "builtins" or strangers.is_a(value, (ModuleType, type)):
        return False
    return is_users(kind) or kind.__name__ in ("SimpleNamespace", "Namespace")


@by_class
def is_users(kind: Any) -> bool:
    """Whether a class is the user's own: by its methods, or by the module that it was written in."""
    if any(isinstance(one, FunctionType) and is_user_file(one.__code__.co_filename) for one in vars(kind).values()):
        return True
    return is_users_module(sys.modules.get(kind.__module__))


def is_users_module(module: ModuleType | None) -> bool:
    """Whether a module is the user's own; what is typed into a notebook is."""
    file = getattr(module, "__file__", None)
    return is_user_file(file) if isinstance(file, str) else getattr(module, "__name__", "") == "__main__"
