"""What took the place of the loss, and where it comes from: None, a number from nowhere, a loss from before the step.

Where a number can be followed to the call by which it left torch, that call is a cut like any other (``cut_lines``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradkit.core.records import OBSERVED, Finding, Location, Note
from gradkit.core.trace import Point
from gradkit.diagnosis.rules import deciding, unconnected
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import dataflow, locations, returns
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
    return _earlier(e, names) if names and is_earlier(e) else []


def noted(e: Evidence, found: Sequence[Finding]) -> list[Finding]:
    """The findings, those of a number that ``backward()`` was called on with a note of where."""
    asked = _asked(e)
    return [replace(f, notes=(*f.notes, *asked)) if f.cause in _OUT and not _stands_at(f, asked) else f for f in found]


def from_before(e: Evidence, found: Finding) -> Finding:
    """A finding about a loss from before the step: the line that hands it over, and a note of where it was computed."""
    end, spot = _handed_over(e)
    name = returns.name_used(end) if end is not None else ""
    made = list(dataflow.store_lines(name, e.files, reader=end[0])) if end is not None and name else []
    notes = [Note("computed_before", line) for line, _ in made if len(made) == 1]
    return replace(found, location=spot, notes=tuple(notes), variant=LOSS)


def _handed_over(e: Evidence) -> tuple[Point | None, Location | None]:
    """Where what took the place of the loss was returned by the function that made it, or asked for a backward."""
    chain, asked = e.shown.returns.chain, e.first.no_loss.asked if e.first.no_loss is not None else ()
    if chain:
        return chain[0], returns.place(chain[0])
    return (asked[0], locations.locate(asked[0])) if asked else (None, None)


def _made(e: Evidence) -> Location | None:
    """Where the variable that is handed over gets its value; else where it is handed over."""
    end, spot = _handed_over(e)
    return (returns.given_at(end) if end is not None else None) or spot


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
    found = Finding("constant_loss", _made(e), proof=OBSERVED, parameters=e.starved, variant=NOTHING)
    notes = [note for note in (*_forgotten(e), *_asked(e)) if not _stands_at(found, [note])]
    return replace(found, notes=tuple(notes))


def _forgotten(e: Evidence) -> list[Note]:
    """The last scalar with a history that no call has used; none where some loss went backward."""
    values, calls = e.trace.values, () if e.reached.norms else e.trace.calls
    made = [c for c in calls if c.chain and any(values[o].shape == () and values[o].requires_grad for o in c.outputs)]
    idle = [call for call in made if not e.trace.using(call.outputs)]
    return [Note("forgotten", locations.locate(idle[-1].chain[0]), {"call": idle[-1].name})] if idle else []


def _number(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A number that nothing the model computed can be followed into."""
    if any(e.trace.values[v].parameter for v in e.verdict.reaching):
        return []
    end, _ = _handed_over(e)
    chosen, left = deciding.among_constants(e, names, [end] if end is not None else [])
    if chosen and not left:
        return noted(e, chosen)
    return noted(e, [Finding("constant_loss", _made(e), proof=OBSERVED, parameters=tuple(names))])


def is_earlier(e: Evidence) -> bool:
    """Whether the loss was computed before the step: by its history, or as every run returns the very same tensor."""
    if e.first.no_loss is None or e.first.no_loss.kind != EARLIER:
        return False
    return e.shown.returns.same or any(value.past for value in e.trace.values)


def _earlier(e: Evidence, names: list[str]) -> list[Finding]:
    """A loss from before the step: what it does not reach can be read off its graph, and not why."""
    kept = unconnected.cached_findings(e, names)
    left = tuple(name for name in names if not any(name in one.parameters for one in kept))
    found = Finding("cached_tensor", None, proof=OBSERVED, parameters=left)
    return [*kept, *([from_before(e, found)] if left else [])]
