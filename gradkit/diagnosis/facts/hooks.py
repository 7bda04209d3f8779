"""The user's own hooks on gradients: whether there are any, and which are called after ``.grad`` was filled."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from gradkit.core import introspection
from gradkit.core.trace import CHECKPOINT
from gradkit.source import frames
from gradkit.state.preserve import Preserved
from gradkit.tracing.tracer import Tracer

AFTER_ACCUMULATION = "register_post_accumulate_grad_hook"
TENSOR_TABLES = {"_backward_hooks": False, "_post_accumulate_grad_hooks": True}
"""Where a tensor keeps its hooks, and whether those are called after ``.grad`` was filled."""
_OF_MODULES = ("_backward_hooks", "_backward_pre_hooks")
_OF_ALL_MODULES: tuple[dict[Any, Any], ...] = tuple(vars(module_hooks)[f"_global{name}"] for name in _OF_MODULES)


def users_hooks(hook: Any) -> CodeType | None:
    """The code of a hook that the user wrote, looked for inside ``partial``, methods and decorators; else None.

    Example:
        >>> users_hooks(torch.zeros_like) is None
        True
    """
    while introspection.is_a(hook, functools.partial):
        hook = hook.func
    with contextlib.suppress(Exception):  # going round in a circle, or raising when it is asked
        hook = inspect.unwrap(hook)
    hook = introspection.ask(hook, "__func__", hook)
    code = introspection.ask(hook, "__code__") or introspection.ask(
        introspection.ask(type(hook), "__call__"), "__code__"
    )
    return code if introspection.is_a(code, CodeType) and frames.is_user_file(code.co_filename) else None


def hooks_on_filled(parameters: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """The parameters with a hook of the user's that is called after their ``.grad`` was filled."""
    held = {name: hook_table(p, "_post_accumulate_grad_hooks") for name, p in parameters.items()}
    return frozenset(name for name, table in held.items() if any(map(users_hooks, table.values())))


def any_hooks(modules: Iterable[nn.Module], parameters: Mapping[str, torch.Tensor]) -> bool:
    """Whether any of these, or all modules, have a hook of the user's on their gradients."""
    tables = [*_OF_ALL_MODULES, *(hook_table(p, "_backward_hooks") for p in parameters.values())]
    tables += [hook_table(module, name) for module in modules for name in _OF_MODULES]
    return any(users_hooks(hook) for table in tables for hook in table.values()) or bool(hooks_on_filled(parameters))


def hook_table(holder: object, name: str) -> dict[Any, Any]:
    """The hooks that torch keeps on a tensor or module under ``name``; an empty dictionary where there are none."""
    return getattr(holder, name, None) or {}


@dataclass(frozen=True)
class HooksSeen:
    """The user has hooks on gradients.

    Attributes:
        filled: parameters whose hook is called after their ``.grad`` was filled.
    """

    filled: frozenset[str] = frozenset()


def hooks_seen(tracer: Tracer, preserved: Preserved) -> HooksSeen | None:
    """Whether a run may have had hooks of the user's; to be asked before everything is put back.

    Hooks inside a reentrant checkpoint are registered in the backward, where nobody listens.
    """
    delayed = any(region.kind == CHECKPOINT for region in tracer.switches.regions())
    if not (tracer.hooked or delayed or any_hooks(preserved.modules, preserved.parameters)):
        return None
    return HooksSeen(hooks_on_filled(preserved.parameters))
