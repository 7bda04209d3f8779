"""A gradient was asked for with respect to a value that took no part, or by which the slope is a constant."""

from __future__ import annotations

import ast
from dataclasses import replace

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.rules import adapted, cut_lines, unflagged
from gradkit.diagnosis.rules.evidence import Evidence, called_by, of_error, same_line
from gradkit.source import came_from, locations
from gradkit.source.locations import innermost
from gradkit.tracing.autograd_errors import AutogradError


def findings(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """``autograd.grad`` for a value that took no part: where it was handed over and left aside, else where asked."""
    first = next((call for call in e.trace.behind([mishap.asked]) if _took(e, call, set(mishap.inputs))), None)
    if first is not None:
        return constant_slope(e, mishap, first)
    original = adapted.findings(e, mishap)
    if original:
        return original
    branch = _branched(e, mishap)
    if branch is not None:
        return [branch]
    late = unflagged.seen_too_late(e, mishap)
    if late is not None:
        return [late]
    cut_off = severed(e, mishap)
    if cut_off:
        return cut_off
    late = unflagged.too_late(e, mishap)
    if late is not None:
        return [late]
    last = next(reversed(e.trace.ahead(mishap.inputs)), None)
    spot = _ignoring(e, last) if last is not None else _taken_ready_made(e, mishap)
    notes = [Note("dropped", locations.locate(last.chain[0]), {"call": last.name})] if last and last.chain else []
    asked = innermost(mishap.chain)
    if spot is not None and asked is not None:
        notes.append(Note("asked_here", asked, {}))
    proof, variant = (LIKELY, "") if spot else (OBSERVED, "asked")
    found = of_error("unused_input", e, mishap, spot or asked, proof=proof)
    return [replace(found, notes=tuple(notes), variant=variant)]


def severed(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """Where a value takes part in what its gradient is asked of, and what stands between cuts it off: that cut."""
    inputs = {f"#{number}": number for number in mishap.inputs}
    if mishap.asked < 0 or not inputs or any(call.name == GRAD_KEPT for call in e.trace.behind([mishap.asked])):
        return []
    trace = replace(e.trace, loss=mishap.asked, parameters=inputs)
    verdict = cuts.find(trace, inputs)
    verdict = replace(verdict, cuts=tuple(cut for cut in verdict.cuts if cut.calls))
    found = cut_lines.findings(replace(e, first=replace(e.first, trace=trace), verdict=verdict))
    return [_asked_of(e, mishap, one) for one in found]


def _asked_of(e: Evidence, mishap: AutogradError, cut: Finding) -> Finding:
    """A cut between what is differentiated and what it is differentiated by: the error, and where that was asked."""
    asked = innermost(mishap.chain)
    notes = [*cut.notes, *([Note("asked_here", asked, {})] if asked is not None else [])]
    names = (e.trace.values[int(name.removeprefix("#"))].parameter for name in cut.parameters)
    told = of_error(cut.cause, e, mishap, cut.location, call=cut.call, names=tuple(filter(None, names)), chain=())
    facts = {**{key: value for key, value in cut.facts.items() if key != "raised"}, **told.facts}
    return replace(told, notes=tuple(notes), variant=cut.variant, module=cut.module, library=cut.library, facts=facts)


def _branched(e: Evidence, mishap: AutogradError) -> Finding | None:
    """What a helper was to ask for was itself made of a value that took part: beside the way, not on it.

    Where the function that made it, by a helper or not, asks itself, the line that asks is the one to change.
    """
    part = {number for call in e.trace.behind([mishap.asked]) for number in (*call.inputs, *call.outputs)}
    part = {number for number in part if e.trace.values[number].requires_grad}
    makers = [e.trace.values[number].maker for number in mishap.inputs]
    sides = [e.trace.calls[maker] for maker in makers if maker >= 0]
    beside = [call for call in sides if part.intersection(call.inputs) and not part.intersection(call.outputs)]
    if not beside or len(beside) < len(makers) or not beside[0].chain:
        return None
    again = _computed_again(e, mishap, beside[0])
    if again is not None:
        return again
    if mishap.chain and any(mishap.chain[0][0] is code for code, _ in beside[0].chain):
        return _asked_for_at(e, mishap, beside[0])
    asked = innermost(mishap.chain)
    notes = [*called_by(beside[0].chain), *([Note("asked_here", asked, {})] if asked is not None else [])]
    spot, name = locations.locate(beside[0].chain[0]), beside[0].name
    found = of_error("unused_input", e, mishap, spot, call=name, proof=LIKELY)
    return replace(found, notes=tuple(notes), variant="branch")


def _asked_for_at(e: Evidence, mishap: AutogradError, made: Call) -> Finding | None:
    """What was to be asked for is made inside of the call that asks: its own line, where that spans several."""
    asked, spot = innermost(mishap.chain), innermost(made.chain)
    if asked is None or spot is None or same_line(asked, spot) or not locations.holds(mishap.chain[0], made.chain[0]):
        return None
    found = of_error("unused_input", e, mishap, spot, call=made.name)
    return replace(found, variant="branch")


def _computed_again(e: Evidence, mishap: AutogradError, made: Call) -> Finding | None:
    """What was to be asked for was computed once more, by a helper or property that made what took part as well.

    The line is the one that calls the helper again, where the frames of both part.
    """
    alike = (one for one in e.trace.behind([mishap.asked]) if one.key == made.key and one.index != made.index)
    first = next((one for one in alike if one.chain != made.chain and set(one.inputs) & set(made.inputs)), None)
    if first is None:
        return None
    both = zip(made.chain, first.chain, strict=False)
    depth = next((at for at, (mine, its) in enumerate(both) if mine != its), 0)
    chain, asked = made.chain[depth:], innermost(mishap.chain)
    spot = locations.locate(chain[0], whole=True)
    notes = [Note("first_computed", locations.locate(first.chain[depth]), {}) if depth < len(first.chain) else None]
    notes += [Note("asked_here", asked, {})] if asked is not None and not same_line(asked, spot) else []
    found = of_error("unused_input", e, mishap, spot, call=made.name, chain=chain)
    return replace(found, notes=tuple(note for note in notes if note is not None), variant="again")


def _ignoring(e: Evidence, last: Call) -> Location | None:
    """The function that was handed what ``last`` made: the first line that runs in it, if it does not use it."""
    for call in e.trace.calls[last.index + 1 :]:
        for depth, point in enumerate(call.chain):
            if last.chain and point[0] is last.chain[0][0] and depth > 0 and locations.holds(point, last.chain[0]):
                return locations.locate(call.chain[depth - 1])
    return None


def _taken_ready_made(e: Evidence, mishap: AutogradError) -> Location | None:
    """The line that takes, in place of what a gradient is asked of, the one thing that the program had computed before:
    distances kept with a graph, where the positions are asked for. One of the same shape is rather a copy."""
    values = e.trace.values
    outside = [
        n for n in e.trace.sources([mishap.asked])
        if (v := values[n]).maker < 0 and v.floating and not (v.parameter or v.buffer or v.stray or v.requires_grad)
    ]  # fmt: skip
    if len(outside) != 1 or any(
        values[n].maker >= 0 or values[n].shape == values[outside[0]].shape for n in mishap.inputs
    ):
        return None
    first = next(iter(e.trace.using(outside)), None)
    asked = unflagged.asked_for(mishap, 0)
    name = ast.unparse(asked).partition(".")[0].partition("[")[0] if asked is not None else ""
    return came_from.taken_at(first.chain, name, e.files) if first is not None and first.chain else None


def _took(e: Evidence, call: Call, values: set[int]) -> bool:
    """Whether a call asked for a gradient by these values, with a graph, of something that they flow into."""
    if call.name != GRAD_KEPT or not call.grad_on or not values or not values.issubset(call.inputs):
        return False
    return values.issubset(number for before in e.trace.behind(call.inputs) for number in before.inputs)


def constant_slope(e: Evidence, mishap: AutogradError, first: Call) -> list[Finding]:
    """The line that asks for the second derivative: where the frames part from those that asked for the first."""
    both = zip(reversed(mishap.chain), reversed(first.chain), strict=False)
    depth = next((depth for depth, (asked, made) in enumerate(both, 1) if asked != made), len(mishap.chain))
    chain = mishap.chain[len(mishap.chain) - depth :]
    return [of_error("library_bug", e, mishap, innermost(chain), call=first.name, chain=chain)]
