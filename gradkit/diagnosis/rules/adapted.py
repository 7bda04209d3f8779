"""Adapted weights that one part of a model is not handed, so that it computes with its own parameters again.

``h = self.block(x)`` where the layers around it are handed ``weights=...``: as in meta-learning, a gradient is then
asked for by weights that took no part. The line is the one that leaves out what is handed on elsewhere, or that runs a
layer which takes no weights but its own; or that gives them to the variable of a loop, where a model does not see them.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from gradkit.core.operations import FILLED, GRAD, GRAD_KEPT
from gradkit.core.records import LIKELY, READ, Finding, Location, Note
from gradkit.core.trace import Call, Chain, Point
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, of_error
from gradkit.source import locations, loop_names, returns, syntax
from gradkit.source.locations import innermost
from gradkit.tracing.autograd_errors import AutogradError

ORIGINAL, LOOP = "original", "loop"
_OF_GRADIENTS = frozenset((GRAD, GRAD_KEPT, FILLED))
_FURTHEST = 40


def findings(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A finding for each line by which a parameter takes the place of what the step has computed from it.

    Returns:
        ``[]`` where anything that was asked for takes no part, and the parameter that it came from takes none either.
    """
    behind = sorted(e.trace.behind([mishap.asked]), key=lambda call: call.index)
    part = {number for call in behind for number in (*call.inputs, *call.outputs)}
    idle = [number for number in mishap.inputs if number not in part]
    taken = [_taken_instead(e, number, behind) for number in idle]
    if not taken or None in taken:
        return []
    asked = innermost(mishap.chain)
    idle_line = loop_names.idle_assignment(e.files, e.ran)
    if idle_line is not None:
        one = of_error("unused_input", e, mishap, idle_line.location, proof=LIKELY, chain=(), name=idle_line.name)
        notes = (Note("asked_here", asked, {}),) if asked is not None else ()
        return [replace(one, notes=notes, variant=LOOP, doubt=READ)]
    found = []
    for call, name in filter(None, taken):
        spot = _left_out(call.chain)
        one = of_error("unused_input", e, mishap, spot, call=call.name, proof=LIKELY, chain=call.chain, name=name)
        notes = (*called_by(call.chain), *((Note("asked_here", asked, {}),) if asked is not None else ()))
        found.append(replace(one, notes=notes, variant=ORIGINAL))
    return by_line(found)


def _taken_instead(e: Evidence, number: int, behind: list[Call]) -> tuple[Call, str] | None:
    """The first call in a module that uses the parameter which a value was made from, since it was; and its name."""
    values = e.trace.values
    names = {values[one].parameter for one in _origins(e, number)} - {""}
    for call in behind:
        for one in call.inputs if call.index > values[number].maker and call.chain and call.module >= 0 else ():
            if values[one].parameter in names:
                return call, e.trace.named(values[one].parameter)
    return None


def _origins(e: Evidence, number: int) -> Iterator[int]:
    """The parameters that a value is an altered version of: of its shape, and not by way of a gradient."""
    values, todo, seen = e.trace.values, [number], set[int]()
    while todo and len(seen) < _FURTHEST:
        one = todo.pop(0)
        maker = values[one].maker
        if one in seen or values[one].shape != values[number].shape:
            continue
        seen.add(one)
        if values[one].parameter:
            yield one
        elif maker >= 0 and e.trace.calls[maker].name not in _OF_GRADIENTS:
            todo += e.trace.calls[maker].inputs


def _left_out(chain: Chain) -> Location:
    """The line that leaves out an argument which its function hands on elsewhere, or was given; else the innermost."""
    for inner, outer in itertools.pairwise(chain):
        if _leaves_out(inner, outer):
            return locations.locate(outer, whole=True)
    return locations.locate(chain[0])


def _leaves_out(inner: Point, outer: Point) -> bool:
    called, call, caller = returns.function_of(inner[0]), locations.node_at(outer), returns.function_of(outer[0])
    if called is None or caller is None or not isinstance(call, ast.Call):
        return False
    optional = [one for one in syntax.parameters(called) if syntax.is_none(syntax.default(called, one))]
    left = {one for one in optional if syntax.handed(call, called, one) is None}
    known = {one.arg for node in ast.walk(caller) if isinstance(node, ast.Call) for one in node.keywords}
    return bool(left & {*syntax.parameters(caller), *known})
