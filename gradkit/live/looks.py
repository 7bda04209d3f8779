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

from gradkit.tracing.after_backward import held_by, is_at_rest

LASTING = 3  # looks in a row
MISSING, ZERO, NOT_FINITE, FROZEN, EMPTY_GROUP = "missing", "zero", "not_finite", "frozen", "empty_group"
BARE, AT_REST, SCALED = "bare", "at_rest", "scaled"
DEAD_TERM, WEIGHTLESS, UNADDED = "dead_term", "weightless", "unadded"


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
        at_rest: the learning rate was 0 in every step so far.
        idle: what the loss of this step holds that hands on no gradient, and what stands beside its terms:
            ``DEAD_TERM``, ``WEIGHTLESS``, ``UNADDED``.

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
        self.at_rest, self._full, self._arrived = True, 1, False
        self.idle: frozenset[str] = frozenset()
        self._zero: dict[int, int] = {}
        self._looked: set[int] = set()
        self._is_renewed = self._is_left = False
        self._versions = versions(held_by(optimizer))

    @property
    def is_bare(self) -> bool:
        """Whether nothing that may train had a gradient other than zeros in any look."""
        return bool(self._looked) and not self._arrived

    @property
    def moves(self) -> bool:
        """Whether it has stepped, and not at a learning rate of 0 alone."""
        return self.steps > 0 and not self.at_rest

    @property
    def held(self) -> frozenset[int]:
        """Ids of the parameters that it has been seen to hold."""
        return frozenset(self._versions)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, as long as it lives."""
        return self._optimizer()

    def renew(self) -> None:
        """The model has changed: what had a gradient before may have been left behind as a whole."""
        self._is_renewed = True

    def look(self) -> frozenset[str]:
        """Look at the gradients as they are now: one wait for each device that holds some, and nothing is changed.

        Returns:
            What is suspicious; ``suspicions`` and ``lasted`` are the same afterwards.
        """
        optimizer = self.optimizer
        if optimizer is None or _is_capturing():
            return frozenset()
        self._made += 1
        self.at_rest = self.at_rest and is_at_rest(optimizer)
        held = [one for one in held_by(optimizer) if one.numel()]
        open_ones = [one for one in held if one.requires_grad]
        found = {FROZEN} if held and not open_ones else set[str]()
        found |= {EMPTY_GROUP} if any(not group["params"] for group in optimizer.param_groups) else set()
        found |= self._without(open_ones) | self.idle
        found |= self._numbers([one for one in open_ones if one.grad is not None], _is_scaled(optimizer))
        found |= {AT_REST} if self.at_rest else set()
        self._before = self.lasted
        return self.suspect(frozenset(found))

    def suspect(self, found: frozenset[str]) -> frozenset[str]:
        """Take note of all that the look of this step found, also beside the gradients."""
        self.suspicions = found
        self.lasted = self._before + 1 if found - {AT_REST} else 0
        self._full = self.steps + 1 if 0 < self.lasted < LASTING else next_after(self.steps)
        self.due = self.steps + 1 if self.at_rest else self._full
        return found

    def is_still_at_rest(self) -> bool:
        """Whether this step is looked at for its learning rate only, and that is 0 once more: then that is all."""
        optimizer = self.optimizer
        if not self.at_rest or self.steps >= self._full or optimizer is None:
            return False
        self.at_rest = is_at_rest(optimizer)
        self.due = self.steps + 1 if self.at_rest else self._full
        self.suspicions -= set() if self.at_rest else {AT_REST}
        return True

    def is_untouched(self) -> bool:
        """Whether the optimizer has never stepped, and nobody else has written what it holds."""
        optimizer = self.optimizer
        if self.steps or optimizer is None:
            return not self.steps
        now = versions(held_by(optimizer)).items()
        return not optimizer.state and all(self._versions.get(number) == version for number, version in now)

    def _without(self, parameters: Sequence[torch.Tensor]) -> set[str]:
        """What had no gradient in any look. (A parameter that joins later is taken note of when it does.)"""
        none = {id(one) for one in parameters if one.grad is None}
        new = {id(one) for one in parameters} - self._looked
        self._looked |= new
        self.missing = (self.missing & none) | (new & none)
        self._is_left = self._is_renewed and bool(none) and len(none) == len(parameters)
        self._strike_off(parameters)
        self._is_renewed, self.missing = self._is_left, none if self._is_left else self.missing
        return {MISSING} if self.missing else set()

    def _strike_off(self, parameters: Iterable[torch.Tensor]) -> None:
        """What was written since the first step has had a gradient in some step between the looks."""
        if isinstance(self.optimizer, torch.optim.LBFGS):  # it writes all that it holds
            return
        for number, version in versions(parameters).items():
            if self._versions.setdefault(number, version) != version:
                self.missing.discard(number)

    def still_missing(self) -> set[int]:
        """Ids of the parameters that had no gradient in any look, and that no step has trained meanwhile."""
        if (optimizer := self.optimizer) is not None and not self._is_left:
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
        self._arrived = self._arrived or any(value != 0 for value in most.values())
        self._zero = {number: self._zero.get(number, 0) + 1 for number, value in most.items() if value == 0}
        found = {ZERO} if any(times >= LASTING for times in self._zero.values()) else set[str]()
        finite = all(value is None or abs(value) < float("inf") for value in most.values())
        return found if finite or scaled else {*found, NOT_FINITE}


def versions(parameters: Iterable[torch.Tensor]) -> dict[int, int]:
    """How often each parameter was written in place, by ids; torch counts that, whoever writes."""
    return {id(one): one._version for one in parameters if not one.is_inference()}  # noqa: SLF001


def _trained(optimizer: Optimizer, *, seen: bool) -> set[int]:
    """Ids of what an optimizer has made a state for, which it does at the first gradient; LBFGS keeps one for all.

    Adagrad makes it at once, and counts the steps in it. Fused kernels write without torch's counting it; where one
    keeps no state either, nothing is known of its group unless every step was looked at.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        return set()
    counted = isinstance(optimizer, torch.optim.Adagrad)
    states = ((id(one), optimizer.state.get(one)) for one in held_by(optimizer))
    trained = {number for number, state in states if state and not (counted and float(state.get("step", 1)) == 0)}
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
    """What is 0, inf or nan where the largest absolute value of a gradient is; None where that takes long to see."""
    found: list[float | None] = [None] * len(parameters)
    by_device: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for number, one in enumerate(parameters):
        gradient = _plain(one.grad)
        if gradient is not None:
            by_device.setdefault(gradient.device, []).append((number, gradient))
    with torch.no_grad():
        for device, pairs in by_device.items():
            quick = device.type == "cpu"  # there the largest takes 25 times as long as the 2-norm
            numbers = _norms([gradient for _, gradient in pairs], 2 if quick else float("inf"))
            for (number, gradient), value in zip(pairs, numbers, strict=True):
                told = not quick or 0 < value < float("inf")  # else squares may have under- or overflowed
                found[number] = value if told else _norms([gradient], float("inf"))[0]
    return found


def _norms(gradients: list[torch.Tensor], order: float) -> list[float]:
    norms = torch._foreach_norm(gradients, order)  # noqa: SLF001
    values: list[float] = torch.stack([one.float() if one.is_mps else one.double() for one in norms]).tolist()
    return values


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
