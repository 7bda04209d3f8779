"""What a custom Function hands out and autograd does not record, whatever its backward is written for: whole numbers,
what it marks as without a derivative, what it returns inside of a container.

Where nothing else of the Function's is differentiated, its region is a cut like any other, and ``cut_lines`` names it
by what is said here. Where something else is, as a scale that goes along with whole numbers and that the next Function
gives no gradient for, autograd calls the backward with zeros, and all before it gets zeros: the graph looks whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradkit.core.operations import CASTS
from gradkit.core.records import OBSERVED, Finding, Location
from gradkit.core.trace import FUNCTION, Call, Key, Trace
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import Cut
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import function_outputs, locations

WHOLE, MARKED, BOXED = "function", "marked", "boxed"


def cast_by(trace: Trace, cut: Cut) -> Call | None:
    """The cast whose whole numbers are all that a custom Function hands out at a cut; None if there is no such.

    Example:
        >>> from gradkit.core.trace import Region, Value
        >>> inside = Call(0, "to", (0,), (1,), False, (0,), -1, (), 0)
        >>> values = Value(-1, (2,), True, True), Value(0, (2,), False, False), Value(1, (2,), True, False)
        >>> after = Call(1, "float", (1,), (2,), True, (), -1, (), 1)
        >>> trace = Trace((inside, after), values, (Region("function", (), ()),), (), 2, {})
        >>> cast_by(trace, Cut("region", (), (0,), 0, ("w",))) is inside
        True
    """
    if cut.region < 0 or trace.regions[cut.region].kind != FUNCTION:
        return None
    calls = [trace.calls[index] for index in cut.calls]
    left = [call for call in calls if trace.leaves(call.outputs, cut.region)]
    whole = [call for call in left if call.name in CASTS and not any(trace.values[n].floating for n in call.outputs)]
    given = [call for call in whole if any(trace.values[n].floating for n in call.inputs)]
    return given[-1] if given and len(given) == len(left) else None


def said_at(e: Evidence, cut: Cut) -> tuple[str, Location] | None:
    """How a custom Function, by its own source, keeps what it hands out from being recorded; and the line."""
    region = e.trace.regions[cut.region] if cut.region >= 0 and cut.kind == cuts.REGION else None
    if region is None or region.kind != FUNCTION or not cut.calls or cast_by(e.trace, cut) is not None:
        return None
    inside = cuts.inside(e.trace, e.trace.calls[cut.calls[-1]], cut.region)
    alive = any(e.trace.values[number].requires_grad for number in region.given)
    if not inside or not alive or not _hands_out_floats(e.trace, cut):
        return None
    for variant, read in ((MARKED, function_outputs.marking_line), (BOXED, function_outputs.boxing_line)):
        spot = read(inside[0][0])
        if spot is not None:
            return variant, spot
    return None


def within_marked(e: Evidence) -> set[Key]:
    """The keys of the calls in Functions that are cuts by what they say: once recorded, their own backward counts."""
    said = [cut for cut in e.verdict.cuts if said_at(e, cut) is not None]
    return {e.trace.calls[index].key for cut in said for index in cut.calls}


def findings(e: Evidence) -> list[Finding]:
    """Casts in custom Functions by which parameters get nothing but zeros, though backward comes by."""
    norms, woken = e.reached.norms, e.shown.zeros.woken
    names = [name for name in e.wanted if norms.get(name) == 0 and name not in woken]
    ended = _without_answer(e) if names else {}
    if not ended:
        return []
    trace = _without(e.trace, ended)
    casts = ((cut, cast_by(trace, cut)) for cut in cuts.find(trace, names).cuts if cut.parameters)
    return [_finding(e, cut, cast) for cut, cast in casts if cast is not None]


def _finding(e: Evidence, cut: Cut, cast: Call) -> Finding:
    region = e.trace.regions[cut.region]
    around = called_by((*region.chain[:1], *region.chain))
    return Finding(
        "integer_cast", locations.innermost(cuts.inside(e.trace, cast, cut.region)), tuple(around), proof=OBSERVED,
        parameters=cut.parameters, call=cast.name, variant=WHOLE, facts={"function": region.via},
    )  # fmt: skip


def _hands_out_floats(trace: Trace, cut: Cut) -> bool:
    """Whether floats without a history leave the region of a cut: of indices there is nothing to be told."""
    values, made = trace.values, {n for index in cut.calls for n in trace.calls[index].outputs}
    floats = {n for n in made if values[n].floating and not values[n].requires_grad}
    return trace.leaves(floats, cut.region)


def _without_answer(e: Evidence) -> dict[int, set[int]]:
    """Of custom Functions whose backward returns None for an input in every pass: the region, and the values."""
    found = dict[int, set[int]]()
    dropped = [one for one in e.shown.gradients.dropped if not one.zeros]
    for name, position in {(one.name, one.position) for one in dropped}:
        again = [one for one in dropped if (one.name, one.position) == (name, position)]
        regions = [n for n, one in enumerate(e.trace.regions) if one.kind == FUNCTION and one.via == name]
        if len(regions) == len(again) and all(len(e.trace.regions[n].given) == again[0].inputs for n in regions):
            for number in regions:
                found.setdefault(number, set()).add(e.trace.regions[number].given[position])
    return found


def _without(trace: Trace, ended: dict[int, set[int]]) -> Trace:
    """A trace in which the Functions do not use what they give no gradient for."""
    return replace(trace, calls=tuple(_leaving_out(call, _of(ended, call.regions)) for call in trace.calls))


def _of(ended: dict[int, set[int]], regions: Sequence[int]) -> set[int]:
    return set().union(*(ended[number] for number in regions if number in ended))


def _leaving_out(call: Call, numbers: Iterable[int]) -> Call:
    return replace(call, inputs=tuple(n for n in call.inputs if n not in numbers)) if numbers else call
