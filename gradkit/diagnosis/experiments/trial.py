"""Run a step some times in a row as its program would, and measure each: its gradients, its graphs, what it keeps.

Unlike a ``Session``, which puts everything back before each run, the steps here follow one another: the optimizer steps
between them, and what one step has kept the next one finds. All is put back when the last has ended.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradkit.core import attempts, introspection, patches
from gradkit.core.tensors import has_no_numbers
from gradkit.diagnosis.facts import loss_terms
from gradkit.load import call
from gradkit.source import faults
from gradkit.source.faults import on_behalf
from gradkit.state.preserve import grad_of
from gradkit.tracing import backward, ledger
from gradkit.tracing.autograd_graph import leaf_of
from gradkit.tracing.interventions import Instead, Intervention, Moment
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer

STEPS = 3
_SAMPLE = 4096
_LARGEST = 2**28  # bytes: of larger models no copy is made, and so no optimizer steps
_TINY = 1e-4  # learning rate where the program's optimizer is not known
_NOISE = 4  # times the root of a dtype's precision, of a number


@dataclass
class OneBackward:
    """A backward of the first step.

    Attributes:
        reach: the ids of the leaves behind its loss.
        taken: the ids of what the optimizers that stepped next hold; None if none did.
        terms: likewise for each term of its loss, if that is a sum; else ``()``.
    """

    reach: frozenset[int]
    taken: frozenset[int] | None = None
    terms: tuple[frozenset[int], ...] = ()


@dataclass
class Trial:
    """What some steps in a row did. It holds gradients, and is not handed on.

    Attributes:
        steps: how many came to their end.
        error: what the next one raised, ``""`` if nothing.
        norms: 2-norm of the gradient of every leaf in the first step, by id: of what an optimizer took, else of what
            was left in ``.grad``; 1 where it has no numbers, as on the meta device.
        samples: some numbers of each of these gradients, always from the same places.
        leaves: the leaves themselves, so that their ids stay theirs.
        backwards: those of the first step, in order.
        terms: for each term of its loss, the ids of the leaves that it gives a gradient to; None if that is not
            known, or it goes backward itself.
        every_term: likewise of all losses that it goes backward from.
        nodes: for each step, how many nodes autograd's graphs had.
        kept: for each step, how many values with a history are alive after it.
        later: the ids of the leaves whose gradient was not zero in some step after the first.
        losses: what the first step went backward from, or would have, as numbers; each with what it may be off by.
        scalar: whether what it returned, if that is still to go backward, is one number.
    """

    steps: int = 0
    error: str = ""
    norms: dict[int, float] = field(default_factory=dict)
    samples: dict[int, torch.Tensor] = field(default_factory=dict)
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    backwards: list[OneBackward] = field(default_factory=list)
    terms: tuple[frozenset[int], ...] | None = None
    every_term: tuple[frozenset[int], ...] = ()
    nodes: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    later: set[int] = field(default_factory=set)
    losses: list[tuple[float, float]] = field(default_factory=list)
    scalar: bool = True


def trial(
    session: Session,
    optimizers: Sequence[torch.optim.Optimizer] = (),
    *,
    changed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    stale: Sequence[torch.Tensor] = (),
    steps: int = STEPS,
    until: frozenset[int] | None = None,
) -> Trial:
    """Run the step of ``session`` some times in a row, each time with the same data of iterators.

    Args:
        optimizers: those that the program has; they step after each step that does not step any itself.
        changed: held around all steps.
        stale: values from before, whose history is gone; the first step is handed them without.
        steps: how many.
        until: leaves, by id; once a later step has given all of them a gradient, that is enough.

    Raises:
        Exception: whatever gradkit itself raised, or ``changed`` did. What the step raises is told in the ``Trial``.
    """
    preserved = session.preserved
    preserved.rewind()
    preserved.clear_grads()
    for one in optimizers:
        preserved.optimizer(one)
    made = _Steps(session, optimizers, stale)
    try:
        with changed():
            made.run(steps, until)
    finally:
        made.end()
        preserved.rewind()
        preserved.clear_grads()
    return made.trial


class _Steps:
    """The steps of one trial."""

    def __init__(
        self, session: Session, optimizers: Sequence[torch.optim.Optimizer], stale: Sequence[torch.Tensor]
    ) -> None:
        self._session, self._optimizers, self._stale = session, optimizers, stale
        self.trial = Trial()
        self._since, self._nodes = -1, 0
        self._stepped = self._steps_itself = self._handed_over = False
        self._group: list[OneBackward] = []
        self._older: dict[int, Any] = {}
        self._now: dict[int, Any] = {}
        self._watch = _Histories()
        self._stood_before: Callable[[torch.Tensor], bool] = lambda _: True
        self._passing: set[int] = set()  # ids of leaves that the step itself makes: they come and go with it

    def end(self) -> None:
        self._older.clear()
        self._now.clear()

    def run(self, steps: int, until: frozenset[int] | None) -> None:
        for number in range(steps):
            self._nodes, self._stepped = 0, False
            try:
                self._step(first=number == 0)
            except Exception as error:
                if faults.is_ours(error):
                    raise
                self.trial.error = f"{type(error).__name__}: {introspection.text(error)}"
                return
            self.trial.steps += 1
            self.trial.nodes.append(self._nodes)
            self.trial.kept.append(self._watch.alive())
            if until is not None and until <= self.trial.later:
                return

    def _step(self, *, first: bool) -> None:
        session = self._session
        letting_go = [_WithoutHistory(self._stale)] if first and self._stale else []
        tracer = Tracer(session.model, session.preserved, [self._watch, *letting_go])
        with patches.undone(), tracer.interventions.during():
            hook = register_optimizer_step_pre_hook(partial(self._take, first))
            patches.later(hook.remove)
            patches.replace(torch.autograd, "backward", partial(self._backward, torch.autograd.backward, first))
            self._before()
            self._stood_before = tracer.ledger.is_old
            loss = tracer.run(session.step)
            self._since = tracer.begin if self._since < 0 else self._since
            if tracer.own(loss) is None:
                self._own_backward(call.as_loss(loss, "step"), first)
            self._after(first)
        tracer.interventions.refuse()

    def _own_backward(self, loss: torch.Tensor, first: bool) -> None:
        if not loss.requires_grad:
            self._note_losses([loss], first)
            return
        self.trial.scalar = loss.numel() == 1
        older = self._past(loss)
        start = None if loss.numel() == 1 else torch.ones_like(loss)
        self._handed_over = True
        with attempts.lifted(), torch.enable_grad():
            loss.backward(start, retain_graph=bool(older))  # type: ignore[no-untyped-call]
        if first and self.trial.terms is not None:
            self.trial.terms = tuple(one - self._passing for one in self.trial.terms)

    @on_behalf
    def _backward(self, original: Callable[..., None], first: bool, tensors: Any, *args: Any, **kwargs: Any) -> None:
        losses = [x for x in ([tensors] if isinstance(tensors, torch.Tensor) else tensors) if x.requires_grad]
        self._note_losses(losses, first)
        nodes = {id(node): node for loss in losses for node in backward.nodes_of(loss)}
        found = {id(leaf): leaf for node in nodes.values() if (leaf := leaf_of(node)) is not None}
        leaves = {key: leaf for key, leaf in found.items() if self._stood_before(leaf)}
        self._passing |= found.keys() - leaves.keys()
        self._nodes += len(nodes)
        for leaf in leaves.values():
            self._session.preserved.leaf(leaf)
        self._session.preserved.clear_grads(only_old=True)
        if first:
            self.trial.leaves.update(leaves)
            self._group = [one for one in self._group if one.taken is None]
            self._group.append(OneBackward(frozenset(leaves)))
            self.trial.backwards.append(self._group[-1])
            told = loss_terms.reached_by(losses[0]) if len(losses) == 1 else None
            self.trial.terms = told if self._handed_over else self.trial.terms
            self.trial.every_term += told or ()
            self._group[-1].terms = told or ()
        original(tensors, *args, **kwargs)

    def _past(self, loss: torch.Tensor) -> dict[int, Any]:
        """The nodes behind a loss that were made before the trial began: they are the user's, and not to be freed.

        A program would have freed them in the first of these steps, and would find them gone in the second.
        """
        nodes = {id(n): n for n in backward.nodes_of(loss) if leaf_of(n) is None and n._sequence_nr() < self._since}
        if self._older.keys() & nodes.keys():
            backward.refuse_a_second_walk()
        self._now.update({key: node for key, node in nodes.items() if backward.keeps_values(node)})
        return nodes

    def _note_losses(self, losses: Sequence[torch.Tensor], first: bool) -> None:
        """Their numbers, with what another order of computing may change in them."""
        for loss in losses if first else ():
            if loss.is_floating_point() and not has_no_numbers(loss):
                with torch.no_grad():
                    number = float(loss.detach().sum())
                self.trial.losses.append((number, _NOISE * torch.finfo(loss.dtype).eps ** 0.5 * max(abs(number), 1e-3)))

    # -- the optimizer ----------------------------------------------------------------------------------------------

    def _before(self) -> None:
        self._older = dict(self._now)
        if self.trial.steps:
            self._session.preserved.rewind_data()
        if self.trial.steps and not self._steps_itself:
            for leaf in self.trial.leaves.values():
                leaf.grad = None

    def _take(self, first: bool, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._stepped = True
        held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        for parameter in held.values():
            self._session.preserved.leaf(parameter)
            self._session.preserved.before_write(parameter)
        if not first:
            self._note_later(held)
        else:
            self._note(held)
            for one in self._group:
                one.taken = (one.taken or frozenset()) | held.keys()

    def _note(self, leaves: dict[int, torch.Tensor]) -> None:
        self.trial.leaves.update(leaves)
        for key, leaf in leaves.items():
            grad = grad_of(leaf)
            if grad is None or key in self.trial.norms:
                continue
            norm = next(iter(backward.norms({"": leaf}).values()))
            self.trial.norms[key] = 1.0 if norm is None else norm
            if backward.is_strided(grad) and not has_no_numbers(grad):
                flat = torch.view_as_real(grad).flatten() if grad.is_complex() else grad.flatten()
                self.trial.samples[key] = flat[:: max(1, flat.numel() // _SAMPLE)].detach().double().clone()

    def _note_later(self, leaves: Mapping[int, torch.Tensor]) -> None:
        for key in leaves.keys() - self.trial.later:
            grad = grad_of(leaves[key])
            if grad is not None and not has_no_numbers(grad) and bool((grad != 0).any()):
                self.trial.later.add(key)

    def _after(self, first: bool) -> None:
        """Let the program's optimizers step, if it does not do that in the step."""
        if first:
            self._note(dict(self.trial.leaves))
        else:
            self._note_later(self.trial.leaves)
        self._steps_itself = self._steps_itself or self._stepped
        if self._steps_itself:
            return
        held = {id(p): p for one in self._optimizers for group in one.param_groups for p in group["params"]}
        written = (held or self.trial.leaves).values()
        if sum(parameter.nbytes for parameter in written) > _LARGEST:
            return
        for parameter in written:
            self._session.preserved.leaf(parameter)
            self._session.preserved.before_write(parameter)
        if held:
            for one in self._optimizers:
                one.step()
            self._stepped = False
        else:
            self._descend()

    @torch.no_grad()
    def _descend(self) -> None:
        for leaf in self.trial.leaves.values():
            grad = grad_of(leaf)
            if grad is not None and leaf.is_leaf:
                leaf.sub_(grad, alpha=_TINY)


class _Histories(Intervention):
    """Remembers which values with a history were made, for as long as they live."""

    def __init__(self) -> None:
        self._made: dict[int, weakref.ref[torch.Tensor]] = {}
        self._were = 0

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Remember what a call has made."""
        for one in ledger.leaves([result]):
            if isinstance(one, torch.Tensor) and one.grad_fn is not None:
                self._made[id(one)] = weakref.ref(one)
        return result

    def alive(self) -> int:
        """How many of them are alive. A collection of all garbage takes long: only where there are more than before."""
        if sum(self._living()) > self._were:
            gc.collect()
        self._were = sum(self._living())
        return self._were

    def _living(self) -> Iterator[bool]:
        for one in list(self._made.values()):
            tensor = one()
            yield tensor is not None and tensor.grad_fn is not None


class _WithoutHistory(Intervention):
    """Hands some values out without their history."""

    def __init__(self, values: Sequence[torch.Tensor]) -> None:
        self._ids = {id(value) for value in values}

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """The same call, made with values that have no history."""
        if getattr(func, "__name__", "") == "detach":
            return func, args, kwargs
        return func, self._let_go(args), self._let_go(kwargs)

    def _let_go(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return given.detach() if id(given) in self._ids else given
        if isinstance(given, dict):
            return {key: self._let_go(value) for key, value in given.items()}
        return type(given)(self._let_go(x) for x in given) if type(given) in (list, tuple) else given
