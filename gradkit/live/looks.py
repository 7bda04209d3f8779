"""Cheap looks at what an optimizer holds: gradients that are missing, zero or not finite, parameters that never move.

A look is made in steps 1, 2, 3, 10, 100, 1,000 ... of an optimizer, and in the steps right after one that gives rise to
suspicion. A suspicion is no finding: it is the reason to run the step again. All that is kept are numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

LASTING = 3  # looks in a row
MISSING, ZERO, NOT_FINITE, FROZEN, EMPTY_GROUP = "missing", "zero", "not_finite", "frozen", "empty_group"
DEAD_TERM, WEIGHTLESS = "dead_term", "weightless"


def next_after(step: int) -> int:
    """The step of the next look, if nothing is suspicious.

    Example:
        >>> [next_after(step) for step in (0, 1, 2, 3, 9, 10, 11, 100)]
        [1, 2, 3, 10, 10, 100, 100, 1000]
    """
    if step < LASTING:
        return step + 1
    due = 10
    while due <= step:
        due *= 10
    return due


class Looks:
    """What was seen of one optimizer.

    Attributes:
        steps: how many steps it took.
        due: the step in which it is looked at next.
        suspicions: what the last look found suspicious, of this module's constants.
        lasted: how many looks in a row found something.
        missing: ids of parameters whose ``.grad`` was None in every look so far.
        idle: what the loss of this step holds that hands on no gradient: ``DEAD_TERM``, ``WEIGHTLESS``.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(layer.parameters())
        >>> looks = Looks(optimizer)
        >>> sorted(looks.look()), looks.missing == {id(layer.weight), id(layer.bias)}
        (['missing'], True)
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.steps, self.due, self.lasted, self._before, self._made = 0, 1, 0, 0, 0
        self.suspicions: frozenset[str] = frozenset()
        self.missing: set[int] = set()
        self.idle: frozenset[str] = frozenset()
        self._zero: dict[int, int] = {}
        self._looked: set[int] = set()
        self._versions = versions(held_by(optimizer))

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, as long as it lives."""
        return self._optimizer()

    def look(self) -> frozenset[str]:
        """Look at the gradients as they are now: one wait for each device that holds some, and nothing is changed.

        Returns:
            What is suspicious; ``suspicions`` and ``lasted`` are the same afterwards.
        """
        optimizer = self.optimizer
        if optimizer is None or _is_capturing():
            return frozenset()
        self._made += 1
        held = [one for one in held_by(optimizer) if one.numel()]
        open_ones = [one for one in held if one.requires_grad]
        found = {FROZEN} if held and not open_ones else set[str]()
        found |= {EMPTY_GROUP} if any(not group["params"] for group in optimizer.param_groups) else set()
        found |= self._without(open_ones) | self.idle
        found |= self._numbers([one for one in open_ones if one.grad is not None], _is_scaled(optimizer))
        self._before = self.lasted
        return self.suspect(frozenset(found))

    def suspect(self, found: frozenset[str]) -> frozenset[str]:
        """Take note of all that the look of this step found, also beside the gradients."""
        self.suspicions = found
        self.lasted = self._before + 1 if found else 0
        self.due = self.steps + 1 if 0 < self.lasted < LASTING else next_after(self.steps)
        return found

    def _without(self, parameters: Sequence[torch.Tensor]) -> set[str]:
        """What had no gradient in any look. (A parameter that joins later is taken note of when it does.)"""
        none = {id(one) for one in parameters if one.grad is None}
        new = {id(one) for one in parameters} - self._looked
        self._looked |= new
        self.missing = (self.missing & none) | (new & none)
        self._strike_off(parameters)
        return {MISSING} if self.missing else set()

    def _strike_off(self, parameters: Iterable[torch.Tensor]) -> None:
        """What was written since the first step has had a gradient in some step between the looks."""
        for number, version in versions(parameters).items():
            if self._versions.setdefault(number, version) != version:
                self.missing.discard(number)

    def still_missing(self) -> set[int]:
        """Ids of the parameters that had no gradient in any look, and that no step has trained meanwhile."""
        if (optimizer := self.optimizer) is not None:
            self._strike_off(held_by(optimizer))
            self.missing -= _trained(optimizer, seen=self._made == self.steps)
        return set(self.missing)

    def zero(self) -> frozenset[int]:
        """Ids of the parameters whose gradient was zero in every look, and of which no trace of another is left."""
        optimizer = self.optimizer
        found = {number for number, times in self._zero.items() if times >= self._made > 0}
        return frozenset(found - (_ever_more(optimizer) if optimizer is not None else set()))

    def again_soon(self) -> None:
        """Look again before another quarter of the steps so far is over."""
        self.due = min(self.due, self.steps + max(1, self.steps // 4))

    def _numbers(self, parameters: Sequence[torch.Tensor], scaled: bool) -> set[str]:
        most = dict(zip(map(id, parameters), _largest(parameters), strict=True))
        self._zero = {number: self._zero.get(number, 0) + 1 for number, value in most.items() if value == 0}
        found = {ZERO} if any(times >= LASTING for times in self._zero.values()) else set[str]()
        finite = all(value is None or abs(value) < float("inf") for value in most.values())
        return found if finite or scaled else {*found, NOT_FINITE}


def held_by(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters that an optimizer holds, in the order of its groups."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def versions(parameters: Iterable[torch.Tensor]) -> dict[int, int]:
    """How often each parameter was written in place, by ids; torch counts that, whoever writes."""
    return {id(one): one._version for one in parameters if not one.is_inference()}  # noqa: SLF001


def _trained(optimizer: Optimizer, *, seen: bool) -> set[int]:
    """Ids of what an optimizer has made a state for, which it does at the first gradient.

    Fused kernels write without torch's counting it; where one keeps no state either, nothing is known of its group
    unless every step was looked at.
    """
    trained = {id(one) for one in held_by(optimizer) if optimizer.state.get(one)}
    for group in [] if seen else optimizer.param_groups:
        if group.get("fused") and not trained.intersection(map(id, group["params"])):
            trained |= set(map(id, group["params"]))
    return trained


def _ever_more(optimizer: Optimizer) -> set[int]:
    """Ids of the parameters that have a gradient other than zero now, or had one as the optimizer's state tells."""
    found = set[int]()
    for one in held_by(optimizer):
        state = optimizer.state.get(one, {})
        for kept in (one.grad, *(state.get(name) for name in ("exp_avg_sq", "square_avg", "sum"))):
            plain = _plain(kept) if isinstance(kept, torch.Tensor) else None
            if plain is not None and bool((plain != 0).any()):
                found.add(id(one))
    return found


def _largest(parameters: Sequence[torch.Tensor]) -> list[float | None]:
    """The largest absolute value of each gradient, nan if it holds one; None where that cannot be seen cheaply."""
    found: list[float | None] = [None] * len(parameters)
    by_device: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for number, one in enumerate(parameters):
        gradient = _plain(one.grad)
        if gradient is not None:
            by_device.setdefault(gradient.device, []).append((number, gradient))
    with torch.no_grad():
        for pairs in by_device.values():
            norms = torch._foreach_norm([gradient for _, gradient in pairs], float("inf"))  # noqa: SLF001
            values = torch.stack([norm.double() if norm.device.type != "mps" else norm.float() for norm in norms])
            for (number, _), value in zip(pairs, values.tolist(), strict=True):
                found[number] = value
    return found


def _plain(gradient: Any) -> torch.Tensor | None:
    """The numbers of a gradient that lie in this process; None if they are no dense tensor of floating numbers."""
    if hasattr(gradient, "to_local"):  # a DTensor: what other ranks hold would have to be asked for
        gradient = gradient.to_local()
    if gradient.layout is not torch.strided or gradient.is_meta or not gradient.numel():
        return None
    return gradient if type(gradient) in (torch.Tensor, nn.Parameter) and gradient.is_floating_point() else None


def _is_scaled(optimizer: Optimizer) -> bool:
    """Whether a GradScaler left it to the optimizer to divide, and to skip what overflowed: that is no fault."""
    return getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None


def _is_capturing() -> bool:
    """Whether a CUDA graph is being recorded: nothing may wait for the device then."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
