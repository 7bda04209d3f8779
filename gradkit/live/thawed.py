"""Parameters that the failing step itself has let train, after its loss was made.

A step may change what requires grad: peft's ``disable_adapter()`` lets the adapter train as it is left, and a step that
failed for want of a gradient would not fail when it is run again. So it is run again from where it began.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from gradkit.core import patches
from gradkit.live import whose
from gradkit.live.candidates import Candidate
from gradkit.source import locations
from gradkit.state import registered
from gradkit.witness import listening
from gradkit.witness.deeds import THAWED, Deed
from gradkit.witness.histories import deeds_of


def by(candidate: Candidate, step: Callable[[], object]) -> tuple[torch.Tensor, ...]:
    """The parameters of the modules in sight that the last pass of a unit has let train.

    Args:
        candidate: the unit.
        step: the same as a function.
    """
    modules = whose.modules_within_sight(step, candidate).values()
    parameters = {id(one): one for module in modules for _, one in registered.parameters(module)}
    return tuple(one for one in parameters.values() if one.requires_grad and _is_by(candidate, deeds_of(one)))


def _is_by(candidate: Candidate, deeds: Sequence[Deed]) -> bool:
    """Whether the last of some deeds was done by the statements of a unit."""
    if not deeds or deeds[-1].kind != THAWED:
        return False
    unit, code = candidate.unit, candidate.point.code
    lines = (locations.line_of(point) for point in deeds[-1].chain if point[0] is code)
    return any(unit.first <= line <= unit.last for line in lines)


@contextlib.contextmanager
def undone(parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """While the block lasts, these parameters do not require grad.

    Example:
        >>> weight = torch.ones(1, requires_grad=True)
        >>> with undone([weight]): weight.requires_grad
        False
        >>> weight.requires_grad
        True
    """
    with listening.paused(), patches.undone():
        for one in parameters:
            patches.later(partial(one.requires_grad_, True))
            one.requires_grad_(False)
        yield
