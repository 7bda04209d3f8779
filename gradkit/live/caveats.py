"""How a rerun differs from what the program ran: the batch, what is carried from pass to pass, dropout, the weights.

Each is a ``Note`` whose sentence is ``origin.caveat.<kind>``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.core.records import Note
from gradkit.live import whole_weights
from gradkit.live.candidates import Candidate
from gradkit.state import registered
from gradkit.tracing import ranks

_DROPS = nn.modules.dropout._DropoutNd  # noqa: SLF001  what all kinds of dropout are
_FEW = 64


def of(candidate: Candidate, model: nn.Module | None, *, after_step: bool = False) -> tuple[Note, ...]:
    """What differs, as far as it is known.

    Args:
        model: the one that was diagnosed.
        after_step: the optimizer had stepped before.
    """
    unit, found = candidate.unit, list[Note]()
    if unit.redraws:
        found.append(Note("redrawn", None, {"names": ", ".join(sorted(unit.targets)), "source": unit.over}))
    carried = [name for name in carried_by(candidate) if not (unit.redraws and name in unit.targets)]
    if carried:
        found.append(Note("carried", None, {"names": ", ".join(carried)}))
    if model is not None and any(map(_drops, registered.each(model))):
        found.append(Note("dropout", None, {}))
    if after_step or _stepped_within(candidate):
        found.append(Note("weights", None, {}))
    if whole_weights.kept.is_older:
        found.append(Note("older", None, {}))
    if ranks.several():
        found.append(Note("one_rank", None, {}))
    return tuple(found)


def carried_by(candidate: Candidate) -> tuple[str, ...]:
    """Names of tensors that a unit reads first and then writes over: what they held at its start is gone."""
    local = candidate.point.frame.f_locals
    return tuple(name for name in sorted(candidate.unit.lost) if any(True for _ in tensors_in(local.get(name))))


def written_over(candidate: Candidate) -> tuple[str, ...]:
    """Of what a loop or a caller hands to a unit, the names that hold what the unit itself has computed by now."""
    local = candidate.point.frame.f_locals
    given = sorted(candidate.unit.lost & candidate.unit.targets)
    return tuple(name for name in given if any(one.grad_fn is not None for one in tensors_in(local.get(name))))


def tensors_in(value: Any, depth: int = 2) -> Iterator[torch.Tensor]:
    """The tensors in a value, small containers opened.

    Example:
        >>> len(list(tensors_in({"a": [torch.ones(1)], "b": 3})))
        1
    """
    if introspection.is_a(value, torch.Tensor):
        yield value
    elif depth and introspection.is_a(value, (list, tuple, dict)):
        for one in introspection.entries(value)[:_FEW]:
            yield from tensors_in(one, depth - 1)


def _drops(module: nn.Module) -> bool:
    if introspection.is_a(module, _DROPS):
        return bool(module.training and module.p > 0)
    inner = getattr(module, "dropout", 0.0)
    return module.training and isinstance(inner, float) and inner > 0


def _stepped_within(candidate: Candidate) -> bool:
    """Whether the unit calls an optimizer's ``step(closure)``, which may have moved the weights before it failed."""
    for point in candidate.stack[candidate.at + 1 :]:
        own = point.frame.f_locals.get("self") if point.code.co_name == "step" else None
        if introspection.is_a(own, Optimizer):
            return True
    return False
