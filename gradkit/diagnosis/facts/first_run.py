"""The first run of a step, as records: its calls, the graph behind its loss, what backward reached, what was raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.tensors import has_no_numbers, shape_of
from gradkit.core.trace import FUNCTION, Call, Chain, Trace
from gradkit.diagnosis.facts import loss_terms
from gradkit.diagnosis.facts.hooks import HooksSeen
from gradkit.diagnosis.facts.loss_terms import Term
from gradkit.diagnosis.facts.optimizers import Gap, IdleStep
from gradkit.load import call
from gradkit.load.step import Step, explain_failure
from gradkit.state.preserve import Preserved
from gradkit.tracing import autograd_errors, autograd_graph, backward, listeners, no_loss, refused
from gradkit.tracing import resets as rewriting
from gradkit.tracing.autograd_errors import AutogradError, Freeing
from gradkit.tracing.no_loss import NoLoss
from gradkit.tracing.run import backward_of, graph_of
from gradkit.tracing.scalers import Misuse
from gradkit.tracing.tracer import Tracer


@dataclass(frozen=True)
class FirstRun:
    """The first run; nothing of it is alive any more.

    Attributes:
        trace: its calls.
        graph: the autograd graph behind its loss.
        reached: what backward reached.
        value: the loss as text, or its shape if it is not a scalar; ``""`` if the step returned no tensor.
        mishap: an error of autograd's that the step or the backward raised.
        misuses: what the step did with a gradient scaler out of order.
        idle: steps of optimizers that changed nothing.
        gap: parameters that the optimizers do not hold.
        hooks: what is known of the user's hooks; None if there are none.
        no_loss: what stood in the place of the loss; None if the step returned a loss of its own, or went backward.
        losses: numbers of the losses that backward began from.
        terms: what the losses that backward began from are put together from, of those that are sums.
        trains: the step went backward of its loss itself; else who called for it goes on, and trains.
        scaler: where it last called each method of a gradient scaler's.
        frees_past: its backward frees a history that was there before it: a second step cannot use that again.
    """

    trace: Trace
    graph: autograd_graph.AutogradGraph
    reached: backward.Reached
    value: str
    mishap: AutogradError | None = None
    misuses: tuple[Misuse, ...] = ()
    idle: tuple[IdleStep, ...] = ()
    gap: Gap = field(default_factory=Gap)
    hooks: HooksSeen | None = None
    no_loss: NoLoss | None = None
    losses: tuple[int, ...] = ()
    terms: tuple[Term, ...] = ()
    trains: bool = False
    frees_past: bool = False
    scaler: Mapping[str, Chain] = field(default_factory=dict)

    @cached_property
    def crossing(self) -> tuple[tuple[Call, int], ...]:
        """The calls that used a history which is freed, and the value that brought it."""
        return autograd_errors.stale_histories(self.trace, self.mishap) if self.mishap is not None else ()

    @cached_property
    def taken_over(self) -> tuple[tuple[Call, int, Freeing], ...]:
        """The calls of a step that goes backward by itself which take over a history that it has freed."""
        twice = self.mishap is not None and self.mishap.kind == autograd_errors.TWICE
        return autograd_errors.taken_over(self.trace, self.mishap) if self.mishap is not None and twice else ()

    @cached_property
    def resets(self) -> tuple[tuple[Call, int, Call], ...]:
        """Of those calls, the ones whose value was given new numbers in place and kept its history: what gave them."""
        trace, freed = self.trace, self.mishap.freed if self.mishap is not None else frozenset()
        made = (
            (call, number, rewriting.of_value(trace, number, freed) or rewriting.of_its_numbers(trace, call, number))
            for call, number in self.crossing
        )
        return tuple((call, number, reset) for call, number, reset in made if reset is not None)

    @property
    def error(self) -> str:
        """What the step or backward raised; also where the step asked for a derivative by name and did not get it."""
        if self.reached.error or self.mishap is None:
            return self.reached.error
        return self.mishap.message if self.mishap.in_step and self.mishap.inputs else ""


def make(step: Step, tracer: Tracer, preserved: Preserved, tell: Callable[[str], None]) -> FirstRun:
    """Run a step for the first time, and the backward of its loss.

    Raises:
        GradkitError: the step cannot be run, or what it returns is nothing that a loss may have become.
    """
    preserved.clear_grads()
    try:
        result = tracer.run(step.run)
    except GradkitError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is explained or raised anew
        return _failed(error, tracer, step, preserved)
    tell("reach")
    own = tracer.own(result) is not None
    if not own and not introspection.is_a(result, torch.Tensor) and tracer.no_loss is None:
        result = call.as_loss(result, step.label or "step")
    trace = tracer.trace(result)
    if tracer.no_loss is not None and _trains_otherwise(tracer, trace):
        raise GradkitError("no_tensor", name=step.label or "step", got=tracer.no_loss.shown)
    graph, reached = backward_of(tracer, result, preserved)
    mishap = reached.mishap
    if tracer.asked is not None and not own:
        mishap = autograd_errors.classify(
            tracer.asked.error, in_step=True, asked=trace.loss, inputs=tracer.asked.inputs
        )
    value = _shown(result) if introspection.is_a(result, torch.Tensor) else ""
    return FirstRun(
        trace, graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found),
        no_loss=tracer.no_loss or _earlier(trace, tracer),
        losses=_losses(trace, tracer, own), terms=() if mishap else _terms(trace, tracer, reached, own), trains=own,
        frees_past=reached.frees_past or bool(tracer.backwards.spent), scaler=dict(tracer.scalers.last),
    )  # fmt: skip


def _terms(trace: Trace, tracer: Tracer, reached: backward.Reached, own: bool) -> tuple[Term, ...]:
    """The terms of every loss that backward began from, in the order of the run."""
    return loss_terms.terms(trace, _losses(trace, tracer, own), tracer.ledger.scalars, reached.norms)


def _losses(trace: Trace, tracer: Tracer, own: bool) -> tuple[int, ...]:
    """The numbers of the losses that backward began from, in the order of the run."""
    passes = [one.number for one in tracer.backwards.passes if one.number >= 0]
    return tuple(dict.fromkeys(passes if own and passes else [*passes, trace.loss]))


def _trains_otherwise(tracer: Tracer, trace: Trace) -> bool:
    """Whether the step takes gradients of what parameters flow into, without a graph: it may train by these.

    ``torch.func.grad`` takes them of what it has wrapped.
    """
    wrapped = {number for one in trace.calls if one.name == listeners.NAME for number in one.inputs}
    return any(trace.values[number].parameter for number in trace.sources(tracer.backwards.taken | wrapped))


def _earlier(trace: Trace, tracer: Tracer) -> NoLoss | None:
    if not no_loss.is_from_before(trace):
        return None
    passes = [one.chain for one in tracer.backwards.passes if one.number == trace.loss]
    return NoLoss(no_loss.EARLIER, "", passes[-1] if passes else ())


def _at_length(mishap: AutogradError | None, tracer: Tracer) -> AutogradError | None:
    """The mishap with what the step had done with its graphs by then."""
    if mishap is None:
        return None
    functions = {at for at, region in enumerate(tracer.switches.regions()) if region.kind == FUNCTION}
    freeing = tracer.backwards.freeing(lambda sequence: tracer.log.calls_at(sequence, functions))
    return replace(mishap, freeing=freeing, stepped_on=frozenset(tracer.stepped_on))


def _failed(error: Exception, tracer: Tracer, step: Step, preserved: Preserved) -> FirstRun:
    """The step raised: if it is one of autograd's errors, that is what there is to be explained."""
    asked = tracer.asked
    tensor = asked.tensor if asked is not None else None
    number = tracer.ledger.known(tensor) if tensor is not None else None
    mishap = autograd_errors.classify(
        error, in_step=True, asked=-1 if number is None else number, inputs=asked.inputs if asked is not None else ()
    )
    mishap = _of_no_leaf(error, mishap, tracer)
    if mishap is None:
        raise explain_failure(error, step) from error
    graph = graph_of([tensor], preserved) if tensor is not None else autograd_graph.AutogradGraph()
    norms = {**dict.fromkeys(graph.leaves & preserved.parameters.keys()), **tracer.backwards.reached}
    reached = backward.Reached(norms, False, mishap.message)
    value = _shown(tensor) if tensor is not None else ""
    trace = tracer.trace(tensor)
    earlier = NoLoss(no_loss.EARLIER, "", mishap.chain) if no_loss.is_from_before(trace) else None
    return FirstRun(
        trace, graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found), no_loss=earlier,
        scaler=dict(tracer.scalers.last),
    )  # fmt: skip


def _of_no_leaf(error: Exception, mishap: AutogradError | None, tracer: Tracer) -> AutogradError | None:
    """The mishap, with the values that are no leaves where that is what the error is about."""
    if mishap is not None and mishap.kind != autograd_errors.NOT_A_LEAF:
        return mishap
    computed = refused.without_gradient(error) if mishap is None else refused.by_an_optimizer(error)
    known = (tracer.ledger.known(one) for one in computed)
    numbers = tuple(number for number in known if number is not None)
    if mishap is None:
        return autograd_errors.of_no_leaf(error, numbers) if numbers else None
    return replace(mishap, inputs=numbers)


def _shown(loss: torch.Tensor) -> str:
    if has_no_numbers(loss) or loss.numel() != 1:
        return str(tuple(shape_of(loss)))
    with torch._C.DisableTorchFunctionSubclass():  # a subclass may answer otherwise
        return f"{loss.detach().item():.4f}"
