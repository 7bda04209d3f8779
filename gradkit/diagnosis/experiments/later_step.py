"""The step twice in one run, with its backward in between: does what hooks leave behind come into the later loss?

A hook runs in the backward of a step, and what it keeps is used by the step after that. In a run of one step such a
value is from before, and nobody knows what made it. In the second half of a run of two, it is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from gradkit.core import introspection
from gradkit.core.operations import FILLED
from gradkit.core.trace import BACKWARD, Call, Trace
from gradkit.diagnosis.experiments import undo_cuts
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import REGION, Cut
from gradkit.source.faults import on_behalf
from gradkit.tracing.interventions import Intervention, Moment, StopAtBackward
from gradkit.tracing.run import Session


@dataclass(frozen=True)
class FromHook:
    """What a hook computes of some parameters for a later loss.

    Attributes:
        call: the first call in the hook that uses them.
        parameters: their names.
        revived: those that the later backward reaches once hooks are recorded.
    """

    call: Call
    parameters: tuple[str, ...]
    revived: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LaterStep:
    """What flows into the loss of the step after this one, from parameters that do not flow into the loss of this.

    Attributes:
        of_hooks: by way of hooks, which cut it off.
        runs: how many times the step was run for it, two in a row counted as one.
    """

    of_hooks: tuple[FromHook, ...] = ()
    runs: int = 0


def ask(session: Session, names: Sequence[str]) -> LaterStep:
    """Run the step twice in a row, and if need be once more with hooks recorded.

    Args:
        names: the parameters from which nothing flows into the loss of one step.
    """
    passes = _Passes([one for one in session.always if isinstance(one, StopAtBackward)])
    others = (one for one in session.always if not isinstance(one, StopAtBackward))
    twice = replace(session, step=partial(_twice, session.step, passes), always=(*others, passes))
    run = twice.run()
    if run.trace is None or run.error:
        return LaterStep(runs=1)
    found = _of_hooks(run.trace, names)
    if not found:
        return LaterStep(runs=1)
    rerun = undo_cuts.rerun_without_cuts(twice, dict.fromkeys(cut for cut, _, _ in found))
    alive = rerun.revived or frozenset()
    told = (FromHook(call, named, alive.intersection(named)) for _, call, named in found)
    return LaterStep(tuple(told), 2)


class _Passes(Intervention):
    """Counts the backwards of the first of two passes; what ends the step early does so in the second alone."""

    def __init__(self, ends: Sequence[StopAtBackward]) -> None:
        self._ends = ends
        self.is_second, self.begun = False, 0

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """Each run begins with the first pass."""
        self.is_second, self.begun = False, 0
        yield

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Ask what ends the step, in the second pass, as if there had been no other before."""
        if not self.is_second:
            self.begun = count
            return True
        return all(one.before_backward(moment, count - self.begun, losses) for one in self._ends)


@on_behalf
def _twice(step: Callable[[], Any], passes: _Passes) -> Any:
    """The step, the backward of its loss unless it made one itself, and the step once more."""
    loss = step()
    is_loss = introspection.is_a(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1
    if is_loss and not passes.begun:
        loss.backward()
    passes.is_second = True
    return step()


def _of_hooks(trace: Trace, names: Sequence[str]) -> list[tuple[Cut, Call, tuple[str, ...]]]:
    """The cuts by hooks, each with a call that uses parameters which nothing else cuts off, and their names."""
    verdict, found = cuts.find(trace, names), list[tuple[Cut, Call, tuple[str, ...]]]()
    others = {name for cut in verdict.cuts if not _is_of_hooks(trace, cut) for name in cut.parameters}
    for cut in verdict.cuts:
        left = [name for name in cut.parameters if name not in others] if _is_of_hooks(trace, cut) else []
        users: dict[int, list[str]] = {}
        for name in left:
            user = _first_user(trace, cut, name)
            if user is not None:
                users.setdefault(user.index, []).append(name)
        found += [(cut, trace.calls[index], tuple(group)) for index, group in users.items()]
    return found


def _is_of_hooks(trace: Trace, cut: Cut) -> bool:
    return cut.kind == REGION and trace.regions[cut.region].kind == BACKWARD


def _first_user(trace: Trace, cut: Cut, name: str) -> Call | None:
    """The first call in a hook that is handed something computed from a parameter; None if that is a gradient."""
    known = trace.values[trace.parameters[name]].parameter
    ahead = {call.index for call in trace.ahead(n for n, value in enumerate(trace.values) if value.parameter == known)}
    first = next((trace.calls[index] for index in cut.calls if index in ahead), None)
    return first if first is not None and first.name != FILLED and first.chain else None
