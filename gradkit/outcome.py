"""What came of a run: the graph behind its loss, and what backward reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradkit import attempts, autograd, reach
from gradkit.autograd import AutogradGraph
from gradkit.preserve import Preserved
from gradkit.reach import Reached
from gradkit.trace import Tracer


def outcome(tracer: Tracer, loss: Any, preserved: Preserved) -> tuple[AutogradGraph, Reached]:
    """The step's own backward of ``loss`` if it made one, else one that is run now; all that the step reached counts.

    Args:
        loss: what the step returned: a tensor, or anything else after a backward of its own.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     tracer = Tracer(model, preserved)
        ...     graph, reached = outcome(tracer, tracer.run(lambda: model(torch.ones(1, 2)).sum()), preserved)
        >>> graph.nodes[0].label, sorted(reached.norms)
        ('SumBackward0', ['bias', 'weight'])
    """
    inner = tracer.own(loss)
    if inner is not None:
        return inner.graph, inner.reached
    graph = read([loss], preserved)
    reached = reach.backward(loss, preserved, tracer.begin)
    return graph, replace(reached, norms={**tracer.backwards.reached, **reached.norms})


def read(tensors: Sequence[Any], preserved: Preserved) -> AutogradGraph:
    """The graph behind some tensors; an empty one, with the error, where that cannot be read."""
    tried = attempts.Attempts()
    graph = tried.make("graph", lambda: autograd.graph(tensors, preserved.parameters), AutogradGraph())
    return replace(graph, error=tried.untried[0].error) if tried.untried else graph
