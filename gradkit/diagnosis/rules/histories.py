"""Where a history that is needed a second time was kept: in an attribute, a variable or a container.

It was kept from before the step, or this run made it once and a loop in it uses it again and again.
"""

from __future__ import annotations

from gradkit.core.operations import COPIES, JOINS
from gradkit.core.trace import Call
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import keeping
from gradkit.source.keeping import Kept
from gradkit.source.put_away import put_away_at
from gradkit.tracing.autograd_errors import AutogradError

GATHERING = JOINS | COPIES
"""Calls that only put values together, or copy one."""


def kept(e: Evidence, call: Call, number: int) -> list[Kept]:
    """Where a value that is used again was stored for it."""
    step, callers = call.chain[-1][0] if call.chain else None, e.facts.callers
    for held in e.shown.histories.kept:
        if number not in held.numbers:
            continue
        ways = ((held.name, held.owner, held.reader), *held.within)
        found = next(filter(None, (keeping.kept_at(n, e.files, o, r, step, callers) for n, o, r in ways)), [])
        given = keeping.handed_in(held.name, callers, step) if held.reader is step and step is not None else None
        if not found and given is not None:
            name, (code, _) = given
            found = keeping.kept_at(name, e.files, None, code, step, callers)
        if found:
            return found
    return []


def put_away(e: Evidence, call: Call, number: int, mishap: AutogradError) -> list[Kept]:
    """Where a value was kept that this run made once, for a line which used it before, in an earlier pass of a loop."""
    uses = [one for one in e.trace.using([number]) if one.chain == call.chain]
    is_again = len(uses) > 1 and any(one.index in mishap.freed for one in uses)
    if e.trace.values[number].maker < 0 or not is_again:
        return []
    makers = _gathered(e, number)
    places = (put_away_at(one.chain, call.chain, e.files) for one in makers)
    return [Kept(spot, before=True) for spot in dict.fromkeys(filter(None, places))]


def _gathered(e: Evidence, number: int) -> list[Call]:
    """The calls that computed what a value was put together from, or what has another shape in it."""
    todo, found = [number], dict[object, Call]()
    while todo:
        maker = e.trace.values[todo.pop()].maker
        call = e.trace.calls[maker] if maker >= 0 else None
        if call is not None and call.name in GATHERING:
            todo += [one for one in call.inputs if e.trace.values[one].requires_grad]
        elif call is not None:
            found.setdefault(call.key, call)
    return list(found.values())


def is_let_go(e: Evidence, number: int) -> bool:
    """Whether what holds a value is given another without history, before the step comes round again."""
    held = [one for one in e.shown.histories.kept if number in one.numbers]
    return bool(held) and all(keeping.is_let_go(one.name, e.files, one.owner, one.reader) for one in held)
