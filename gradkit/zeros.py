"""The graph is whole, and what comes back through it is exactly zero."""

from __future__ import annotations

import math

from gradkit import frames, ignoring
from gradkit.evidence import Evidence, called_by, line_of
from gradkit.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.traces import SAMPLE
from gradkit.vanishing import EMPTY, IGNORED, TIMES_ZERO, Vanishing


def name(e: Evidence) -> list[Finding]:
    """The operations whose derivative is zero, one finding for each line, in the order of the run."""
    places: dict[tuple[str, int] | None, list[Vanishing]] = {}
    drawn = {call.key for call in e.trace.calls for r in call.regions if e.trace.regions[r].kind == SAMPLE}
    for one in e.vanishing:
        if one.call.key in drawn:  # a Distribution.sample() is a cut, and in the rerun only what is drawn is left of it
            continue
        if one.kind in (IGNORED, EMPTY) and not e.open.nan_loss:
            continue
        if one.kind == TIMES_ZERO and (_is_one_number(e, one) or not _by_a_constant(e, one)):
            continue
        places.setdefault(line_of(one.call), []).append(one)
    return [_finding(e, group) for group in places.values()]


def _finding(e: Evidence, group: list[Vanishing]) -> Finding:
    first = group[0]
    names = tuple(dict.fromkeys(name for one in group for name in one.parameters))
    chain = first.call.chain
    spot = frames.innermost(chain)
    notes = called_by(chain)
    proof = OBSERVED
    if first.kind == IGNORED:
        written, notes = _written(e, first, spot, notes)
        proof, spot = (LIKELY if written is not None else OBSERVED), written or spot
    module = e.trace.modules[first.call.module] if first.call.module >= 0 else ""
    return Finding(
        "zero_gradient", spot, tuple(notes), proof, names, module=module, call=first.call.name, variant=first.kind
    )


def _written(
    e: Evidence, one: Vanishing, spot: Location | None, notes: list[Note]
) -> tuple[Location | None, list[Note]]:
    """Of a loss that no label counts in, where the labels were taken out, and notes; None if that cannot be told."""
    found = ignoring.writing(e.files, ignoring.index_of(one.call.chain[0] if one.call.chain else None))
    if len(found) == 1:
        return found[0], [Note("no_label", spot)] if spot is not None else []
    return None, [*notes, *(Note("ignored_here", other) for other in found[:3])]


def nothing_counts(e: Evidence) -> list[Vanishing]:
    """Where a single number is multiplied by zero, and the gradient of all that should train with it: a loss that is
    meant to be zero, as where a batch has nothing to learn from."""
    return [one for one in e.vanishing if one.kind == TIMES_ZERO and _is_one_number(e, one) and _by_a_constant(e, one)]


def _is_one_number(e: Evidence, one: Vanishing) -> bool:
    return all(math.prod(e.trace.values[n].shape) == 1 for n in one.call.outputs)


def _by_a_constant(e: Evidence, one: Vanishing) -> bool:
    """Whether the zero is a number, or a constant that the model holds: zeros in the data are often meant."""
    others = [e.trace.values[n] for n in one.call.inputs if not e.trace.values[n].requires_grad]
    return all(
        (value.buffer or value.attribute) and math.prod(value.shape) == 1 and not value.python for value in others
    )
