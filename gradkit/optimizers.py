"""Which parameters the optimizers that a program has do not hold: read when the step has run, before it is undone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit import registered, strangers
from gradkit.preserve import Preserved

NEW, STALE, LEFT_OUT = "new", "stale", "left_out"


@dataclass(frozen=True)
class Gap:
    """What an optimizer does not hold.

    Attributes:
        kind: class name of the optimizer, ``""`` if there is none to speak of.
        settings: its defaults, as source code, to tell its line from others.
        missing: parameters of the model that no optimizer holds.
        reason: ``"new"`` (made by the step), ``"stale"`` (it holds others in their place), ``"left_out"``.
    """

    kind: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reason: str = ""


def gap(
    model: nn.Module, before: Mapping[str, torch.Tensor], given: Optimizer | None, found: Sequence[Optimizer],
    ran: Callable[[torch.Tensor], bool],
) -> Gap:  # fmt: skip
    """Compare the optimizers with the model as the step left it.

    Of an optimizer that was given, all that it and the others lack is told. Of one that was only come across, no more
    than is certain: it holds what nobody else does any more, or the parameters of another copy of the model, or lacks
    what the step itself has made.

    Args:
        before: the model's parameters by name, before the step.
        found: optimizers that the step can reach.
        ran: whether a tensor took part in the step.
    """
    optimizers = list({id(one): one for one in (given, *found) if one is not None}.values())
    held = holding(optimizers)
    now = {n: p for n, p in registered.parameters(model, twice=True) if n not in before and p.requires_grad}
    late = tuple(n for n, p in now.items() if id(p) not in held and ran(p))
    mine = {id(p) for p in before.values()} | {id(p) for p in now.values()}
    own = [one for one in optimizers if mine & holding([one])]
    if late and (given is not None or own):
        return _gap(given or own[0], late, NEW)
    left = tuple(n for n, p in before.items() if id(p) not in held)
    if given is not None:
        stale = not mine & holding([given]) or any(orphaned(p) for p in _strangers(given, mine, ran)) if left else False
        return _gap(given, left, STALE if stale else LEFT_OUT)
    for one in own if left else ():
        if any(orphaned(p) for p in _strangers(one, mine, ran)):
            return _gap(one, left, STALE)
    copies = [one for one in found if _copies(one, before.values(), ran)] if not own else []
    return _gap(copies[0], left, STALE) if copies else Gap()


def _gap(optimizer: Optimizer, missing: tuple[str, ...], reason: str) -> Gap:
    settings = {
        key: repr(value)
        for key, value in getattr(optimizer, "defaults", {}).items()
        if not isinstance(value, torch.Tensor)
    }
    return Gap(type(optimizer).__name__, settings, missing, reason)


def is_one(thing: Any) -> bool:
    """Whether something has groups of parameters, as an optimizer has, of whatever class it is.

    Example:
        >>> is_one(torch.optim.SGD([torch.ones(1)])), is_one([torch.ones(1)])
        (True, False)
    """
    groups = strangers.ask(thing, "param_groups")
    return strangers.is_a(groups, list) and all(
        strangers.is_a(group, dict) and strangers.is_a(dict.get(group, "params"), (list, tuple)) for group in groups
    )


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
    kept = holder if strangers.is_a(holder, dict) else strangers.attributes(holder)
    if not any(value is parameter for value in strangers.entries(kept)):
        return False
    owners = gc.get_referrers(kept) if kept is holder else [holder]  # up to Python 3.10, attributes are a dictionary
    return not any(type(one).__module__ == Preserved.__module__ for one in owners)


def _copies(optimizer: Optimizer, parameters: Iterable[Any], ran: Callable[[torch.Tensor], bool]) -> bool:
    """Whether an optimizer holds another copy of the same model, which nobody else holds and which took no part."""
    theirs, ours = _all(optimizer), [p for p in parameters if p.requires_grad]
    same = [p.shape for p in theirs if p.requires_grad] == [p.shape for p in ours]
    return same and len(ours) > 1 and all(orphaned(p) and not ran(p) for p in theirs)
