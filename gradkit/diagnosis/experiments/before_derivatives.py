"""What stands between the variable of a derivative and a parameter that drops out of it.

A bias that is added last drops out of a derivative by its nature: what it is added to depends on the variable, and
nothing is cut. A layer that is only ever handed what was computed from the variable without its history (in a
``no_grad`` block, behind a ``detach``) drops out because of that cut: with the cut undone it has a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.trace import BLOCK, DECORATOR, INFERENCE, SWITCH, Call, Trace
from gradkit.diagnosis.experiments import undo_cuts
from gradkit.diagnosis.experiments.undo_cuts import Rerun
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import DATA, DETACH, REGION, Cut
from gradkit.tracing.run import Session

_REGIONS = (BLOCK, DECORATOR, SWITCH, INFERENCE)


@dataclass(frozen=True)
class Severed:
    """What cuts parameters off from a derivative.

    Attributes:
        cuts: the places that cut, each with the parameters that have a gradient without it.
        rerun: the run with these undone.
    """

    cuts: tuple[Cut, ...] = ()
    rerun: Rerun = field(default_factory=Rerun)

    @property
    def names(self) -> frozenset[str]:
        """The parameters that are cut off."""
        return frozenset(name for cut in self.cuts for name in cut.parameters)


def find(session: Session, trace: Trace, names: Sequence[str]) -> Severed:
    """The cuts without which parameters that drop out of a loss of derivatives have a gradient other than zeros.

    Args:
        trace: of the first run.
        names: the parameters that drop out.
    """
    found: dict[object, Cut] = {}
    for name in names:
        for cut in _between(trace, name):
            known = found.get(cut.key, replace(cut, parameters=()))
            found[cut.key] = replace(known, parameters=(*known.parameters, name))
    if not found:
        return Severed()
    rerun = undo_cuts.rerun_without_cuts(session, found.values())
    alive = (rerun.revived or frozenset()) - rerun.zero
    told = [replace(cut, parameters=tuple(n for n in cut.parameters if n in alive)) for cut in found.values()]
    return Severed(tuple(cut for cut in told if cut.parameters), rerun)


def joined(before: Rerun, severed: Severed) -> Rerun:
    """What the run with other cuts undone has shown, and this one."""
    shown = before if before.trace is not None else replace(severed.rerun, runs=before.runs, zero=frozenset())
    return replace(shown, revived=(shown.revived or frozenset()) | severed.names)


def _between(trace: Trace, name: str) -> tuple[Cut, ...]:
    """The cuts on the ways from the variables of derivatives to what a parameter is computed with.

    None if any of it depends on a variable with its history, or if something else than a stop is in the way.
    """
    found: dict[object, Cut] = {}
    partners = dict.fromkeys(_partners(trace, name))
    for variable in dict.fromkeys(_variables(trace)):
        if any(_is_alive(trace, partner, variable) for partner in partners):
            return ()
        for partner in partners:
            seen = cuts.find(replace(trace, loss=partner, parameters={"": variable}), [""])
            if seen.unexplained or not all(_is_a_stop(trace, cut) for cut in seen.cuts):
                return ()
            found.update({cut.key: cut for cut in seen.cuts})
    return tuple(found.values())


def _variables(trace: Trace) -> Iterator[int]:
    """What derivatives that the loss is made of are taken by, other than parameters."""
    for call in trace.behind([trace.loss]):
        if call.name == GRAD_KEPT and call.grad_on:
            yield from (n for n in call.inputs if not trace.values[n].parameter and _flows_on(trace, n, call))


def _flows_on(trace: Trace, number: int, call: Call) -> bool:
    """Whether another input of a call is computed from this one."""
    return any(number in trace.sources([other]) for other in call.inputs if other != number)


def _partners(trace: Trace, name: str) -> Iterator[int]:
    """What a parameter is computed with first, other than parameters."""
    for _, others in trace.meeting([trace.parameters[name]] if name in trace.parameters else []):
        yield from (number for number in others if not trace.values[number].parameter)


def _is_alive(trace: Trace, number: int, variable: int) -> bool:
    """Whether a value depends on a variable by way of values with a history."""
    values = trace.values
    return values[number].requires_grad and variable in trace.sources([number], lambda n: values[n].requires_grad)


def _is_a_stop(trace: Trace, cut: Cut) -> bool:
    """Whether a cut is one that is taken out, rather than written anew."""
    return cut.kind in (DETACH, DATA) or (cut.kind == REGION and trace.regions[cut.region].kind in _REGIONS)
