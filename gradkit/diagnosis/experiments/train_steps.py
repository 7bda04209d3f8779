"""A few steps of training in a row: how the loss goes, which parameters move, and what stays as it is, bit by bit.

All is put back afterwards. Nothing is judged here: a loss may rise, and a momentum encoder that requires no
gradient may be written by the step itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit.core import attempts, introspection
from gradkit.core.tensors import bits
from gradkit.diagnosis.facts import optimizers
from gradkit.load import call, failures
from gradkit.load.step import Step
from gradkit.state.preserve import Preserved, grad_of
from gradkit.state.reachable import optimizers_of
from gradkit.tracing.run import Session

RATE = 1e-3
"""Adam's learning rate, where the step reaches no optimizer."""
_COARSE = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Walk:
    """Some steps of training.

    Attributes:
        losses: of each step that ran.
        steps: how many were asked for.
        kinds: class names of the optimizers that made them.
        own: they are gradkit's, for the step reaches none.
        moved: names of the parameters that should train and have moved.
        still: those that have not a bit of them changed although a gradient came that is not zero.
        idle: those that did not move either, and could not be expected to: no gradient, or only zeros; no optimizer
            at hand holds them; its learning rate is 0; or the numbers are too coarse for such a small step.
        same: parameters that required no gradient and are the same, bit by bit.
        written: those that the step itself wrote.
        pushed: those that a step of the optimizer changed.
        error: what a step raised, in words; ``""`` if nothing.
    """

    losses: tuple[float, ...]
    steps: int
    kinds: tuple[str, ...] = ()
    own: bool = False
    moved: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    pushed: tuple[str, ...] = ()
    error: str = ""


def walked(step: Step, wanted: Sequence[str], steps: int, given: Sequence[Optimizer] = ()) -> Walk:
    """Make some steps of training, and put everything back.

    Args:
        step: a step that trains by itself is left to do so.
        wanted: names of the parameters that should train.
        steps: how many, at least 1.
        given: optimizers; none for those that the step reaches, or Adam if it reaches none.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> seen = walked(Step(lambda: model(torch.ones(1, 2)).sum(), model), ["weight", "bias"], 2)
        >>> seen.moved, seen.kinds, len(seen.losses)
        (('weight', 'bias'), ('Adam',), 2)
    """
    preserved = Preserved(step.model, step.run)
    return preserved.during(lambda: _Walk(step, wanted, steps, preserved, given).go())


@dataclass
class _Walk:
    step: Step
    wanted: Sequence[str]
    steps: int
    preserved: Preserved
    given: Sequence[Optimizer]
    losses: list[float] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    pushed: set[str] = field(default_factory=set)

    def go(self) -> Walk:
        """Run them; the parameters are looked at before anything is put back."""
        self.parameters = self.preserved.parameters
        self.makers, self.own = self._makers()
        for one in self.makers:
            self.preserved.optimizer(one)
        self.before = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.closed = {name for name, p in self.parameters.items() if not p.requires_grad}
        session = Session(self._train, self.step.model, self.preserved)
        return session.ask(lambda _tracer, error: self._seen(error))

    def _makers(self) -> tuple[list[Optimizer], bool]:
        mine = [self.parameters[name] for name in self.wanted if name in self.parameters]
        if self.given:
            return list(self.given), False
        found = [
            one for one in optimizers_of(self.step.run, self.step.model)
            if introspection.is_a(one, Optimizer) and {id(p) for p in mine} & optimizers.holding([one])
        ]  # fmt: skip
        return found, not found

    def _own_optimizers(self) -> list[Optimizer]:
        """Adam, and for gradients that are sparse, which it refuses, plain descent."""
        mine = {id(p): p for name in self.wanted if (p := self.parameters.get(name)) is not None}.values()
        kinds = [(p, (g := grad_of(p)) is not None and g.is_sparse) for p in mine if p.requires_grad and p.is_leaf]
        dense, sparse = [p for p, is_sparse in kinds if not is_sparse], [p for p, is_sparse in kinds if is_sparse]
        made: list[Optimizer] = [torch.optim.Adam(dense, lr=RATE)] if dense else []
        return [*made, torch.optim.SGD(sparse, lr=RATE)] if sparse else made

    def _train(self) -> str:
        for _ in range(self.steps):
            if self.own:
                self.preserved.clear_grads(only_own=True)
            for one in self.makers:
                one.zero_grad()
            start = {name: self.parameters[name].detach().clone() for name in self.wanted if name in self.parameters}
            try:
                loss = self._forward_and_backward(start)
                self._optimize(start)
            except Exception as error:  # noqa: BLE001  # the step is the user's; it is told
                return failures.cause_of(error)
            self.losses.append(loss)
        return ""

    def _forward_and_backward(self, start: dict[str, torch.Tensor]) -> float:
        loss = call.as_loss(self.step.run(), "step")
        trained = any(not same_bits(self.parameters[name], old) for name, old in start.items())
        if not trained and all(grad_of(self.parameters[name]) is None for name in start) and loss.requires_grad:
            with attempts.lifted():
                loss.sum().backward()  # type: ignore[no-untyped-call]
        return float(loss.detach().sum())

    def _optimize(self, start: dict[str, torch.Tensor]) -> None:
        for name in start:
            gradient = grad_of(self.parameters[name])
            if gradient is not None and bool(_values(gradient).any()):
                self.alive.add(name)
        if any(not same_bits(self.parameters[name], old) for name, old in start.items()):
            return  # the step has made one itself
        if self.own and not self.makers:
            self.makers = self._own_optimizers()
        closed = {name: self.parameters[name].detach().clone() for name in self.closed}
        for one in self.makers:
            one.step()
        self.pushed |= {name for name, old in closed.items() if not same_bits(self.parameters[name], old)}

    def _seen(self, error: str) -> Walk:
        changed = {name for name, old in self.before.items() if not same_bits(self.parameters[name], old)}
        quiet = [name for name in self.wanted if name in self.parameters and name not in changed]
        still = tuple(name for name in quiet if name in self.alive and self._can_move(name))
        return Walk(
            losses=tuple(self.losses), steps=self.steps, kinds=tuple(type(one).__name__ for one in self.makers),
            own=self.own, moved=tuple(name for name in self.wanted if name in changed), still=still,
            idle=tuple(name for name in quiet if name not in still),
            same=tuple(sorted(self.closed - changed)), pushed=tuple(sorted(self.pushed)),
            written=tuple(sorted((self.closed & changed) - self.pushed)), error=error,
        )  # fmt: skip

    def _can_move(self, name: str) -> bool:
        """Whether an optimizer at hand is to move it by as much as its numbers can tell."""
        parameter = self.parameters[name]
        groups: list[dict[str, Any]] = [group for one in self.makers for group in one.param_groups]
        held = [group for group in groups if any(one is parameter for one in group["params"])]
        if not held:
            return bool(self.given)
        rates = any(float(group.get("lr", 1)) != 0 for group in held)
        return rates and not (self.own and parameter.dtype in _COARSE)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same to the last bit: nan is the same as itself, and -0.0 is not 0.0.

    Example:
        >>> same_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
        True
        >>> same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
        False
    """
    one, other = _values(one.detach()), _values(other.detach())
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(bits(one), bits(other))


def _values(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers: of a sparse tensor all of them."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()
