"""A gradient is asked for by name of a value that does not require grad, or did not when it was used.

Nothing was recorded for it, so there is nothing to hand out: the line that made it without, that took it away, or that
set it too late.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from gradkit.core.operations import GRAD, GRAD_KEPT
from gradkit.core.records import LIKELY, OBSERVED, PROVEN, Finding, Location, Note
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import Cut
from gradkit.diagnosis.rules import setup
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, of_error, same_line
from gradkit.source import came_from, locations, syntax
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError

PLAIN, LOST, LATE, FROZEN = "plain", "lost", "late", "frozen"


def findings(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """Why a value that a gradient is asked for does not require grad; ``[]`` where that is not what is wrong."""
    values = e.trace.values
    plain = [number for number in mishap.inputs if not values[number].requires_grad and values[number].floating]
    if not plain or (mishap.kind == autograd_errors.NO_HISTORY and not _is_all(e, mishap, plain)):
        return []
    names = [values[number].parameter for number in plain if values[number].parameter]
    if names:
        return _frozen(e, mishap, names)
    return by_line(one for number in plain for one in _of_value(e, mishap, number))


def seen_too_late(e: Evidence, mishap: AutogradError) -> Finding | None:
    """What ``too_late`` tells, where the step was seen to use the value first, and to set ``requires_grad`` then."""
    spots = [_set_after_its_uses(e, mishap, number) for number in mishap.inputs] if mishap.asked >= 0 else []
    return _finding(e, mishap, spots[0], LATE) if len(spots) == 1 and spots[0] is not None else None


def too_late(e: Evidence, mishap: AutogradError) -> Finding | None:
    """A value took part in what its gradient is asked of, without a history: it was told to require grad after that."""
    part = e.trace.sources([mishap.asked]) if mishap.asked >= 0 else set[int]()
    late = [n for n in mishap.inputs if n in part and e.trace.values[n].leaf and not e.trace.values[n].parameter]
    asked = asked_for(mishap, 0) if len(late) == len(mishap.inputs) == 1 else None
    spot = _switched(_whole(e, mishap), asked, on=True) if asked is not None else None
    return _finding(e, mishap, spot, LATE) if spot is not None else None


def _set_after_its_uses(e: Evidence, mishap: AutogradError, number: int) -> Location | None:
    """Where a value was told to require grad when all that is asked of had been computed from it."""
    values, chain = e.trace.late.get(number, (0, ()))
    uses = [call for call in e.trace.behind([mishap.asked]) if number in call.inputs]
    if not chain or not uses or any(made >= values for call in uses for made in call.outputs):
        return None
    return locations.innermost(chain)


def _is_all(e: Evidence, mishap: AutogradError, plain: list[int]) -> bool:
    """Whether what is asked of has no history for want of these values' alone: they take part, and nothing cuts."""
    if mishap.asked < 0 or len(plain) < len(mishap.inputs):
        return False
    inputs = {f"#{number}": number for number in plain}
    found = cuts.find(replace(e.trace, loss=mishap.asked, parameters=inputs), inputs)
    return not found.cuts and not found.unconnected


def _of_value(e: Evidence, mishap: AutogradError, number: int) -> Iterator[Finding]:
    lost = list(_lost(e, number))
    for cut in lost:
        region = e.trace.regions[cut.region] if cut.region >= 0 else None
        call = e.trace.calls[cut.calls[0]]
        chain = region.chain if region is not None else call.chain
        spot = region.place if region is not None and region.place is not None else locations.innermost(chain)
        yield _finding(e, mishap, spot, LOST, call=region.via if region is not None else call.name, chain=chain)
    if lost:
        return
    position = mishap.inputs.index(number)
    value = asked_for(mishap, position)
    off = _switched(_whole(e, mishap), value, on=False) if value is not None else None
    bound = came_from.bound_at(_whole(e, mishap), value) if value is not None else None
    spot = off or bound or _made(e, number) or locations.innermost(mishap.chain)
    yield _finding(e, mishap, spot, PLAIN)


def _whole(e: Evidence, mishap: AutogradError) -> Chain:
    """The frames where the gradient was asked for, and those further out that ran the step."""
    return (*mishap.chain, *e.facts.callers)


def _lost(e: Evidence, number: int) -> Iterator[Cut]:
    """What a value lost requires_grad by, where it comes of one that has it and no gradient was asked for before."""
    trace, values = e.trace, e.trace.values
    taken = {n for call in trace.calls if call.name in (GRAD, GRAD_KEPT) for n in call.inputs}
    leaves = {f"#{n}": n for n in trace.sources([number]) if values[n].leaf and not values[n].parameter and n != number}
    if not leaves or taken & set(leaves.values()):
        return
    behind: Trace = replace(trace, loss=number, parameters=leaves)
    yield from (cut for cut in cuts.find(behind, leaves).cuts if cut.calls)


def _made(e: Evidence, number: int) -> Location | None:
    made = e.trace.maker(number)
    return locations.innermost(made.chain) if made is not None else None


def asked_for(mishap: AutogradError, position: int) -> ast.expr | None:
    """The expression that stands for one of the values whose gradient is asked for."""
    call = locations.node_at(mishap.chain[0]) if mishap.chain else None
    if not isinstance(call, ast.Call):
        return None
    given = syntax.argument(call, "inputs", 1)
    if isinstance(given, (ast.List, ast.Tuple)):
        return given.elts[position] if position < len(given.elts) else None
    return given if position == 0 else None


def _switched(chain: Chain, value: ast.expr, *, on: bool) -> Location | None:
    """Where requires_grad of a value is set, in the function that asks or in one that hands it over."""
    for given in came_from.handed(chain, value):
        if given.value is None:
            return None
        name, code, line = ast.unparse(given.value), given.code, locations.line_of(given.chain[0])
        body = came_from.statements_around(given.chain[0])
        found = [one for one in body if one.lineno < line and _sets(one, name) is on]
        if found:
            return locations.place(code.co_filename, found[-1], locations.qualified_name(code))
    return None


def _sets(statement: ast.stmt, name: str) -> bool | None:
    """Whether a statement sets ``requires_grad`` of what has a name on or off; None if it does not set it."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        told = [ast.unparse(target) for target in statement.targets]
        return bool(statement.value.value) if f"{name}.requires_grad" in told else None
    call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != f"{name}.requires_grad_":
        return None
    return all(isinstance(one, ast.Constant) and bool(one.value) for one in syntax.arguments(call))


def _frozen(e: Evidence, mishap: AutogradError, names: list[str]) -> list[Finding]:
    """Parameters that are frozen: the line that did it; where others are asked for too, the line that asks for all."""
    blamed = setup.frozen_by(e, names)
    if len(names) == len(mishap.inputs):
        return blamed
    notes = tuple(Note("frozen_there", one.location) for one in blamed[:1] if one.location is not None)
    asked = _finding(e, mishap, locations.innermost(mishap.chain), FROZEN)
    return [replace(asked, notes=(*asked.notes, *notes), facts={**asked.facts, "name": names[0]})]


def _finding(
    e: Evidence, mishap: AutogradError, spot: Location | None, variant: str, *, call: str = "", chain: Chain = ()
) -> Finding:
    asked, mended = locations.innermost(mishap.chain), e.shown.mended
    notes = called_by(chain)
    if asked is not None and (spot is None or not same_line(asked, spot)):
        notes.append(Note("asked_here", asked, {}))
    proof = OBSERVED if variant == FROZEN else PROVEN if mended.revived else OBSERVED if mended.passed else LIKELY
    found = of_error("unused_input", e, mishap, spot, call=call, proof=proof, chain=())
    return replace(found, notes=tuple(notes), variant=variant)
