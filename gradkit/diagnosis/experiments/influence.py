"""Which parameters drop out of a loss that is made of derivatives: the loss is the same whatever their value.

A bias that is added last has no share in the derivative by the input; where only that enters the loss (the forces of an
energy, the residual of a differential equation, a gradient penalty), autograd hands it no gradient, and nothing is cut.
Source: https://pytorch.org/docs/stable/generated/torch.autograd.grad.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import Trace
from gradkit.diagnosis.experiments import before_derivatives
from gradkit.diagnosis.experiments.before_derivatives import Severed
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.source import faults
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.run import Session

_MOST = 8
_CLOSE = 1e-6


@dataclass(frozen=True)
class Influence:
    """What further runs showed.

    Attributes:
        without: names of the parameters whose value makes no difference to the loss.
        runs: how many times the step was run.
        severed: those that would make one if a cut before the derivative were not there; ``without`` has none of them.
    """

    without: tuple[str, ...] = ()
    runs: int = 0
    severed: Severed = field(default_factory=Severed)


def is_of_derivatives(trace: Trace) -> bool:
    """Whether a run took a derivative with a graph of its own, and the loss is made of it."""
    return any(call.name == GRAD_KEPT and call.grad_on for call in trace.behind([trace.loss]))


def without_influence(session: Session, names: Sequence[str]) -> Influence:
    """Run the step with other values of some parameters, all at once; then one by one, if the loss is another.

    Args:
        names: the parameters, by their names in the session's model.

    Example:
        >>> from gradkit.state.preserve import Preserved
        >>> model, x = torch.nn.Linear(1, 1), torch.ones(1, 1, requires_grad=True)
        >>> def step():
        ...     (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        ...     return slope.sum()
        >>> with Preserved(model) as preserved:
        ...     without_influence(Session(step, model, preserved), ["bias", "weight"]).without
        ('bias',)
    """
    before = _loss(session, ())
    if before is None:
        return Influence(runs=1)
    if _is_same(before, _loss(session, names)):
        return Influence(tuple(names), 2)
    if len(names) == 1 or len(names) > _MOST:
        return Influence(runs=2)
    found = tuple(name for name in names if _is_same(before, _loss(session, [name])))
    return Influence(found, 2 + len(names))


def by_nature(session: Session, trace: Trace, found: Influence) -> Influence:
    """Of the parameters without influence, those that no cut before the derivative takes it from; and what cuts others.

    Args:
        trace: of the first run.
    """
    severed = before_derivatives.find(session, trace, found.without)
    left = tuple(name for name in found.without if name not in severed.names)
    return Influence(left, found.runs + severed.rerun.runs, severed)


def set_aside(facts: ModelFacts, verdict: Verdict, names: Sequence[str]) -> tuple[ModelFacts, Verdict]:
    """The same, without asking these parameters to learn."""
    left = tuple(name for name in verdict.unexplained if name not in names)
    return facts.without(names), replace(verdict, unexplained=left)


def blame(verdict: Verdict, severed: Severed) -> Verdict:
    """The same, with the cuts that stand before a derivative."""
    left = tuple(name for name in verdict.unexplained if name not in severed.names)
    found = sorted((*verdict.cuts, *severed.cuts), key=lambda cut: cut.calls[:1])
    return replace(verdict, cuts=tuple(found), unexplained=left)


class _Nudged(Intervention):
    """The step runs with other values of some parameters; they are put back as anything that it writes."""

    def __init__(self, session: Session, names: Sequence[str]) -> None:
        self._preserved, self._names = session.preserved, names

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        with torch.no_grad():
            for name in self._names:
                parameter = self._preserved.parameters[name]
                self._preserved.before_write(parameter)
                parameter.add_(parameter.abs() * 0.1 + 0.1)
        yield


def _loss(session: Session, names: Sequence[str]) -> torch.Tensor | None:
    try:
        return session.ask(lambda _, loss: _numbers(loss), _Nudged(session, names))
    except Exception as error:
        if faults.is_ours(error):
            raise
        return None  # the step may refuse other values


def _numbers(loss: Any) -> torch.Tensor | None:
    if not isinstance(loss, torch.Tensor) or has_no_numbers(loss) or not bool(loss.isfinite().all()):
        return None
    return loss.detach().clone()


def _is_same(before: torch.Tensor, after: torch.Tensor | None) -> bool:
    return after is not None and after.shape == before.shape and torch.allclose(before, after, rtol=_CLOSE, atol=0)
