"""Parameters that nothing trains: no optimizer holds them, or ``model.parameters()`` does not hand them out.

What the optimizers hold is read when the step has run, before it is undone. Of the others, accused is only what a
module of the model holds in a plain list, dictionary or helper object, what the gradient reaches, and what nobody else
may train: no optimizer that is alive holds it, the step trains it by no other way, the step reaches it by no other way
than through the model, and it was not put into evaluation mode.

Also the steps of optimizers that changed nothing, as records: ``idle_steps``.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.core.records import Meant
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis.facts import inventory, plain_leaves
from gradkit.diagnosis.facts.inventory import UnregisteredParameter
from gradkit.source import frames, gradients_read
from gradkit.state import holders, reachable, registered
from gradkit.state.holders import Edge
from gradkit.state.preserve import Preserved
from gradkit.state.reachable import ATTRIBUTE, ELEMENT, ITEM, PART, VARIABLE
from gradkit.tracing.after_backward import Idle
from gradkit.tracing.ledger import Ledger
from gradkit.witness.deeds import BUILT, COPIED, CREATED, REGISTERED, REPLACED, THAWED, Deed
from gradkit.witness.histories import deeds_of

NEW, STALE, LEFT_OUT = "new", "stale", "left_out"
_HELD_BY_MODULES = (COPIED, REGISTERED, REPLACED)


@dataclass(frozen=True)
class Gap:
    """What an optimizer does not hold.

    Attributes:
        kind: class name of the optimizer, ``""`` if there is none to speak of.
        settings: its defaults, as source code, to tell its line from others.
        missing: parameters of the model that no optimizer holds.
        reason: ``"new"`` (made by the step), ``"stale"`` (it holds others in their place), ``"left_out"``.
        built: what was seen of it being built, None if nobody saw.
        copied: what was seen of the copies being made that it holds in their place, None if it holds none.
        apart: those that no optimizer at hand holds, while one holds others of the step.
        holder: class name of that one.
        empty: one of its groups holds nothing at all.
        beside: it trains something that the step uses and the model does not hold.
        elsewhere: class name of an optimizer that trains what the step uses and the model does not hold, where all of
            the model is frozen; ``""`` if there is none.
        restored: it was not built over what it holds: it came out of a pickle, or is a copy of another.
    """

    kind: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reason: str = ""
    built: Deed | None = None
    copied: Deed | None = None
    apart: tuple[str, ...] = ()
    holder: str = ""
    empty: bool = False
    beside: bool = False
    elsewhere: str = ""
    restored: bool = False


def several(given: Any) -> tuple[Any, ...]:
    """What was handed over as an optimizer, or as a list or tuple of them.

    Example:
        >>> several(None), several([1, 2]), several(3)
        ((), (1, 2), (3,))
    """
    if given is None:
        return ()
    return tuple(introspection.entries(given)) if introspection.is_a(given, (list, tuple)) else (given,)


def nearest(
    given: Sequence[Optimizer], parameters: Mapping[str, torch.Tensor], missing: Sequence[str]
) -> Optimizer | None:
    """Of several optimizers, the one that trains what stands nearest to what none of them holds: the first of those.

    Args:
        parameters: the model's, by name.
        missing: names of what is not held.

    Example:
        >>> model = nn.ModuleDict({"g": nn.Linear(2, 1), "d": nn.Linear(2, 1)})
        >>> both = [torch.optim.SGD([model[name].weight]) for name in "gd"]
        >>> nearest(both, dict(model.named_parameters()), ["d.bias"]) is both[1]
        True
    """

    def shared(one: Optimizer) -> int:
        held = holding([one])
        names = [name.split(".") for name, p in parameters.items() if id(p) in held]
        pairs = (zip(missing[0].split("."), name, strict=False) for name in names)
        return max((sum(1 for _ in itertools.takewhile(_equal, one)) for one in pairs), default=-1)

    return max(given, key=shared, default=None) if missing else next(iter(given), None)


def _equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def gap(
    model: nn.Module, before: Mapping[str, torch.Tensor], given: Optimizer | None, in_reach: Sequence[Optimizer],
    ran: Callable[[torch.Tensor], bool], learns: Callable[[torch.Tensor], bool],
) -> Gap:  # fmt: skip
    """Compare the optimizers with the model as the step left it: what they lack, and what they leave out on purpose.

    Of an optimizer that was given, all that it and the others lack is told. Of one that was only come across, no more
    than is certain: it holds what nobody else does any more, or the parameters of another copy of the model, or lacks
    what the step itself has made.

    Args:
        before: the model's parameters by name, before the step.
        in_reach: optimizers that the step can reach.
        ran: whether a tensor took part in the step.
        learns: whether a gradient comes to a tensor in the step.
    """
    elsewhere = _elsewhere(before, [one for one in (given, *in_reach) if one is not None], ran)
    if elsewhere:
        return Gap(elsewhere=elsewhere)
    found = _missing(model, before, given, in_reach, ran, learns)
    if found.reason in (NEW, STALE):
        return found
    optimizers = [optimizer for optimizer in (given, *in_reach) if optimizer is not None]
    mine = {id(p) for p in before.values() if ran(p)}
    holder = next((type(one).__name__ for one in optimizers if mine & holding([one])), "")
    held = holding(optimizers)
    apart = tuple(n for n, p in before.items() if id(p) not in held) if holder else ()  # a step may freeze, too
    return replace(found, apart=apart, holder=holder)


def _elsewhere(
    before: Mapping[str, torch.Tensor], optimizers: Sequence[Optimizer], ran: Callable[[torch.Tensor], bool]
) -> str:
    """The optimizer that trains an input of a frozen model, or what stands behind it; a model of copies is neither."""
    mine = {id(p) for p in before.values()}
    if not before or any(p.requires_grad for p in before.values()) or mine & holding(optimizers):
        return ""
    # a step that ends in the optimizer's own has written it since it took part, and has left its gradient
    trains = (one for one in optimizers if any(p.requires_grad and (ran(p) or p.grad is not None) for p in _all(one)))
    return next((type(one).__name__ for one in trains), "")


def _missing(
    model: nn.Module, before: Mapping[str, torch.Tensor], given: Optimizer | None, in_reach: Sequence[Optimizer],
    ran: Callable[[torch.Tensor], bool], learns: Callable[[torch.Tensor], bool],
) -> Gap:  # fmt: skip
    optimizers = list({id(optimizer): optimizer for optimizer in (given, *in_reach) if optimizer is not None}.values())
    held = holding(optimizers)
    now = {n: p for n, p in registered.parameters(model, twice=True) if n not in before and p.requires_grad}
    late = tuple(n for n, p in now.items() if id(p) not in held and ran(p))
    of_model = {id(p) for p in before.values()} | {id(p) for p in now.values()}
    using_model = [optimizer for optimizer in optimizers if of_model & holding([optimizer])]
    if late and (given is not None or using_model):
        return _gap(given or using_model[0], late, NEW)
    missing = tuple(n for n, p in before.items() if id(p) not in held)
    if given is not None:
        foreign = _strangers(given, of_model, ran) if missing else ()
        beside = any(id(p) not in of_model and p.requires_grad and learns(p) for p in _all(given))
        stale = missing and (not (beside or of_model & holding([given])) or any(map(orphaned, foreign)))
        if not stale and missing:
            held = holding(_optimizers())
            missing = tuple(n for n in missing if id(before[n]) not in held)
        copied = _copied(given, [before[name] for name in missing])
        return replace(_gap(given, missing, STALE if stale else LEFT_OUT), copied=copied, beside=beside)
    for optimizer in using_model if missing else ():
        if any(orphaned(p) for p in _strangers(optimizer, of_model, ran)):
            return _gap(optimizer, missing, STALE)
    copies = (
        [optimizer for optimizer in in_reach if _copies(optimizer, before.values(), ran)] if not using_model else []
    )
    return _gap(copies[0], missing, STALE) if copies else Gap()


def meant(want: Sequence[str], gap: Gap, reached: Iterable[str], *, named: bool) -> tuple[tuple[str, ...], Meant]:
    """Which parameters are to learn, and by what that is known: what no optimizer holds and no gradient reaches is not.

    Copies that are updated in place, target networks and teachers are such. What a gradient reaches all the same may
    have been forgotten.

    Args:
        want: those that require grad, or those that were named.
        named: they were named.

    Example:
        >>> left, why = meant(["a", "b", "c"], Gap(apart=("b", "c"), holder="Adam"), ["a", "c"], named=False)
        >>> left, why.source, why.apart
        (('a', 'c'), 'optimizer', ('b',))
    """
    if named:
        return tuple(want), Meant("should_train")
    if gap.elsewhere and not want:
        return (), Meant("optimizer", gap.elsewhere)
    apart = tuple(name for name in want if name in gap.apart and name not in reached)
    left = tuple(name for name in want if name not in apart)
    return (left, Meant("optimizer", gap.holder, apart)) if left and apart else (tuple(want), Meant())


def gap_of(optimizer: Optimizer, missing: tuple[str, ...]) -> Gap:
    """How an optimizer was built, and what of the model it lacks."""
    return _gap(optimizer, missing, LEFT_OUT)


def _gap(optimizer: Optimizer, missing: tuple[str, ...], reason: str) -> Gap:
    settings = {
        key: repr(value)
        for key, value in getattr(optimizer, "defaults", {}).items()
        if not isinstance(value, torch.Tensor)
    }
    built = next((one for one in deeds_of(optimizer) if one.kind in (BUILT, COPIED)), None)
    empty = any(not group["params"] for group in optimizer.param_groups)
    restored = _is_restored(optimizer)
    return Gap(type(optimizer).__name__, settings, missing, reason, built, empty=empty, restored=restored)


def _is_restored(optimizer: Optimizer) -> bool:
    """Whether an optimizer came out of a pickle, or is a copy: its state stands before what ``__init__`` makes first.

    Example:
        >>> import copy
        >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
        >>> _is_restored(optimizer), _is_restored(copy.deepcopy(optimizer))
        (False, True)
    """
    names = list(vars(optimizer))
    hooks = [at for at, name in enumerate(names) if name.endswith("_hooks")]
    return bool(hooks) and "param_groups" in names and names.index("param_groups") < hooks[0]


def _copied(optimizer: Optimizer, missing: Sequence[torch.Tensor]) -> Deed | None:
    """How the first copy of what is missing became a leaf, if such are all that an optimizer holds.

    None has ever had a gradient, and none was ever in a module: else the optimizer was built before the model changed.
    """
    shapes = {one.shape for one in missing}
    if any(p.shape not in shapes or p.grad is not None for p in _all(optimizer)):
        return None
    told = [deeds_of(p) for p in _all(optimizer)]
    if any(deed.kind in _HELD_BY_MODULES for deeds in told for deed in deeds):
        return None
    made = [next((deed for deed in deeds if deed.kind in (THAWED, CREATED) and deed.chain), None) for deeds in told]
    return made[0] if made and None not in made else None


def holding(optimizers: Iterable[Optimizer]) -> set[int]:
    """The ids of all that some optimizers hold."""
    return {id(p) for one in optimizers for p in _all(one)}


def _all(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _strangers(optimizer: Optimizer, mine: set[int], ran: Callable[[torch.Tensor], bool]) -> list[torch.Tensor]:
    return [p for p in _all(optimizer) if id(p) not in mine and not ran(p)]


def orphaned(parameter: torch.Tensor) -> bool:
    """Whether no module, nor any other object or dictionary, holds a parameter by a name any more."""
    return not any(_names(holder, parameter) for holder in gc.get_referrers(parameter))


def _names(holder: Any, parameter: torch.Tensor) -> bool:
    """Whether a holder is a dictionary, or an object with attributes, of anybody's but gradkit's own."""
    kept = holder if introspection.is_a(holder, dict) else introspection.attributes(holder)
    if not any(value is parameter for value in introspection.entries(kept)):
        return False
    owners = gc.get_referrers(kept) if kept is holder else [holder]  # up to Python 3.10, attributes are a dictionary
    return not any(type(one).__module__ == Preserved.__module__ for one in owners)


def _copies(optimizer: Optimizer, parameters: Iterable[Any], ran: Callable[[torch.Tensor], bool]) -> bool:
    """Whether an optimizer holds another copy of the same model, which nobody else holds and which took no part."""
    theirs, ours = _all(optimizer), [p for p in parameters if p.requires_grad]
    same = [p.shape for p in theirs if p.requires_grad] == [p.shape for p in ours]
    return same and len(ours) > 1 and all(orphaned(p) and not ran(p) for p in theirs)


_REGISTRIES = frozenset(("_modules", "_parameters", "_buffers"))


def hidden_parameters(
    step: Callable[[], Any], model: nn.Module, trace: Trace, ledger: Ledger, files: Sequence[str] = ()
) -> tuple[UnregisteredParameter, ...]:
    """What a model holds that a gradient reaches and no optimizer gets, in the order of the lists that hold it.

    Args:
        trace, ledger: of a run of ``step``.
        files: the user's, to look for what else is done with the gradient of a plain tensor.
    """
    tensors = ledger.alive(reaching(trace))
    tensors = {n: t for n, t in tensors.items() if isinstance(t, nn.Parameter) or plain_leaves.is_plain_leaf(t)}
    if not tensors:
        return ()
    optimizers = _optimizers()
    ids = {id(tensor) for tensor in tensors.values()}
    ids -= holding(optimizers)
    ids -= holders.paths_to([step], ids, apart=registered.each(model)).keys()
    held = holders.paths_to([model], ids)
    ways = [(n, t, held[id(t)][0].way()) for n, t in tensors.items() if id(t) in ids and id(t) in held]
    plain = _is_trained(model, optimizers)
    names = sorted(
        (_parts(way) for n, t, way in ways if _held(way, model)
        and (isinstance(t, nn.Parameter) or (plain and _is_forgotten(n, way, trace, files)))),
        key=_places,
    )  # fmt: skip
    return tuple(one for parts in names if (one := inventory.follow(model, parts)) is not None)


def _is_trained(model: nn.Module, optimizers: Sequence[Optimizer]) -> bool:
    """Whether any optimizer holds something of a model: else it is not known yet what is to be handed to one."""
    held = holding(optimizers)
    return any(id(one) in held for _, one in registered.parameters(model))


def _is_forgotten(number: int, way: Sequence[Edge], trace: Trace, files: Sequence[str]) -> bool:
    """Whether a plain tensor is a weight that the user's own class holds, and nothing is done with its gradient."""
    at = [i for i, edge in enumerate(way) if edge.kind == ATTRIBUTE]
    if not at or not reachable.is_users(type(way[at[-1]].holder)):
        return False
    owner, attribute = ".".join(map(str, _parts(way[: at[-1]]))), str(way[at[-1]].key)
    return plain_leaves.is_weight(trace, number, owner) and not gradients_read.is_read(files, f".{attribute}")


def reaching(trace: Trace) -> list[int]:
    """The numbers of the Parameters, and the like, that the model does not have and that a gradient comes to."""
    strays = [
        n for n, v in enumerate(trace.values)
        if v.stray and v.leaf and v.birth < 0 and v.maker < 0 and n not in trace.trained
    ]  # fmt: skip
    strays = sorted([*strays, *plain_leaves.untrained(trace)])
    alive = live_values(trace) if strays else ()
    return [number for number in strays if number in alive]


def live_values(trace: Trace) -> set[int]:
    """The numbers of the values that a gradient comes to from the loss."""
    alive = {trace.loss}
    for call in reversed(trace.calls):
        if call.grad_on and any(o in alive and trace.values[o].requires_grad for o in call.outputs):
            alive.update(call.inputs)
    return alive


def are_rivals(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether several optimizers that are alive train a model, each other parameters of it.

    Example:
        >>> layers = [nn.Linear(2, 1), nn.Linear(2, 1)]
        >>> several = [torch.optim.SGD(one.parameters()) for one in layers]
        >>> are_rivals([p for one in layers for p in one.parameters()]), are_rivals(layers[0].parameters())
        (True, False)
    """
    mine = {id(one) for one in parameters}
    held = [part for one in held_by_each() if (part := mine & one)]
    return any(one.isdisjoint(other) for one, other in itertools.combinations(held, 2))


def held_by_each() -> list[set[int]]:
    """For each optimizer that is alive, the ids of all that it holds."""
    return [holding([one]) for one in _optimizers()]


def _optimizers() -> list[Optimizer]:
    """All that are alive. Asked of the type: an object may do anything when it is asked for its class."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]


def _held(way: list[Edge], model: nn.Module) -> bool:
    """Whether a module of the model holds something by attributes, lists and dictionaries alone, and means to train it.

    Or by the variables of a function of the user's that it holds. Objects on the way are of the user's own classes, or
    mere namespaces: what a library keeps for itself is its own matter.
    """
    kinds = all(edge.kind in (ATTRIBUTE, ITEM, ELEMENT) or _in_tuple(edge) or _in_function(edge) for edge in way)
    objects = [edge.holder for edge in way if edge.kind == ATTRIBUTE]
    modules = [thing for thing in objects if introspection.is_a(thing, nn.Module)]
    plain = (nn.Module, SimpleNamespace)
    helpers = all(introspection.is_a(thing, plain) or reachable.is_users(type(thing)) for thing in objects)
    classes = any(introspection.is_a(thing, type) for thing in objects)
    return kinds and helpers and not classes and all(one.training for one in modules if model.training)


def _in_tuple(edge: Edge) -> bool:
    return edge.kind == PART and introspection.is_a(edge.holder, tuple)


def _in_function(edge: Edge) -> bool:
    """Whether a function of the user's holds something in a variable of the function around it."""
    held = edge.kind == VARIABLE and edge.before is not None
    return held and edge.code is not None and frames.is_user_file(edge.code.co_filename)


def _parts(way: Iterable[Edge]) -> list[Any]:
    return [edge.key for edge in way if not (edge.key in _REGISTRIES and introspection.is_a(edge.holder, nn.Module))]


def _places(parts: list[Any]) -> list[int]:
    return [part for part in parts if isinstance(part, int)]


# -- steps that changed nothing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IdleStep:
    """A step of an optimizer that changed nothing.

    Attributes:
        kind: a constant of ``tracing.after_backward``.
        chain: the user's frames where that was done, innermost first; ``()`` where the optimizer is at fault itself.
        built: the optimizer, as far as rules may look at it; what it holds is not told in it.
        names: parameters that were to learn.
    """

    kind: str
    chain: Chain
    built: Gap
    names: tuple[str, ...]


def idle_steps(heard: Iterable[Idle], parameters: Mapping[str, torch.Tensor]) -> tuple[IdleStep, ...]:
    """What was heard, as records.

    Args:
        parameters: the model's, by name.

    Example:
        >>> idle_steps([], {})
        ()
    """
    return tuple(IdleStep(one.kind, one.chain, _idle_gap(one, parameters), one.names) for one in heard)


def _idle_gap(one: Idle, parameters: Mapping[str, torch.Tensor]) -> Gap:
    copied = _copied(one.optimizer, [parameters[name] for name in one.names])
    return replace(gap_of(one.optimizer, one.names), copied=copied)
