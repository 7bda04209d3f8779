"""What the model says of itself: its parameters, its modules, its adapters, and what it holds unregistered."""

from __future__ import annotations

import fnmatch
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.core.records import ModuleInfo, Parameter
from gradkit.core.tensors import shape_of
from gradkit.diagnosis.facts.hooks import users_hooks
from gradkit.source import frames
from gradkit.state import reachable, registered
from gradkit.tracing.backward import Reached

_USERS, _LIBRARY = "users", "library"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


@dataclass(frozen=True)
class Adapter:
    """A peft adapter that the model carries: its name, its saved or given mode, whether it runs, and its parameters."""

    name: str
    kind: str
    inference_mode: bool
    active: bool
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class UnregisteredParameter:
    """A tensor that should train and is no parameter of the model.

    Attributes:
        way: the class of each object on the way to it, and the attribute taken from it.
        broken: how many steps of the way it takes to come to what no module has registered.
        kind: name of the class of that; ``""`` where a function holds it, so that another line keeps it out.
        history: it has one (it was computed from another tensor), so that its ``.grad`` stays None.
    """

    name: str
    way: tuple[tuple[type, str], ...]
    broken: int = 1
    kind: str = ""
    history: bool = False


def patterns(should_train: Any) -> tuple[str, ...] | None:
    """Names or globs as they were given, a single one too.

    Raises:
        GradkitError: something else (``bad_should_train``).

    Example:
        >>> patterns("fc.*"), patterns(["a", "b"]), patterns(None)
        (('fc.*',), ('a', 'b'), None)
    """
    if should_train is None:
        return None
    try:
        found = (should_train,) if introspection.is_a(should_train, str) else tuple(should_train)
    except Exception as error:
        raise GradkitError("bad_should_train", got=one_line(should_train)) from error
    if not all(introspection.is_a(one, str) for one in found):
        raise GradkitError("bad_should_train", got=one_line(should_train))
    return tuple(map(str.__str__, found))


def wanted(model: nn.Module, should_train: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the parameters that should train: those that match a name or glob, else all that require grad.

    A tensor that several names stand for is counted once, by the first of those that match.

    Raises:
        GradkitError: a pattern that matches no parameter (``no_such_parameter``).

    Example:
        >>> wanted(nn.Linear(2, 1), ["wei*"])
        ('weight',)
    """
    names = [name for name, _ in registered.parameters(model, twice=True)]
    if should_train is None:
        return tuple(n for n, p in registered.parameters(model) if p.requires_grad)
    for pattern in should_train:
        if not any(matches(name, [pattern]) for name in names) and _hidden(model, pattern) is None:
            near = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise GradkitError("no_such_parameter", pattern=pattern, names=near)
    found = (one for one in registered.parameters(model, twice=True) if matches(one[0], should_train))
    first: dict[int, str] = {}
    return tuple(name for name, one in found if first.setdefault(id(one), name) == name)


def known_patterns(model: nn.Module, should_train: Sequence[str]) -> tuple[str, ...]:
    """Those of the names and globs that something of the model matches.

    Example:
        >>> known_patterns(nn.Linear(2, 1), ["wei*", "head.*"])
        ('wei*',)
    """
    names = [name for name, _ in registered.parameters(model, twice=True)]
    return tuple(
        one for one in should_train if any(matches(n, [one]) for n in names) or _hidden(model, one) is not None
    )


def unregistered(model: nn.Module, should_train: Sequence[str] | None) -> tuple[UnregisteredParameter, ...]:
    """Of the names in ``should_train``, those of tensors that the model holds but does not count among its parameters.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> model.scale = torch.ones(1)
        >>> [hidden.name for hidden in unregistered(model, ["weight", "scale"])]
        ['scale']
    """
    names = {name for name, _ in registered.parameters(model, twice=True)}
    found = []
    for pattern in should_train or ():
        hidden = _hidden(model, pattern)
        if hidden is not None and not any(matches(name, [pattern]) for name in names):
            found.append(hidden)
    return tuple(found)


def _hidden(model: nn.Module, name: str) -> UnregisteredParameter | None:
    return follow(model, name.split("."))


def follow(model: nn.Module, parts: Sequence[Any]) -> UnregisteredParameter | None:
    """Follow a name through attributes, lists, dictionaries and the variables of functions; None if it leads nowhere.

    Args:
        parts: of the name; of lists also as numbers, of dictionaries the keys as they are.
    """
    way: list[tuple[type, str]] = []
    broken, kind, counted, closed = 0, "", True, False
    at: Any = model
    for part in parts:
        if introspection.is_a(at, (list, tuple, deque)):
            at = (
                introspection.entries(at)[int(part)]
                if str(part).isdigit() and int(part) < introspection.size(at)
                else None
            )
        elif introspection.is_a(at, dict):
            at = next(
                (value for key, value in introspection.items(at) if type(key) is type(part) and key == part), None
            )
        elif introspection.is_a(at, FunctionType):
            counted, closed = False, True
            variables = ((name, held) for kind, name, _, held in reachable.children(at) if kind == reachable.VARIABLE)
            at = next((held for name, held in variables if name == part), None)
        else:
            counted = counted and introspection.is_a(at, nn.Module) and part in registered.names_of(at)
            way.append((type(at), part))
            at = introspection.ask(at, part)
        if at is None:
            return None
        if not counted and not broken and introspection.is_a(at, (nn.Module, torch.Tensor)):
            broken, kind = len(way), "" if closed else type(at).__name__
    history = introspection.is_a(at, torch.Tensor) and at.requires_grad and not at.is_leaf
    return UnregisteredParameter(".".join(map(str, parts)), tuple(way), broken or len(way), kind, history)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a parameter's name is one of the patterns, or fits one as a glob.

    Example:
        >>> matches("head.weight", ["head.*"]), matches("blocks[0]", ["blocks[0]"]), matches("head.weight", [])
        (True, True, False)
    """
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def table(model: nn.Module, want: Iterable[str], used: Iterable[str], reached: Reached) -> tuple[Parameter, ...]:
    """The parameter table: a row for each name."""
    want, used, owners = set(want), set(used), registered.holders(model)
    first: dict[int, str] = {}
    rows = []
    for name, p in registered.parameters(model, twice=True):
        owner = owners[name]
        same = first.setdefault(id(p), name)
        rows.append(
            Parameter(
                name=name, shape=tuple(shape_of(p)), numel=p.numel() if _has_shape(p) else 0,
                dtype=str(p.dtype).removeprefix("torch."), requires_grad=p.requires_grad, training=owner.training,
                should_train=name in want, used=name in used, reached=name in reached.norms,
                grad_norm=reached.norms.get(name), module=type(owner).__name__,
                same_as=same if same != name else "",
            )
        )  # fmt: skip
    return tuple(rows)


def _has_shape(parameter: torch.Tensor) -> bool:
    return not is_lazy(parameter)


def left_to_library(
    model: nn.Module, rows: Iterable[Parameter], ran: Collection[str], reached: Collection[str]
) -> list[str]:
    """Parameters of a library's module that computes more than a program has use for, as a pooler that nobody asks.

    The module whose part holds them is of a class that an installed library wrote, it has run, others of its parameters
    got a gradient, and nothing of an adapter is among them. Who wants them to learn names them.

    Args:
        rows: of the parameters in question.
        ran: the paths of modules that have run.
        reached: the names of the parameters that got a gradient.
    """
    placed = dict(registered.modules(model, twice=True))
    adapted = {name for one in adapters(model) for name in one.parameters}
    return [row.name for row in rows if row.name not in adapted and _is_left(row, placed, ran, reached)]


def _is_left(row: Parameter, placed: Mapping[str, nn.Module], ran: Collection[str], reached: Collection[str]) -> bool:
    parts = row.name.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        path = ".".join(parts[:depth])
        if path not in placed or _kind_of(placed[path]) == _USERS:
            return False
        if _kind_of(placed[path]) == _LIBRARY and (row.used or path in ran):
            if any(not path or one.startswith(f"{path}.") for one in reached):
                return _speaks_of(type(placed[path]), parts[depth])
    return False


def _speaks_of(owner: type, attribute: str) -> bool:
    """Whether a class's own code knows an attribute: what somebody put there from outside is not the class's."""
    codes = (vars(cls).get("__init__") for cls in owner.__mro__)
    return any(attribute in code.co_names for one in codes if (code := getattr(one, "__code__", None)) is not None)


def _kind_of(module: nn.Module) -> str:
    """Whose class a module is of: the user's, an installed library's, or torch's (``""``).

    What runs as ``__main__`` is the user's, also where a profiler, a debugger or a test runner started it.
    """
    home = type(module).__module__
    file = getattr(sys.modules.get(home), "__file__", None) or ""
    if home == "__main__" or not file or frames.is_user_file(file):
        return _USERS
    return "" if frames.is_torch_file(file) else _LIBRARY


def attached(model: nn.Module) -> dict[str, frozenset[str]]:
    """What is computed with beside a module, in hooks on its forward or in what stands for it: parameters by its path.

    Example:
        >>> net = nn.ModuleDict({"layer": nn.Linear(2, 2), "side": nn.Linear(2, 2)})
        >>> def add(layer, given, out, side=net.side):
        ...     return out + side(*given)
        >>> handle = net.layer.register_forward_hook(add)
        >>> sorted(attached(net)["layer"])
        ['side.bias', 'side.weight']
    """
    named = list(registered.parameters(model, twice=True))
    found = {}
    for path, module in registered.modules(model):
        beside = [one for call in _beside(module) for one in reachable.modules_of(call)]
        beside = [one for one in beside if not any(part is module for part in registered.each(one))]
        ids = {id(p) for one in beside for _, p in registered.parameters(one, twice=True)}
        if ids:
            found[path] = frozenset(name for name, p in named if id(p) in ids)
    return found


def _beside(module: nn.Module) -> list[Any]:
    """The hooks of the user's on a module's forward, and what was put there in its place."""
    tables: list[dict[Any, Any]] = [getattr(module, name, None) or {} for name in _HOOKS]
    calls = [call for table in tables for call in table.values()]
    calls += [call for name, call in introspection.attributes(module).items() if name == "forward"]
    return [call for call in calls if users_hooks(call) is not None]


def modules(model: nn.Module, rows: Sequence[Parameter]) -> tuple[ModuleInfo, ...]:
    """The model's modules, each with how many elements it holds, how many may train and how many are reached."""
    counts: dict[str, list[int]] = {}
    seen: set[int] = set()
    for row, (_, parameter) in zip(rows, registered.parameters(model, twice=True), strict=True):
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
    for path, module in registered.modules(model):
        numel, trainable, reached = counts.get(path, [0, 0, 0])
        infos.append(ModuleInfo(path, type(module).__name__, numel, trainable, reached, module.training))
    return tuple(infos)


def adapters(model: nn.Module) -> tuple[Adapter, ...]:
    """The peft adapters of a model; ``()`` where peft was never imported or the model carries none."""
    if "peft" not in sys.modules:
        return ()
    found: dict[str, Adapter] = {}
    names = [name for name, _ in registered.parameters(model)]
    kept = _keeping(model)
    for path, module in registered.modules(model):
        for key, config in _configs(module):
            if key in found:
                continue
            mine = tuple(n for n in names if n.startswith(path) and _is_of(n, key, kept))
            if not mine:
                mine = tuple(n for n in names if "prompt_encoder" in n or "lora_" in n)
            found[key] = Adapter(key, _kind(config), bool(config.inference_mode), key in _active(module), mine)
    return tuple(found.values())


def _keeping(model: nn.Module) -> frozenset[str]:
    """The attributes by which the layers that peft put in keep what belongs to an adapter, by the adapter's name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [one for one in registered.each(model) if introspection.is_a(one, BaseTunerLayer)]
    return frozenset(name for one in layers for name in one.adapter_layer_names)


def _is_of(name: str, key: str, kept: Collection[str]) -> bool:
    """Whether a parameter is of an adapter: a layer's number in a list may be an adapter's name, too."""
    parts = name.split(".")
    found = [at for at, part in enumerate(parts) if part == key]
    if key.isdigit() and kept:
        return any(at and parts[at - 1] in (*kept, "modules_to_save", "prompt_encoder") for at in found)
    return f".{key}." in name or name.endswith(f".{key}")


def _active(module: Any) -> list[str]:
    """The adapters that run: those of the layers that peft put in; without any, what the model says of itself."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [one for one in registered.each(module) if introspection.is_a(one, BaseTunerLayer)]
    if layers:
        return list(dict.fromkeys(name for one in layers for name in one.active_adapters))
    active: Any = introspection.ask(module, "active_adapters") or introspection.ask(module, "active_adapter", ())
    active = active() if callable(active) else active
    return [active] if isinstance(active, str) else list(active)


def _configs(module: nn.Module) -> list[tuple[str, Any]]:
    table = introspection.ask(module, "peft_config")
    if not introspection.is_a(table, dict):
        return []
    return [(str(key), config) for key, config in table.items() if hasattr(config, "inference_mode")]


def _kind(config: Any) -> str:
    kind = getattr(config, "peft_type", "")
    return str(getattr(kind, "value", kind))
