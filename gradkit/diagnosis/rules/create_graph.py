"""A gradient whose own history was not recorded: the line where ``create_graph`` was left off.

A helper may hand the flag on that decides; then the line is the caller's that leaves it out or gives False, or the
helper's default where nobody gives it. An object or a table of settings may hold it; then it is the line that set it.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from gradkit.core.operations import ADDS, FILLED, GRAD
from gradkit.core.records import LIKELY, Finding, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by
from gradkit.source import came_from, locations, syntax
from gradkit.source import decided as decided_by

CALLER, DEFAULT, OPPOSITE = "caller", "default", "opposite"
_POSITION = 4  # of create_graph among the arguments of torch.autograd.grad
_OF_BACKWARD = 2  # among those of Tensor.backward; torch.autograd.backward is handed the tensors first


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
        call: what handed the gradient out, or read what the last backward before it had filled in.
        found: the finding, at the line of the call.
    """
    if not call.chain:
        return found
    asking, position = _asking(call)
    told = decided_by.decided_at((*call.chain, *e.facts.callers), asking, "create_graph", position, e.files)
    if told is None:
        return found
    asked = locations.innermost(call.chain)
    notes = (Note("asked_here", asked, {}),) if asked is not None else ()
    variant = OPPOSITE if told.opposite else DEFAULT if told.by_default else CALLER
    facts = {**found.facts, "name": told.name}
    return replace(found, location=told.location, notes=notes, variant=variant, facts=facts)


def _asking(call: Call) -> tuple[ast.AST | None, int]:
    """The call that asked for a gradient, and the position of ``create_graph`` among its arguments."""
    if call.name == GRAD:
        return locations.node_at(call.chain[0]), _POSITION
    if call.name != FILLED:
        return None, 0
    line = locations.line_of(call.chain[0])
    before = [
        node for one in came_from.statements_around(call.chain[0]) if one.lineno < line for node in ast.walk(one)
        if isinstance(node, ast.Call) and syntax.call_name(node) == "backward"
    ]  # fmt: skip
    last = max(before, key=lambda one: one.lineno, default=None)
    of_torch = last is not None and ast.unparse(last.func).endswith("autograd.backward")
    return last, _OF_BACKWARD + of_torch
