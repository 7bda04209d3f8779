"""Which parameters a backward pass really reaches, and what the model says of itself."""

from __future__ import annotations

import contextlib
import fnmatch
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradkit.errors import GradkitError
from gradkit.preserve import Preserved
from gradkit.records import ModuleInfo, Parameter


@dataclass(frozen=True)
class Reached:
    """What a backward pass did.

    Attributes:
        norms: 2-norm of the gradient of each parameter that got one, by name; None on the meta device, and for a
            parameter that is connected where backward raised before it got there.
        runs: whether ``loss.backward()`` has something to start from.
        error: what it raised, ``""`` if nothing.
        elements: number of elements of the loss; 1 for a scalar.
    """

    norms: dict[str, float | None] = field(default_factory=dict)
    runs: bool = False
    error: str = ""
    elements: int = 1


@dataclass(frozen=True)
class Adapter:
    """A peft adapter that the model carries: its name, its saved or given mode, whether it runs, and its parameters."""

    name: str
    kind: str
    inference_mode: bool
    active: bool
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Hidden:
    """A tensor that should train and is no parameter of the model: its name, and the classes on the way to it."""

    name: str
    way: tuple[tuple[type, str], ...]


def backward(loss: torch.Tensor, preserved: Preserved, since: int = 0) -> Reached:
    """Run a real backward from ``loss`` and see where gradients arrive; every ``.grad`` is taken away again.

    A loss with several elements starts from ones, as ``loss.sum()`` would.

    Args:
        since: autograd's sequence number when the step began. Where the graph reaches further back, into something that
            the user holds, it is not freed.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     sorted(backward(model(torch.ones(1, 2)).sum(), preserved).norms)
        ['bias', 'weight']
    """
    if not loss.requires_grad:
        return Reached(elements=loss.numel())
    for leaf in leaves_of(loss):
        preserved.leaf(leaf)
    preserved.clear_grads()
    with torch.enable_grad(), arrivals(preserved) as arrived:
        error = ""
        try:
            start = None if loss.numel() == 1 else torch.ones_like(loss)
            loss.backward(start, retain_graph=_older(loss, since))  # type: ignore[no-untyped-call]
        except Exception as raised:  # noqa: BLE001  a hook or a custom Function may raise anything
            error = str(raised) or type(raised).__name__
    found = {**arrived, **norms(preserved.parameters)}
    if error:
        behind = {id(leaf) for leaf in leaves_of(loss)}
        found = {name: found.get(name) for name, p in preserved.parameters.items() if name in found or id(p) in behind}
    preserved.clear_grads()
    return Reached(found, True, error, loss.numel())


def _older(loss: torch.Tensor, since: int) -> bool:
    return any(node._sequence_nr() < since for node in nodes_of(loss) if not hasattr(node, "variable"))


@contextlib.contextmanager
def arrivals(preserved: Preserved) -> Iterator[dict[str, float | None]]:
    """Gradients that arrive while the block runs, of parameters whose hooks use them up at once.

    An optimizer that steps in a ``register_post_accumulate_grad_hook`` leaves no ``.grad`` behind to be looked at.
    """
    found: dict[str, float | None] = {}
    handles = []
    for name, parameter in preserved.parameters.items():
        if parameter.requires_grad and getattr(parameter, "_post_accumulate_grad_hooks", None):
            preserved.before_write(parameter)
            handles.append(parameter.register_hook(partial(_arrived, found, name)))  # type: ignore[no-untyped-call]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _arrived(found: dict[str, float | None], name: str, grad: torch.Tensor) -> None:
    found[name] = _norm(grad)


def norms(parameters: Mapping[str, torch.Tensor]) -> dict[str, float | None]:
    """The 2-norm of every gradient that these parameters hold now."""
    return {name: _norm(parameter.grad) for name, parameter in parameters.items() if parameter.grad is not None}


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """Every leaf tensor in the autograd graph behind ``loss``."""
    return [node.variable for node in nodes_of(loss) if hasattr(node, "variable")]


def nodes_of(loss: torch.Tensor) -> list[Any]:
    """Every node of the autograd graph behind ``loss``, found without recursion."""
    found, seen, todo = [], set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found.append(node)
        todo.extend(parent for parent, _ in node.next_functions)
    return found


def not_finite(norms: dict[str, float | None], names: Iterable[str]) -> tuple[str, ...]:
    """Of the named parameters, those whose gradient holds nan or inf."""
    return tuple(n for n in names if (norm := norms.get(n)) is not None and not math.isfinite(norm))


def first_not_finite(loss: torch.Tensor, preserved: Preserved) -> int:
    """Run a backward and find the first node that was handed finite gradients and handed on nan or inf.

    Returns:
        Its sequence number in autograd's count, -1 if there is none.
    """
    found: list[int] = []

    def watch(node: Any) -> Any:
        def hook(handed_on: Any, handed: Any) -> None:
            if not found and _finite(handed) and not _finite(handed_on):
                found.append(node._sequence_nr())

        return hook

    handles = [node.register_hook(watch(node)) for node in nodes_of(loss) if not hasattr(node, "variable")]
    try:
        backward(loss, preserved)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else -1


def _finite(grads: Any) -> bool:
    return all(
        bool(torch.isfinite(g).all()) for g in grads if isinstance(g, torch.Tensor) and g.layout is torch.strided
    )


def _norm(grad: torch.Tensor) -> float | None:
    """The 2-norm; the largest element where squares would overflow; nan or inf only if the gradient holds such."""
    if grad.is_meta:
        return None
    values = grad.detach().coalesce().values() if grad.layout is torch.sparse_coo else grad.detach()
    wide = values.to(torch.complex128 if values.is_complex() else torch.float64)
    norm = float(torch.linalg.vector_norm(wide))
    return norm if math.isfinite(norm) or not wide.numel() else float(wide.abs().max())


def wanted(model: nn.Module, should_train: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the parameters that should train: those that match a name or glob, else all that require grad.

    Raises:
        GradkitError: a pattern that matches no parameter (``no_such_parameter``).

    Example:
        >>> wanted(nn.Linear(2, 1), ["wei*"])
        ('weight',)
    """
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if should_train is None:
        return tuple(n for n, p in model.named_parameters() if p.requires_grad)
    for pattern in should_train:
        if not any(_matches(name, pattern) for name in names) and not _way(model, pattern):
            near = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise GradkitError("no_such_parameter", pattern=pattern, names=near)
    return tuple(n for n in names if any(_matches(n, pattern) for pattern in should_train))


def unregistered(model: nn.Module, should_train: Sequence[str] | None) -> tuple[Hidden, ...]:
    """Of the names in ``should_train``, those of tensors that the model holds but does not count among its parameters.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> model.scale = torch.ones(1)
        >>> [hidden.name for hidden in unregistered(model, ["weight", "scale"])]
        ['scale']
    """
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    found = []
    for pattern in should_train or ():
        way = _way(model, pattern)
        if way and not any(_matches(name, pattern) for name in names):
            found.append(Hidden(pattern, way))
    return tuple(found)


def _way(model: nn.Module, name: str) -> tuple[tuple[type, str], ...]:
    """Follow a dotted name through attributes, lists and dictionaries: the class and attribute of each module on it."""
    found: list[tuple[type, str]] = []
    at: Any = model
    for part in name.split("."):
        if isinstance(at, (list, tuple)):
            at = at[int(part)] if part.isdigit() and int(part) < len(at) else None
        elif isinstance(at, dict):
            at = at.get(part)
        else:
            found.append((type(at), part))
            at = getattr(at, part, None)
        if at is None:
            return ()
    return tuple(found)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def table(model: nn.Module, want: Iterable[str], used: Iterable[str], reached: Reached) -> tuple[Parameter, ...]:
    """The parameter table: a row for each name."""
    want, used, owners = set(want), set(used), dict(model.named_modules(remove_duplicate=False))
    rows = []
    for name, p in model.named_parameters(remove_duplicate=False):
        owner = owners[name.rpartition(".")[0]]
        rows.append(
            Parameter(
                name=name, shape=tuple(p.shape) if _has_shape(p) else (), numel=p.numel() if _has_shape(p) else 0,
                dtype=str(p.dtype).removeprefix("torch."), requires_grad=p.requires_grad, training=owner.training,
                should_train=name in want, used=name in used, reached=name in reached.norms,
                grad_norm=reached.norms.get(name), module=type(owner).__name__,
            )
        )  # fmt: skip
    return tuple(rows)


def _has_shape(parameter: torch.Tensor) -> bool:
    return not is_lazy(parameter)


def modules(model: nn.Module, rows: Sequence[Parameter]) -> tuple[ModuleInfo, ...]:
    """The model's modules, each with how many elements it holds, how many may train and how many are reached."""
    counts: dict[str, list[int]] = {}
    seen: set[int] = set()
    for row, (_, parameter) in zip(rows, model.named_parameters(remove_duplicate=False), strict=True):
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        parts = row.name.split(".")[:-1]
        for depth in range(len(parts) + 1):
            entry = counts.setdefault(".".join(parts[:depth]), [0, 0, 0])
            entry[0] += row.numel
            entry[1] += row.numel if row.should_train or row.requires_grad else 0
            entry[2] += row.numel if row.reached else 0
    infos = []
    for path, module in model.named_modules():
        numel, trainable, reached = counts.get(path, [0, 0, 0])
        infos.append(ModuleInfo(path, type(module).__name__, numel, trainable, reached, module.training))
    return tuple(infos)


def adapters(model: nn.Module) -> tuple[Adapter, ...]:
    """The peft adapters of a model; ``()`` where peft was never imported or the model carries none."""
    if "peft" not in sys.modules:
        return ()
    found: dict[str, Adapter] = {}
    names = [name for name, _ in model.named_parameters()]
    for path, module in model.named_modules():
        for key, config in _configs(module):
            if key in found:
                continue
            mine = tuple(n for n in names if n.startswith(path) and (f".{key}." in n or n.endswith(f".{key}")))
            if not mine:
                mine = tuple(n for n in names if "prompt_encoder" in n or "lora_" in n)
            found[key] = Adapter(key, _kind(config), bool(config.inference_mode), key in _active(module), mine)
    return tuple(found.values())


def _active(module: Any) -> list[str]:
    active: Any = getattr(module, "active_adapters", None) or getattr(module, "active_adapter", ())
    active = active() if callable(active) else active
    return [active] if isinstance(active, str) else list(active)


def _configs(module: nn.Module) -> list[tuple[str, Any]]:
    table = getattr(module, "peft_config", None)
    if not isinstance(table, dict):
        return []
    return [(str(key), config) for key, config in table.items() if hasattr(config, "inference_mode")]


def _kind(config: Any) -> str:
    kind = getattr(config, "peft_type", "")
    return str(getattr(kind, "value", kind))
