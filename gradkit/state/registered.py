"""What modules have registered: their parts, parameters and buffers, with torch's names, by their tables alone.

``model.named_modules()`` and its like may be overridden, go round in a circle where a module holds itself, hash every
module, and call themselves for each level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection

TABLES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))
"""The attributes of every module that are tables: of parameters, buffers, modules and hooks."""


def modules(model: nn.Module, *, twice: bool = False) -> Iterator[tuple[str, nn.Module]]:
    """Every module with its path, in the order of ``named_modules()``.

    Args:
        twice: a module that is held in several places comes once for each, except inside of itself.

    Example:
        >>> shared = nn.Linear(1, 1)
        >>> model = nn.Sequential(shared, nn.Sequential(shared))
        >>> [path for path, _ in modules(model)], [path for path, _ in modules(model, twice=True)]
        (['', '0', '1'], ['', '0', '1', '1.0'])
    """
    seen: dict[int, Any] = {}
    waiting: list[tuple[str, Any, frozenset[int]]] = [("", model, frozenset())]
    while waiting:
        path, module, around = waiting.pop()
        if id(module) in (around if twice else seen):
            continue
        seen[id(module)] = module
        yield path, module
        within = around | {id(module)} if twice else around
        waiting += [
            (f"{path}.{name}" if path else str(name), part, within) for name, part in reversed(children(module))
        ]


def children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts of a module by name; asked of their class, as one may be None, and an object may claim any class."""
    table = module._modules  # noqa: SLF001  what ``named_children()`` reads
    return [(name, part) for name, part in table.items() if introspection.is_a(part, nn.Module)]


def names_of(module: nn.Module) -> set[str]:
    """The names under which a module has registered parts and parameters."""
    return {*module._modules.keys(), *module._parameters.keys()}  # noqa: SLF001


def each(model: nn.Module) -> list[nn.Module]:
    """Every module, once."""
    return [module for _, module in modules(model)]


def parameters(model: nn.Module, *, twice: bool = False) -> list[tuple[str, nn.Parameter]]:
    """Every parameter with its name, in the order of ``named_parameters()``.

    Args:
        twice: one that is held in several places comes once for each, as with ``remove_duplicate=False``.

    Example:
        >>> [name for name, _ in parameters(nn.Sequential(nn.Linear(1, 1)))]
        ['0.weight', '0.bias']
    """
    return list(_entries(model, "_parameters", twice))


def holders(model: nn.Module) -> dict[str, nn.Module]:
    """The module that holds each parameter, by the parameter's name, as ``parameters(model, twice=True)`` has it."""
    return {
        f"{path}.{name}" if path else str(name): module
        for path, module in modules(model, twice=True)
        for name in module._parameters.keys()  # noqa: SIM118  of a scripted module it is no dictionary
    }


def buffers(model: nn.Module) -> list[tuple[str, Any]]:
    """Every buffer with its name."""
    return list(_entries(model, "_buffers", False))


def _entries(model: nn.Module, table: str, twice: bool) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for path, module in modules(model, twice=twice):
        for name, held in getattr(module, table).items():
            if held is not None and (twice or id(held) not in seen):
                seen.add(id(held))
                yield (f"{path}.{name}" if path else str(name)), held


def outermost(found: Iterable[nn.Module]) -> list[nn.Module]:
    """Of some modules, those that are no part of another, each once.

    Example:
        >>> part = nn.Linear(1, 1)
        >>> whole = nn.Sequential(part)
        >>> outermost([part, whole, whole]) == [whole]
        True
    """
    known = {id(one): one for one in found}
    inner = {id(child) for one in known.values() for child in each(one) if child is not one}
    return [one for key, one in known.items() if key not in inner]


def behind(tensors: Iterable[torch.Tensor], scope: Mapping[str, Any]) -> list[nn.Module]:
    """The outermost modules among the values of ``scope`` with a parameter that the graph of some tensors leads to.

    Example:
        >>> net, other = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> behind([net(torch.ones(2))], {"net": net, "other": other}) == [net]
        True
    """
    nodes: list[Any] = [one.grad_fn for one in tensors if one.grad_fn is not None]
    seen = {id(node) for node in nodes}
    leaves: set[int] = set()
    for node in nodes:  # it grows on the way
        if type(node).__name__ == "AccumulateGrad":
            leaves.add(id(node.variable))
        parents = [parent for parent, _ in node.next_functions if parent is not None and id(parent) not in seen]
        seen.update(map(id, parents))
        nodes += parents
    held = [one for one in list(scope.values()) if introspection.is_a(one, nn.Module)] if leaves else []
    return outermost(one for one in held if any(id(parameter) in leaves for _, parameter in parameters(one)))
