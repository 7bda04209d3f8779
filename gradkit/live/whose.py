"""Whose parameters a step of a running program trains: the modules within its sight, and the optimizer that steps next.

Several modules (a GAN's, an encoder and a decoder) stand together in one module, under the names of their variables;
nothing of theirs is changed by that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.core.trace import Trace
from gradkit.live.candidates import Candidate
from gradkit.live.stack import Point
from gradkit.source import frames, locations, units
from gradkit.state import reachable, registered

_MOST = 400  # variables of a frame that are looked at
_STEPS = ("step", "optimizer_step")


class Together(nn.Module):
    """Several modules, and tensors that train and belong to none, as one model.

    Args:
        parts: modules by name.
        leaves: tensors that require grad, by name.

    Example:
        >>> whole = Together({"G": nn.Linear(1, 2), "D": nn.Linear(2, 1)}, {"delta": torch.ones(1, requires_grad=True)})
        >>> [name for name, _ in whole.named_parameters()]
        ['delta', 'G.weight', 'G.bias', 'D.weight', 'D.bias']
    """

    def __init__(self, parts: Mapping[str, nn.Module], leaves: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        table: dict[str, Any] = self._parameters
        self._modules.update(_named(parts))
        table.update(_named(leaves))
        self.training = any(one.training for one in parts.values())


def model_of(parts: Mapping[str, nn.Module], leaves: Mapping[str, torch.Tensor]) -> nn.Module:
    """The one module that there is, else all of them together."""
    if len(parts) == 1 and not leaves:
        return next(iter(parts.values()))
    return Together(parts, leaves)


def _named(things: Mapping[str, Any]) -> dict[str, Any]:
    """Under names that a module may hold something by."""
    found: dict[str, Any] = {}
    for name, thing in things.items():
        plain = re.sub(r"\W", "_", name) or type(thing).__name__
        while plain in found or hasattr(nn.Module, plain):
            plain += "_"
        found[plain] = thing
    return found


def modules_within_sight(step: Callable[[], object], candidate: Candidate) -> dict[str, nn.Module]:
    """The outermost modules with parameters that a step uses by name; if there are none, those of the frames around it.

    Returns:
        Them by the names of the variables that hold them.
    """
    names: dict[int, str] = {}
    near: dict[int, nn.Module] = {}
    for name, value in _variables(candidate):
        if introspection.is_a(value, nn.Module):
            names.setdefault(id(value), name)
            near.setdefault(id(value), value)
    used = [one for one in reachable.modules_of(step) if registered.parameters(one)]
    found = used or _outermost(near.values())
    return {_unlike(names.get(id(one), type(one).__name__), at): one for at, one in enumerate(found)}


def name_of(point: Point) -> str:
    """The qualified name of the function that a frame runs."""
    return locations.qualified_name(point.code)


def _unlike(name: str, at: int) -> str:
    return name if name.isidentifier() else f"{re.sub(r'[^0-9a-zA-Z_]', '_', name)}_{at}"


def _outermost(found: Iterable[nn.Module]) -> list[nn.Module]:
    return registered.outermost(one for one in found if registered.parameters(one))


def _variables(candidate: Candidate) -> Iterator[tuple[str, Any]]:
    """What the variables of frames hold: of the unit's own frame, then those further out, then the next inner one.

    Small lists and dictionaries are opened, and so are the attributes of ``self``.
    """
    stack, at = candidate.stack, candidate.at
    for point in (stack[at], *reversed(stack[:at]), *stack[at + 1 : at + 2]):
        if frames.is_torch_file(point.code.co_filename):
            continue
        local = point.frame.f_locals
        for name, value in list(local.items())[:_MOST]:
            yield from _opened(name, value)
        own = local.get("self")
        if own is not None and not introspection.is_a(own, nn.Module):
            for name, value in list(introspection.attributes(own).items())[:_MOST]:
                yield from _opened(name, value)


def _opened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if introspection.is_a(value, dict) and introspection.size(value) <= 16:
        yield from ((f"{name}_{key}", one) for key, one in introspection.items(value))
    elif introspection.is_a(value, (list, tuple)) and introspection.size(value) <= 16:
        yield from ((f"{name}_{at}", one) for at, one in enumerate(introspection.entries(value)))


def that_took_part(parts: Mapping[str, nn.Module], trace: Trace) -> dict[str, nn.Module]:
    """Of several modules those that ran, or whose parameters were used; all if that is none."""
    values = trace.values
    used = {values[number].parameter for call in trace.calls for number in call.inputs}
    ran = {name.partition(".")[0] for name in (*trace.modules, *used)}
    plain = dict(zip(_named(parts), parts, strict=True))
    return {plain[name]: parts[plain[name]] for name in plain if name in ran} or dict(parts)


def leaves_beside(
    optimizer: Optimizer | None, parts: Mapping[str, nn.Module], candidate: Candidate, missing: Set[int] = frozenset()
) -> dict[str, torch.Tensor]:
    """Tensors that an optimizer trains and no module holds; without module and optimizer, the leaves of the frame.

    Args:
        missing: ids of parameters that got no gradient: those of them that nothing names are of a model that is gone,
            and the program does not mean them to learn.
    """
    if optimizer is None:
        local = candidate.point.frame.f_locals
        found = {name: one for name, one in local.items() if _trains(one)}
        return {} if parts else dict(list(found.items())[:_MOST])
    held = {id(p) for one in parts.values() for _, p in registered.parameters(one, twice=True)}
    names = {id(value): name for name, value in reversed(list(_variables(candidate)))}
    gone = missing - names.keys()
    mine = _held(optimizer)
    loose = [one for one in mine if id(one) not in held | gone and _trains(one)]
    if mine and gone.issuperset(map(id, mine)):
        return _in_place_of(mine, held, candidate)
    known = {id(one) for one in loose} | held
    beside = {name: one for name, one in _variables(candidate) if id(one) in missing - known and _trains(one)}
    return {names.get(id(one), f"leaf{at}"): one for at, one in enumerate(loose)} | beside


def _in_place_of(gone: Sequence[torch.Tensor], held: Set[int], candidate: Candidate) -> dict[str, torch.Tensor]:
    """The leaves beside all modules that stand where those of an optimizer were, which nothing names any more."""
    shapes = {one.shape for one in gone}
    near = {name: one for name, one in _variables(candidate) if _trains(one) and id(one) not in held}
    return {name: one for name, one in near.items() if one.shape in shapes}


def _trains(thing: Any) -> bool:
    return introspection.is_a(thing, torch.Tensor) and thing.is_leaf and thing.requires_grad


def _held(optimizer: Optimizer) -> list[torch.Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def names_held(model: nn.Module, optimizer: Optimizer | None) -> tuple[str, ...]:
    """The names of a model's parameters that an optimizer holds."""
    ids = {id(one) for one in _held(optimizer)} if optimizer is not None else set[int]()
    return tuple(name for name, one in registered.parameters(model) if id(one) in ids)


def with_those_of(
    optimizer: Optimizer | None, parts: Mapping[str, nn.Module], candidate: Candidate
) -> dict[str, nn.Module]:
    """The modules, and if the optimizer trains none of these, those within sight that it does train."""
    ids = {id(one) for one in _held(optimizer)} if optimizer is not None else set[int]()
    if not ids or any(_holds(one, ids) for one in parts.values()):
        return dict(parts)
    near = {name: value for name, value in _variables(candidate) if introspection.is_a(value, nn.Module)}
    outer = {id(one) for one in _outermost(near.values())}
    more = {name: one for name, one in near.items() if id(one) in outer and _holds(one, ids)}
    return {**more, **parts}


def _holds(module: nn.Module, ids: set[int]) -> bool:
    return any(id(one) in ids for _, one in registered.parameters(module))


# -- which optimizer ------------------------------------------------------------------------------------------------


def next_optimizer(candidate: Candidate, step: Callable[[], object], model: nn.Module) -> Optimizer | None:
    """The optimizer that would have stepped next: that of the first ``X.step()`` after the failing statement.

    Looked for from the innermost frame out to the unit's; else the only one that the step can reach.
    """
    for point in reversed(candidate.stack[candidate.at :]):
        if not frames.is_torch_file(point.code.co_filename):
            found = next(_optimizers_after(point), None)
            if found is not None:
                return found
    known = reachable.optimizers_of(step, model)
    return known[0] if len(known) == 1 else None


def _optimizers_after(point: Point) -> Iterator[Optimizer]:
    found = units.units_of(point.code, point.lasti, point.line)
    if not found:
        return
    calls = [node for node in ast.walk(found[-1].function) if isinstance(node, ast.Call) and node.lineno >= point.line]
    for call in sorted(calls, key=lambda one: one.lineno):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _STEPS:
            for given in (call.func.value, *call.args):
                value = value_of(given, looked_up_in(point))
                value = (
                    value if introspection.is_a(value, Optimizer) else introspection.attributes(value).get("optimizer")
                )
                if introspection.is_a(value, Optimizer):
                    yield value


def looked_up_in(point: Point) -> Callable[[str], Any]:
    """What the names of a frame stand for; None for those that have no value."""
    local, space = point.frame.f_locals, point.frame.f_globals
    return lambda name: local.get(name, space.get(name))


def value_of(expression: ast.expr, names: Callable[[str], Any]) -> Any:
    """What a name, an attribute or an entry stands for, where that can be looked up without running anything.

    Example:
        >>> value_of(ast.parse("kept['a'][0]", mode="eval").body, {"kept": {"a": [3]}}.get)
        3
    """
    if isinstance(expression, ast.Name):
        return names(expression.id)
    if isinstance(expression, ast.Attribute):
        return introspection.attributes(value_of(expression.value, names)).get(expression.attr)
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        held = value_of(expression.value, names)
        if introspection.is_a(held, dict):
            return dict(introspection.items(held)).get(expression.slice.value)
        if introspection.is_a(held, (list, tuple)) and isinstance(expression.slice.value, int):
            entries: Sequence[Any] = introspection.entries(held)
            return entries[expression.slice.value] if -len(entries) <= expression.slice.value < len(entries) else None
    return None
