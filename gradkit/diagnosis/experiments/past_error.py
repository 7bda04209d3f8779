"""Run the step on past an error: what raises is passed over, so that the forward is recorded to its end.

No backward is carried out. Whatever stands in the graph behind a loss that one was asked of counts as reached: which
parameters take no part in a loss is known without a backward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.amp import GradScaler

from gradkit.core import introspection, operations, patches
from gradkit.core.errors import GradkitError
from gradkit.core.trace import INFERENCE, Trace
from gradkit.diagnosis.experiments import undo_errors
from gradkit.diagnosis.experiments.plan import Known
from gradkit.diagnosis.experiments.undo_cuts import Rerun, UndoCuts
from gradkit.diagnosis.facts import loss_terms
from gradkit.diagnosis.facts.cuts import Cut
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.optimizers import Gap
from gradkit.load import call
from gradkit.source import faults
from gradkit.source.faults import on_behalf
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.backward import Reached, leaves_of
from gradkit.tracing.interventions import Instead, Intervention, Moment
from gradkit.tracing.ledger import Ledger, leaves
from gradkit.tracing.run import Session, graph_of
from gradkit.tracing.tracer import Tracer

_OF_BACKWARD = frozenset((
    autograd_errors.TWICE, autograd_errors.OVERWRITTEN, autograd_errors.MANY_ELEMENTS, autograd_errors.BAD_GRADIENT,
    autograd_errors.HOOK_RESULT, autograd_errors.NO_DERIVATIVE, autograd_errors.NAN_RETURNED, autograd_errors.EVAL_ONLY,
    autograd_errors.SCALER, autograd_errors.REDUCTION, autograd_errors.UNUSED, autograd_errors.NOT_ASKED,
    autograd_errors.NO_HISTORY, autograd_errors.INFERENCE, autograd_errors.LEAF_WRITTEN,
))  # fmt: skip


def can_pass(mishap: AutogradError) -> bool:
    """Whether a step can be run on past an error: of those that come before a backward, few leave anything to go on
    with."""
    return bool(mishap.inside) or mishap.kind in _OF_BACKWARD


Lacking = Callable[[Tracer, Trace], Gap]
"""Tells what the optimizers lack at the end of a run that was recorded."""


@dataclass(frozen=True)
class Past:
    """A run past an error.

    Attributes:
        first: it, as a first run that did not raise: the parameters in the graphs behind its losses are reached,
            without norms.
        ledger: the tensors of it, as far as they are still alive.
    """

    first: FirstRun
    ledger: Ledger


@dataclass
class PassOver(Intervention):
    """Goes on where the step would raise.

    Args:
        mishap: what it raises.
        trace: of the run in which it did, as far as that came.

    Attributes:
        losses: the tensors that a backward was asked of, in order.
        named: those that a gradient by parameters was asked of.
    """

    mishap: AutogradError
    trace: Trace
    losses: list[torch.Tensor] = field(default_factory=list)
    named: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        inference = self.mishap.kind == autograd_errors.INFERENCE
        self.skip = frozenset(one.key for one in self.trace.regions if one.kind == INFERENCE and inference)

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """What gradient scalers refuse to do is left out: no backward has filled a gradient."""
        with patches.undone():
            for name in ("unscale_", "step", "update"):
                patches.replace(GradScaler, name, _lenient(vars(GradScaler)[name]))
            yield

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """A derivative that is not to be had is zero, with the history of what it was asked of; a write is not
        recorded where it is refused."""
        if func is torch.autograd.grad:
            return partial(self._slope, _by_parameters(args, kwargs)), args, kwargs
        if self.mishap.kind == autograd_errors.LEAF_WRITTEN and _writes_a_leaf(func, args):
            return partial(_unrecorded, func), args, kwargs
        return func, args, kwargs

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Remember the loss, and leave the backward out."""
        self.losses += [one for one in losses if one.requires_grad]
        return False

    @on_behalf
    def _slope(self, parameters: bool, /, *args: Any, **kwargs: Any) -> Any:
        asked = leaves([args[0] if args else kwargs["outputs"]])
        self.named += [one for one in asked if parameters and one.requires_grad]
        try:
            return torch.autograd.grad(*args[:3], **{**_slope_options(args, kwargs), "retain_graph": True})
        except RuntimeError:
            return _zeros(asked, leaves([args[1] if len(args) > 1 else kwargs["inputs"]]))


def _by_parameters(args: Any, kwargs: Any) -> bool:
    inputs = leaves([args[1] if len(args) > 1 else kwargs.get("inputs", ())])
    return any(isinstance(one, torch.nn.Parameter) for one in inputs)


def _slope_options(args: Any, kwargs: Any) -> dict[str, Any]:
    """What ``torch.autograd.grad`` was told by position from the fourth on, by name."""
    names = ("retain_graph", "create_graph", "only_inputs", "allow_unused", "is_grads_batched", "materialize_grads")
    return {**dict(zip(names, args[3:], strict=False)), **kwargs}


def _zeros(asked: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    nothing: Any = sum((one.sum() * 0).nan_to_num() for one in asked)
    return tuple(torch.zeros_like(one) + nothing for one in inputs)


def _writes_a_leaf(func: Any, args: Any) -> bool:
    target = args[0] if args and operations.writes(getattr(func, "__name__", "")) else None
    return isinstance(target, torch.Tensor) and target.requires_grad and target.is_leaf


@on_behalf
def _unrecorded(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return func(*args, **kwargs)


def _lenient(original: Callable[..., Any]) -> Callable[..., Any]:
    @on_behalf
    def method(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(scaler, *args, **kwargs)
        except (RuntimeError, AssertionError):
            return None

    return method


def run(
    session: Session, known: Known, *interventions: Intervention, gap: Lacking = lambda tracer, trace: Gap()
) -> Past | None:
    """Run the step past its error; None if it cannot go on, or if what it returns has no graph.

    Args:
        known: what is known of the error; it has one.
        interventions: what else is changed in this run.
        gap: asked what the optimizers lack, while the model is as the step left it.
    """
    mishap = known.first.mishap
    if mishap is None:
        return None
    passing = PassOver(mishap, known.first.trace)

    def records(tracer: Tracer, result: Any) -> Past | None:
        loss = _loss(result, passing)
        return None if loss is None else _past(session, known, tracer, loss, passing, gap)

    try:
        return session.ask(records, passing, *interventions)
    except Exception as error:
        if faults.is_ours(error):
            raise
        return None


def _loss(result: Any, passing: PassOver) -> torch.Tensor | None:
    """What the step returned, if it can be gone back from; else what it last asked a backward of."""
    try:
        loss = result if introspection.is_a(result, torch.Tensor) else call.as_loss(result, "step")
    except GradkitError:
        loss = None
    asked = (*passing.named, *passing.losses)[-1:]
    return next((one for one in (loss, *asked) if one is not None and one.requires_grad), None)


def _past(session: Session, known: Known, tracer: Tracer, loss: torch.Tensor, passing: PassOver, gap: Lacking) -> Past:
    trace = tracer.trace(loss)
    lacking = gap(tracer, trace)
    names = {id(one): name for name, one in session.preserved.parameters.items()}
    asked = [*passing.losses, *passing.named, loss]
    behind = {names[id(leaf)]: None for one in asked for leaf in leaves_of(one) if id(leaf) in names}
    alive: dict[str, float | None] = {**behind, **dict.fromkeys(known.first.reached.norms)}
    numbers = [n for one in passing.losses if (n := tracer.ledger.known(one)) is not None]
    terms = loss_terms.terms(trace, [*numbers, trace.loss], tracer.ledger.scalars, alive)
    first = FirstRun(
        trace, graph_of([loss], session.preserved), Reached(alive, True, elements=loss.numel()), known.first.value,
        gap=lacking, terms=terms, trains=known.first.trains,
    )  # fmt: skip
    return Past(first, tracer.ledger)


def rerun(session: Session, known: Known, cuts: Iterable[Cut]) -> tuple[Rerun, bool]:
    """The run past the error with cuts undone as well, and whether a backward was run that shows it.

    Where the error itself can be mended, a backward is; else what comes back into the graph is all that is seen.
    """
    cuts, first = tuple(cuts), known.first
    past = run(session, known, UndoCuts(cuts))
    if past is None:
        return Rerun(None, 1), False
    found = Rerun(frozenset(past.first.reached.norms), 1, trace=past.first.trace, graph=past.first.graph)
    taken = [one for one, *_ in first.taken_over]
    resets, mishap, mended_by = [one for *_, one in first.resets], first.mishap, known.shown.mended
    mending = undo_errors.mending(mishap, first.crossing, taken, resets, mended_by) if mishap else None
    if mending is None:
        return found, False
    mended = session.run(UndoCuts(cuts), mending)
    if mended.error:
        return replace(found, runs=2), False
    return replace(found, revived=frozenset(mended.reached.norms), runs=2), True
