"""Terms of a loss that hand nobody a gradient, though what should learn flows into them: which calls cut them off.

A term without a gradient may be meant so. What the loss only reports is a stop as well: the value of another term, of
another loss of the step, a straight-through pair; a target that a live term is measured by; a draw; an average that is
kept from step to step. None of these is a dead term here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradkit.core.operations import CRITERIA
from gradkit.core.trace import SAMPLE, Call, Trace
from gradkit.diagnosis.facts import cuts, loss_terms
from gradkit.diagnosis.facts.cuts import CAST, OPERATION, REGION, STATE, Cut, Verdict
from gradkit.diagnosis.facts.loss_terms import Term
from gradkit.tracing import listeners


@dataclass(frozen=True)
class DeadTerm:
    """A term that should teach something and does not.

    Attributes:
        term: the term.
        verdict: what cuts it off from the parameters; no cuts, of one that nothing learnable flows into.
        parameters: those that flow into it.
        of_choices: what cuts it off is a choice that a live term rests on, too: that is to stay as it is.
    """

    term: Term
    verdict: Verdict
    parameters: tuple[str, ...] = ()
    of_choices: bool = False


def find(
    trace: Trace, terms: Sequence[Term], wanted: Iterable[str], starved: Iterable[str] = ()
) -> tuple[DeadTerm, ...]:
    """The dead terms beside live ones, in their order.

    Args:
        wanted: names of the parameters that should train.
        starved: those that no term hands a gradient to; what cuts them off is known of the loss as a whole, and a term
            that they flow into comes alive with them.

    Example:
        >>> from gradkit.core.trace import Value
        >>> call = lambda i, name, inputs, out: Call(i, name, inputs, (out,), True, (), -1, ((find.__code__, i),), i)
        >>> live, cut = Value(-1, (), True, True, "w", leaf=True), Value(1, (), True, False)
        >>> trace = Trace((call(0, "square", (0,), 1), call(1, "detach", (0,), 2), call(2, "exp", (2,), 3)),
        ...     (live, Value(0, (), True, True), cut, replace(cut, maker=2)), (), (), 1, {"w": 0})
        >>> found = find(trace, [Term(1, trace.calls[0], 3), Term(3, trace.calls[2], 3, alive=False)], ["w"])
        >>> [(one.parameters, one.verdict.cuts[0].kind) for one in found]
        [(('w',), 'detach')]
    """
    teaching = {one.loss for one in terms if one.alive}
    dead = [one for one in terms if not one.alive and one.loss in teaching]
    if not dead:
        return ()
    live = {n for one in terms if one.alive for n in (one.number, *one.within)}
    live |= {one.number for one in terms if one.added < 0}
    behind_live = trace.sources(one.number for one in terms if one.alive)
    names, gone = tuple(wanted), frozenset(starved)
    made = [_explained(trace, one, names, gone, live, behind_live) for one in dead]
    return tuple(one for one in made if one is not None)


def revived(dead: Iterable[DeadTerm], trace: Trace, rerun: Trace) -> dict[int, frozenset[str]]:
    """The parameters that each dead term hands a gradient to in a run with its cuts undone, by the term's number.

    Left out is a term that cannot be found in that run, or is a number: only the sum gets back what that has lost.
    """
    found: dict[int, frozenset[str]] = {}
    for one in dead:
        at = trace.values[one.term.number].maker
        if 0 <= at < len(rerun.calls) and rerun.calls[at].key == trace.calls[at].key:
            same = rerun.calls[at].outputs[trace.calls[at].outputs.index(one.term.number)]
            leaves = loss_terms.leaves_behind(rerun, [same])[0]
            names = frozenset(rerun.values[n].parameter for n in leaves) - {""}
            if rerun.values[same].requires_grad:  # what is joined on to a value is no call of the run
                found[one.term.number] = names or frozenset(one.parameters)
    return found


def _explained(
    trace: Trace, term: Term, wanted: Sequence[str], starved: frozenset[str], live: set[int], behind_live: set[int]
) -> DeadTerm | None:
    behind = trace.sources([term.number])
    if behind & live or any(call.name == listeners.NAME for call in trace.behind([term.number])):
        return None  # of torch.func's derivatives not all that flows is seen
    alone = replace(trace, loss=term.number)
    names = [n for n in wanted if _flows(trace, n, behind)]
    if not names and any(_flows(trace, name, behind) for name in trace.parameters):
        return None  # what a frozen part computes: whether it should be frozen is told of its parameters
    if not names:
        return DeadTerm(term, cuts.find(alone, ())) if _is_a_constant_criterion(trace, term, behind) else None
    if starved.intersection(names):
        return None  # once these learn, the term is alive
    ways = [one for one in cuts.cheapest(alone, names) if not _is_aside(one)]
    fewest = min(map(_stops, ways), default=0)  # what is stopped once more on its way learns by another term
    names = [one.parameter for one in ways if _stops(one) == fewest]
    verdict = cuts.find(alone, names)
    if not verdict.cuts or any(_is_meant(trace, cut, behind_live) for cut in verdict.cuts):
        return None
    chosen = all(_is_a_choice(trace, cut, behind_live) for cut in verdict.cuts)
    return DeadTerm(term, verdict, tuple(names), chosen)


def _flows(trace: Trace, name: str, behind: set[int]) -> bool:
    number = trace.parameters.get(name, -1)
    known = trace.values[number].parameter if number >= 0 else ""
    return number in behind or any(trace.values[n].parameter == known for n in behind if known)


def _stops(way: cuts.CheapestWay) -> int:
    """How many cuts a parameter meets on its way into a term."""
    return sum(bool(toll.cuts) for toll in way.tolls)


def _is_aside(way: cuts.CheapestWay) -> bool:
    """Whether a parameter flows in by what is kept between steps alone."""
    return not way.tolls or any(STATE in toll.detours for toll in way.tolls)


def _is_meant(trace: Trace, cut: Cut, behind_live: set[int]) -> bool:
    """Whether what a cut hands out is a draw, or something that a live term is measured by."""
    if cut.kind == REGION and trace.regions[cut.region].kind == SAMPLE:
        return True
    out = {n for index in cut.calls for n in trace.calls[index].outputs if trace.values[n].floating}
    return any(not trace.values[n].requires_grad for n in out & behind_live)


def _is_a_choice(trace: Trace, cut: Cut, behind_live: set[int]) -> bool:
    """Whether the integers that a cut hands out, as topk and argmax do, pick something for a live term."""
    out = {n for index in cut.calls for n in trace.calls[index].outputs if not trace.values[n].floating}
    return cut.kind in (CAST, OPERATION) and bool(out & behind_live)


def _is_a_constant_criterion(trace: Trace, term: Term, behind: set[int]) -> bool:
    """Whether a loss function was asked of values none of which can learn, while autograd was recording."""
    calls = [call for call in trace.calls if behind.intersection(call.outputs)]
    return term.weightless is None and any(_is_criterion(call) for call in calls)


def _is_criterion(call: Call) -> bool:
    return call.grad_on and call.name.endswith(CRITERIA) and len(call.inputs) > 1
