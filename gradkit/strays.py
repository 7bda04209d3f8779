"""Parameters that learn nothing because the model holds them where ``model.parameters()`` does not look.

Accused is only what a module of the model holds in a plain list, dictionary or helper object, what the gradient
reaches, and what nobody else may train: no optimizer that is alive holds it, the step trains it by no other way, the
step reaches it by no other way than through the model, and it was not put into evaluation mode.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradkit import holders, inventory, owners, registered, strangers
from gradkit.holders import Edge
from gradkit.inventory import Hidden
from gradkit.ledger import Ledger
from gradkit.optimizers import holding
from gradkit.owners import ATTRIBUTE, ELEMENT, ITEM, PART
from gradkit.traces import Trace

_REGISTRIES = frozenset(("_modules", "_parameters", "_buffers"))


def found(step: Callable[[], Any], model: nn.Module, trace: Trace, ledger: Ledger) -> tuple[Hidden, ...]:
    """The stray parameters of a model that a gradient reaches, in the order of the lists that hold them.

    Args:
        trace, ledger: of a run of ``step``.
    """
    tensors = ledger.alive(reaching(trace))
    tensors = {n: t for n, t in tensors.items() if isinstance(t, nn.Parameter)}
    if not tensors:
        return ()
    ids = {id(tensor) for tensor in tensors.values()}
    ids -= holding(_optimizers())
    ids -= holders.ways([step], ids, apart=registered.each(model)).keys()
    held = holders.ways([model], ids)
    ways = (held[id(t)][0].way() for t in tensors.values() if id(t) in ids and id(t) in held)
    names = sorted((_parts(way) for way in ways if _held(way, model)), key=_places)
    return tuple(one for parts in names if (one := inventory.follow(model, parts)) is not None)


def reaching(trace: Trace) -> list[int]:
    """The numbers of the Parameters that the model does not have and that a gradient of the loss comes to."""
    values = trace.values
    strays = [
        n for n, v in enumerate(values)
        if v.stray and v.leaf and v.birth < 0 and v.maker < 0 and n not in trace.trained
    ]  # fmt: skip
    alive = {trace.loss}
    for call in reversed(trace.calls) if strays else ():
        if call.grad_on and any(o in alive and values[o].requires_grad for o in call.outputs):
            alive.update(call.inputs)
    return [number for number in strays if number in alive]


def _optimizers() -> list[Optimizer]:
    """All that are alive. Asked of the type: an object may do anything when it is asked for its class."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]


def _held(way: list[Edge], model: nn.Module) -> bool:
    """Whether a module of the model holds something by attributes, lists and dictionaries alone, and means to train it.

    Objects on the way are of the user's own classes: what a library keeps for itself is its own matter.
    """
    kinds = all(edge.kind in (ATTRIBUTE, ITEM, ELEMENT) or _in_tuple(edge) for edge in way)
    objects = [edge.holder for edge in way if edge.kind == ATTRIBUTE]
    modules = [thing for thing in objects if strangers.is_a(thing, nn.Module)]
    helpers = all(strangers.is_a(thing, nn.Module) or owners.is_users(type(thing)) for thing in objects)
    classes = any(strangers.is_a(thing, type) for thing in objects)
    return kinds and helpers and not classes and all(one.training for one in modules if model.training)


def _in_tuple(edge: Edge) -> bool:
    return edge.kind == PART and strangers.is_a(edge.holder, tuple)


def _parts(way: Iterable[Edge]) -> list[Any]:
    return [edge.key for edge in way if not (edge.key in _REGISTRIES and strangers.is_a(edge.holder, nn.Module))]


def _places(parts: list[Any]) -> list[int]:
    return [part for part in parts if isinstance(part, int)]
