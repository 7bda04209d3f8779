"""The user's own hooks on gradients: which there are, and a run in which they are called and change nothing."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from gradkit import frames, patches, strangers
from gradkit.faults import on_behalf
from gradkit.standins import Hook, Tampered
from gradkit.trace import Tracer
from gradkit.traces import Chain, Key

_FILLED = "register_post_accumulate_grad_hook"
_TABLES = {"_backward_hooks": False, "_post_accumulate_grad_hooks": True}
_OF_MODULES = ("_backward_hooks", "_backward_pre_hooks")
_OF_ALL_MODULES: tuple[dict[Any, Any], ...] = tuple(vars(module_hooks)[f"_global{name}"] for name in _OF_MODULES)


def of_user(hook: Any) -> CodeType | None:
    """The code of a hook that the user wrote, looked for inside ``partial``, methods and decorators; else None.

    Example:
        >>> of_user(torch.zeros_like) is None
        True
    """
    while strangers.is_a(hook, functools.partial):
        hook = hook.func
    with contextlib.suppress(Exception):  # going round in a circle, or raising when it is asked
        hook = inspect.unwrap(hook)
    hook = strangers.ask(hook, "__func__", hook)
    code = strangers.ask(hook, "__code__") or strangers.ask(strangers.ask(type(hook), "__call__"), "__code__")
    return code if strangers.is_a(code, CodeType) and frames.is_user_file(code.co_filename) else None


def on_filled(parameters: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """The parameters with a hook of the user's that is called after their ``.grad`` was filled."""
    held = {name: _table(p, "_post_accumulate_grad_hooks") for name, p in parameters.items()}
    return frozenset(name for name, table in held.items() if any(map(of_user, table.values())))


def present(modules: Iterable[nn.Module], parameters: Mapping[str, torch.Tensor]) -> bool:
    """Whether any of these, or all modules, have a hook of the user's on their gradients."""
    tables = [*_OF_ALL_MODULES, *(_table(p, "_backward_hooks") for p in parameters.values())]
    tables += [_table(module, name) for module in modules for name in _OF_MODULES]
    return any(of_user(hook) for table in tables for hook in table.values()) or bool(on_filled(parameters))


def _table(holder: object, name: str) -> dict[Any, Any]:
    return getattr(holder, name, None) or {}


class Transparent:
    """The user's hooks of one run, each called on a copy of the gradient, and what it would have put in its place.

    Args:
        parameters: the model's, by name.
        acting: keys of the hooks that are to act as ever.

    Attributes:
        tampered: every call that would have put zeros or nan in the place of a gradient.

    Example:
        >>> def hook(grad): return grad * 0
        >>> weight = nn.Parameter(torch.ones(2))
        >>> _ = weight.register_hook(hook)
        >>> with Transparent({"weight": weight}).listening() as hooks:
        ...     weight.sum().backward()
        >>> weight.grad.tolist(), [(one.kind, one.owner) for one in hooks.tampered]
        ([1.0, 1.0], [('zero', 'weight')])
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor], acting: Iterable[Key] = ()) -> None:
        self._acting = frozenset(acting)
        self._parameters = parameters
        self._names = {id(p): name for name, p in reversed(list(parameters.items()))}
        self._ours: dict[int, Any] = {}
        self.tampered: list[Tampered] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[Transparent]:
        """While the block runs, the hooks are transparent; afterwards all tables of hooks are as they were."""
        with patches.undone():
            for name in ("register_hook", _FILLED):
                patches.replace(torch.Tensor, name, self._registering(vars(torch.Tensor)[name]))
            for name in ("_get_backward_hooks", "_get_backward_pre_hooks"):
                patches.replace(nn.Module, name, self._asked(vars(nn.Module)[name]))
            for parameter in self._parameters.values():
                for name, filled in _TABLES.items():
                    self._replace(parameter, _table(parameter, name), filled=filled)
            yield self

    def _registering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        filled = original.__name__ == _FILLED

        @functools.wraps(original)
        @on_behalf
        def register(tensor: torch.Tensor, hook: Any) -> Any:
            chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
            found = self._hook(hook, self._names.get(id(tensor), ""), chain)
            return original(tensor, self._put(found, filled=filled) if found is not None else hook)

        return register

    def _asked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A module hands out the hooks that the next backward is to call: a list, or one of full and one of others."""

        @functools.wraps(original)
        @on_behalf
        def asked(module: nn.Module) -> Any:
            found = original(module)
            return tuple(map(self._of_module, found)) if isinstance(found, tuple) else self._of_module(found)

        return asked

    def _of_module(self, hooks: Iterable[Any]) -> list[Any]:
        found = [(hook, self._hook(hook)) for hook in hooks]
        return [hook if one is None else self._known(one.on_module) for hook, one in found]

    def _replace(self, parameter: torch.Tensor, table: dict[Any, Any], *, filled: bool) -> None:
        """Hooks that a parameter has had all along: autograd reads them from this very dictionary at every call."""
        for key, hook in list(table.items()):
            found = self._hook(hook, self._names[id(parameter)])
            if found is not None:
                patches.later(partial(_put_back, table, key, hook))
                table[key] = self._put(found, filled=filled)

    def _hook(self, hook: Any, owner: str = "", chain: Chain = ()) -> Hook | None:
        """The hook as something to stand in for; None if it is none of the user's, or one that acts."""
        code = of_user(hook)
        plain = code is None and chain and isinstance(hook, _BUILT_IN)
        if id(hook) in self._ours or (code is None and not plain):
            return None
        key: Key = (code,) if code is not None else ("registered", chain[0])
        return None if key in self._acting else Hook(hook, key, code, chain, owner, self.tampered.append)

    def _put(self, hook: Hook, *, filled: bool) -> Any:
        return self._known(hook.on_filled if filled else hook.on_tensor)

    def _known(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @on_behalf
        def stand_in(*given: Any) -> Any:
            return call(*given)

        self._ours[id(stand_in)] = stand_in
        return stand_in


_BUILT_IN = (type(torch.zeros_like), type(torch.ones(1).sum), type(torch.Tensor.sum))


def _put_back(table: dict[Any, Any], key: Any, hook: Any) -> None:
    if key in table:
        table[key] = hook
