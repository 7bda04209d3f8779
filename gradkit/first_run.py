"""The first run of a step, as records: its calls, the graph behind its loss, what backward reached, what was raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from gradkit import autograd, calling, load, mending, mishaps, reach, strangers, unhooked
from gradkit.errors import GradkitError
from gradkit.mishaps import Mishap
from gradkit.optimizers import Gap
from gradkit.outcome import outcome, read
from gradkit.preserve import Preserved
from gradkit.scalers import Misuse
from gradkit.trace import Tracer
from gradkit.traces import Call, Trace
from gradkit.unreal import has_no_numbers, shape_of


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
        gap: parameters that the optimizers do not hold.
        hooks: what is known of the user's hooks; None if there are none.
    """

    trace: Trace
    graph: autograd.AutogradGraph
    reached: reach.Reached
    value: str
    mishap: Mishap | None = None
    misuses: tuple[Misuse, ...] = ()
    gap: Gap = field(default_factory=Gap)
    hooks: unhooked.Seen | None = None

    @cached_property
    def crossing(self) -> tuple[tuple[Call, int], ...]:
        """The calls that used a history which is freed, and the value that brought it."""
        return mending.crossings(self.trace, self.mishap) if self.mishap is not None else ()

    @property
    def error(self) -> str:
        """What the step or backward raised; also where the step asked for a derivative by name and did not get it."""
        if self.reached.error or self.mishap is None:
            return self.reached.error
        return self.mishap.message if self.mishap.in_step and self.mishap.inputs else ""


def make(step: load.Step, tracer: Tracer, preserved: Preserved, tell: Callable[[str], None]) -> FirstRun:
    """Run a step for the first time, and the backward of its loss.

    Raises:
        GradkitError: the step cannot be run, or returns no tensor.
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
    if not own and not strangers.is_a(result, torch.Tensor):
        result = calling.as_loss(result, step.label or "step")
    trace = tracer.trace(result)
    graph, reached = outcome(tracer, result, preserved)
    mishap = reached.mishap
    if tracer.asked is not None and not own:
        mishap = mishaps.of(tracer.asked.error, in_step=True, asked=trace.loss, inputs=tracer.asked.inputs)
    value = _shown(result) if strangers.is_a(result, torch.Tensor) else ""
    return FirstRun(trace, graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found))


def _at_length(mishap: Mishap | None, tracer: Tracer) -> Mishap | None:
    """The mishap with what the step had done with its graphs by then."""
    if mishap is None:
        return None
    return replace(mishap, freeing=tracer.freeing(), trained=frozenset(tracer.trained))


def _failed(error: Exception, tracer: Tracer, step: load.Step, preserved: Preserved) -> FirstRun:
    """The step raised: if it is one of autograd's errors, that is what there is to be explained."""
    asked = tracer.asked
    tensor = asked.tensor if asked is not None else None
    number = tracer.ledger.known(tensor) if tensor is not None else None
    mishap = mishaps.of(
        error, in_step=True, asked=-1 if number is None else number, inputs=asked.inputs if asked is not None else ()
    )
    if mishap is None:
        raise load.explain_failure(error, step) from error
    graph = read([tensor], preserved) if tensor is not None else autograd.AutogradGraph()
    names = {node.label for node in graph.nodes if node.leaf}
    norms = {**dict.fromkeys(names & set(preserved.parameters)), **tracer.backwards.reached}
    reached = reach.Reached(norms, False, mishap.message)
    value = _shown(tensor) if tensor is not None else ""
    return FirstRun(
        tracer.trace(tensor), graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found)
    )


def _shown(loss: torch.Tensor) -> str:
    if has_no_numbers(loss) or loss.numel() != 1:
        return str(tuple(shape_of(loss)))
    with torch._C.DisableTorchFunctionSubclass():  # a subclass may answer otherwise
        return f"{loss.detach().item():.4f}"
