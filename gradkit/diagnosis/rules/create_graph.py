"""A gradient whose own history was not recorded: the line where ``create_graph`` was left off.

A helper may hand the flag on that decides; then the line is the caller's that leaves it out or gives False, or the
helper's default where nobody gives it.
"""

from __future__ import annotations

from dataclasses import replace

from gradkit.core.operations import ADDS, FILLED, GRAD
from gradkit.core.records import LIKELY, Finding, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by
from gradkit.source import came_from, locations

CALLER, DEFAULT = "caller", "default"
_POSITION = 4  # of create_graph among the arguments of torch.autograd.grad


def dead_terms(e: Evidence) -> list[Finding]:
    """A gradient without a history that becomes a number of its own in the loss: it teaches nothing.

    A gradient that scales something, or that moves weights, is often meant to have none, and is left in peace.
    """
    found = []
    for call in e.trace.calls:
        if call.name not in (GRAD, FILLED) or not call.grad_on or not call.chain:
            continue
        if any(e.trace.values[o].requires_grad for o in call.outputs) or not _adds_a_term(e, call):
            continue
        notes = tuple(called_by(call.chain))
        one = Finding("create_graph_missing", locations.locate(call.chain[0]), notes, proof=LIKELY, call=call.name)
        found.append(decided(e, call, one))
    return by_line(found)


def _adds_a_term(e: Evidence, start: Call) -> bool:
    values, dead = e.trace.values, set(start.outputs)
    for call in e.trace.calls[start.index + 1 :]:
        flowing = dead.intersection(call.inputs)
        if not flowing:
            continue
        if not any(values[o].requires_grad for o in call.outputs):
            dead.update(call.outputs)
        elif call.name in ADDS and e.verdict.reaching.intersection(call.outputs):
            if all(values[n].shape == () for n in (*flowing, *call.outputs)):
                return True
    return False


def decided(e: Evidence, call: Call, found: Finding) -> Finding:
    """A finding about a gradient without a history, at the line that decided so.

    Args:
        call: what handed the gradient out; of another than ``torch.autograd.grad``, the finding stays as it is.
        found: the finding, at the line of the call.
    """
    if call.name != GRAD or not call.chain:
        return found
    told = came_from.decided_at((*call.chain, *e.facts.callers), "create_graph", _POSITION, e.files)
    if told is None:
        return found
    asked = locations.innermost(call.chain)
    notes = (Note("asked_here", asked, {}),) if asked is not None else ()
    variant, facts = DEFAULT if told.by_default else CALLER, {**found.facts, "name": told.name}
    return replace(found, location=told.location, notes=notes, variant=variant, facts=facts)
