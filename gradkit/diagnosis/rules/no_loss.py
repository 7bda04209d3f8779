"""What took the place of the loss, and where it comes from: None, a number from nowhere, a loss from before the step.

Where a number can be followed to the call by which it left torch, that call is a cut like any other (``cut_lines``).
Here is what is left: a number that Python has made another of meanwhile, which is followed through the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradkit.core.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.core.trace import Call, Chain
from gradkit.diagnosis.rules import unconnected
from gradkit.diagnosis.rules.evidence import Evidence, by_line, line_of
from gradkit.source import locations, returns
from gradkit.tracing.no_loss import EARLIER, NOTHING, NUMBER

LOSS = "loss"
_OUT = ("numpy_roundtrip", "python_roundtrip")


def findings(e: Evidence, told: set[str]) -> list[Finding]:
    """Why there is no loss to go back from.

    Args:
        told: parameters whose fault is known already.
    """
    kind = e.first.no_loss.kind if e.first.no_loss is not None else ""
    names = [name for name in e.verdict.unconnected if name not in told]
    if kind == NOTHING:
        return [_nothing(e)]
    if kind == NUMBER and names:
        return _number(e, names)
    return _earlier(e, names) if kind == EARLIER and names else []


def noted(e: Evidence, found: Sequence[Finding]) -> list[Finding]:
    """The findings, those of a number that ``backward()`` was called on with a note of where."""
    asked = _asked(e)
    return [replace(f, notes=(*f.notes, *asked)) if f.cause in _OUT and not _stands_at(f, asked) else f for f in found]


def handed_over(e: Evidence) -> Location | None:
    """Where the step returned what is no loss of its own, or called ``backward()`` on it."""
    chain = e.shown.returns.chain
    if chain:
        return returns.place(chain[0])
    return locations.innermost(e.first.no_loss.asked) if e.first.no_loss is not None else None


def _asked(e: Evidence) -> list[Note]:
    stand_in = e.first.no_loss
    if stand_in is None or stand_in.kind == EARLIER or not stand_in.asked:
        return []
    return [Note("no_backward", locations.innermost(stand_in.asked), {"kind": stand_in.shown})]


def _stands_at(finding: Finding, notes: Sequence[Note]) -> bool:
    spot = finding.location
    return any(n.location and spot and (n.location.file, n.location.line) == (spot.file, spot.line) for n in notes)


def _nothing(e: Evidence) -> Finding:
    """The function that ends without a loss; a note tells of a scalar that somebody may have forgotten to return."""
    codes = [call.chain[-1][0] for call in e.trace.calls if call.chain]
    spot = handed_over(e) or (returns.only_place(codes[-1]) if codes else None)
    found = Finding("constant_loss", spot, (), OBSERVED, e.starved, variant=NOTHING)
    notes = [note for note in (*_forgotten(e), *_asked(e)) if not _stands_at(found, [note])]
    return replace(found, notes=tuple(notes))


def _forgotten(e: Evidence) -> list[Note]:
    """The last scalar with a history that no call has used."""
    values = e.trace.values
    made = [
        c
        for c in e.trace.calls
        if c.chain and any(values[o].shape == () and values[o].requires_grad for o in c.outputs)
    ]
    idle = [call for call in made if not e.trace.using(call.outputs)]
    return [Note("forgotten", locations.locate(idle[-1].chain[0]), {"call": idle[-1].name})] if idle else []


def _number(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """The calls by which what became the number may have left torch; else the number is a constant."""
    chain = (*e.shown.returns.chain, *(e.first.no_loss.asked if e.first.no_loss is not None else ()))
    found = []
    for calls in _departures(e, chain).values():
        behind = e.behind(calls, floating=True)
        lost = tuple(name for name in names if name in behind)
        if lost:
            cause, last = _OUT["numpy" not in calls[-1].name and calls[-1].name != "__array__"], calls[-1]
            found.append(Finding(cause, locations.locate(last.chain[0]), (), LIKELY, lost, call=last.name))
    if found or any(e.trace.values[v].parameter for v in e.verdict.reaching):
        return noted(e, by_line(found))
    return noted(e, [Finding("constant_loss", handed_over(e), (), OBSERVED, tuple(names))])


def _departures(e: Evidence, chain: Chain) -> dict[object, list[Call]]:
    """The calls that hand out numbers, by place, whose numbers the source gives to what is returned, or asked."""
    found: dict[object, list[Call]] = {}
    for call in e.trace.calls:
        if call.chain and any(e.trace.values[o].python for o in call.outputs) and _goes_into(call, chain):
            found.setdefault(call.key, []).append(call)
    return found


def _goes_into(call: Call, chain: Chain) -> bool:
    here = {(code.co_filename, line) for code, line in ((p[0], locations.line_of(p)) for p in chain)}
    return line_of(call) in here or unconnected.goes_on(call.chain, chain)


def _earlier(e: Evidence, names: list[str]) -> list[Finding]:
    """A loss from before the step: what it does not reach can be read off its graph, and not why."""
    values, loss = e.trace.values, e.trace.loss
    if not (e.shown.returns.same or values[loss].past or any(value.past for value in values)):
        return []
    kept = unconnected.cached_findings(e, names)
    left = tuple(name for name in names if not any(name in one.parameters for one in kept))
    spot = handed_over(e)
    return [*kept, *([Finding("cached_tensor", spot, (), OBSERVED, left, variant=LOSS)] if left else [])]
