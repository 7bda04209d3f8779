"""A step run once, and what came of it: its calls, the graph behind its loss, and what backward reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import nn

from gradkit.core import attempts, introspection
from gradkit.core.operations import FILLED
from gradkit.core.trace import Chain, Trace
from gradkit.load import call
from gradkit.source import faults
from gradkit.state.preserve import Preserved
from gradkit.tracing import autograd_graph, backward
from gradkit.tracing.autograd_graph import AutogradGraph
from gradkit.tracing.backward import Reached
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.tracer import Tracer

STEP, BACKWARD = "step", "backward"
Said = TypeVar("Said")


@dataclass(frozen=True)
class Run:
    """A run as records; nothing of it is alive any more.

    Attributes:
        trace: its calls; None if the step raised.
        graph: the autograd graph of its loss.
        reached: what backward reached.
        error: what was raised by the user's code, ``""`` if nothing.
        where: ``"step"`` or ``"backward"``, which raised it.
    """

    trace: Trace | None = None
    graph: AutogradGraph = field(default_factory=AutogradGraph)
    reached: Reached = field(default_factory=Reached)
    error: str = ""
    where: str = ""


@dataclass(frozen=True)
class Session:
    """A step that is run again and again under the same conditions.

    Args:
        step: called without arguments; returns the loss, or anything else after a backward of its own.
        model: the model whose parameters are of interest.
        preserved: puts everything back before each run and after it; it is to be entered already.
        always: interventions of every run.

    Example:
        >>> import torch
        >>> model = nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     run = Session(lambda: model(torch.ones(1, 2)).sum(), model, preserved).run()
        >>> [call.name for call in run.trace.calls], sorted(run.reached.norms)
        (['ones', 'linear', 'sum'], ['bias', 'weight'])
    """

    step: Callable[[], Any]
    model: nn.Module
    preserved: Preserved
    always: tuple[Intervention, ...] = ()

    def run(self, *interventions: Intervention) -> Run:
        """Run the step once, and the backward of its loss unless it made that itself.

        What the user's code raises is told in the ``Run``.

        Raises:
            Exception: whatever gradkit itself raised around the step, or an intervention did.
        """

        def records(tracer: Tracer, loss: Any) -> Run:
            if tracer.own(loss) is None:
                loss = call.as_loss(loss, "step")
            trace = tracer.trace(loss)
            graph, reached = backward_of(tracer, loss, self.preserved)
            return Run(trace, graph, reached, reached.error, BACKWARD if reached.error else "")

        try:
            return self.ask(records, *interventions)
        except Exception as error:
            if faults.is_ours(error):
                raise
            return Run(error=f"{type(error).__name__}: {introspection.text(error)}", where=STEP)

    def ask(self, question: Callable[[Tracer, Any], Said], *interventions: Intervention) -> Said:
        """Run the step once, and hand ``question`` the tracer and what the step returned, while its graph is alive.

        Raises:
            Exception: whatever the step raised, or else gradkit around it; ``faults.is_ours`` tells them apart.

        Example:
            >>> import torch
            >>> model = nn.Linear(2, 1)
            >>> with Preserved(model) as preserved:
            ...     session = Session(lambda: model(torch.ones(1, 2)).sum(), model, preserved)
            ...     session.ask(lambda tracer, loss: loss.grad_fn.name())
            'SumBackward0'
        """
        self.preserved.rewind()
        self.preserved.clear_grads(only_own=True)
        tracer = Tracer(self.model, self.preserved, (*self.always, *interventions))
        try:
            with tracer.interventions.during():
                answer = question(tracer, tracer.run(self.step))
        except Exception:
            tracer.interventions.refuse()
            raise
        finally:
            self.preserved.rewind()
        tracer.interventions.refuse()
        return answer


def backward_of(tracer: Tracer, loss: Any, preserved: Preserved) -> tuple[AutogradGraph, Reached]:
    """The step's own backward of ``loss`` if it made one, else one that is run now; all that the step reached counts.

    Args:
        loss: what the step returned: a tensor, or anything else after a backward of its own; None if there is no loss.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     tracer = Tracer(model, preserved)
        ...     graph, reached = backward_of(tracer, tracer.run(lambda: model(torch.ones(1, 2)).sum()), preserved)
        >>> graph.nodes[0].label, sorted(reached.norms)
        ('SumBackward0', ['bias', 'weight'])
    """
    inner = tracer.own(loss)
    if inner is not None:
        return inner.graph, inner.reached
    if loss is None:
        return AutogradGraph(), Reached(dict(tracer.backwards.reached))
    graph = graph_of([loss], preserved)
    reached = backward.backward(loss, preserved, tracer.begin, tracer.backwards.spent)
    aside = not reached.runs and _is_no_training(tracer, tracer.trace(loss))
    return graph, replace(reached, norms={**({} if aside else tracer.backwards.reached), **reached.norms})


def _is_no_training(tracer: Tracer, trace: Trace) -> bool:
    """Whether the backwards of a step have not trained: they found derivatives, or fitted a model to answer by.

    Few-shot models fit a copy or themselves to the support set in their ``forward``; the loss is made elsewhere.
    """
    if is_of_gradients(trace):
        return True
    passes, made = tracer.backwards.passes, trace.maker(trace.loss) if trace.loss >= 0 else None
    if not passes or made is None or not made.chain or _is_in_forward(made.chain):
        return False
    return made.grad_on and all(_is_in_forward(one.chain) for one in passes)


def _is_in_forward(chain: Chain) -> bool:
    return any(code.co_name == "forward" for code, _ in chain)


def is_of_gradients(trace: Trace) -> bool:
    """Whether a loss is computed from what a backward filled in: that one was to find a derivative, not to train.

    Example:
        >>> import torch
        >>> model, x = torch.nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
        >>> tracer = Tracer(model)
        >>> loss = tracer.run(lambda: model(x).sum().backward() or x.grad.sum())
        >>> is_of_gradients(tracer.trace(loss))
        True
    """
    return any(call.name == FILLED for call in trace.behind([trace.loss]))


def graph_of(tensors: Sequence[Any], preserved: Preserved) -> AutogradGraph:
    """The graph behind some tensors; an empty one, with the error, where that cannot be read."""
    tried = attempts.Attempts()
    graph = tried.make("graph", lambda: autograd_graph.graph_behind(tensors, preserved.parameters), AutogradGraph())
    return replace(graph, error=tried.untried[0].error) if tried.untried else graph
