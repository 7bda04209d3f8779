"""Where a history that is needed a second time was kept: in an attribute, a variable or a container.

It was kept from before the step, or this run made it once and a loop in it uses it again and again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradkit.core.operations import COPIES, JOINS
from gradkit.core.records import Location
from gradkit.core.trace import Call, Chain, Point
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import dataflow, keeping, locations, put_away, rewrites, syntax
from gradkit.source.keeping import Kept
from gradkit.tracing.autograd_errors import AutogradError, Freeing

GATHERING = JOINS | COPIES
"""Calls that only put values together, or copy one."""


def kept(e: Evidence, call: Call, number: int) -> list[Kept]:
    """Where a value that is used again was stored for it."""
    step, callers = call.chain[-1][0] if call.chain else None, e.facts.callers
    for held in e.shown.histories.kept:
        if number not in held.numbers:
            continue
        ways = ((held.name, held.owner, held.reader), *held.within)
        told = [found for n, o, r in ways if (found := keeping.kept_at(n, e.files, o, r, step, callers))]
        found = next(iter(told), [])
        if _by_a_new_object(found):
            found = next((one for one in told if not _by_a_new_object(one) and not any(x.before for x in one)), found)
        given = keeping.handed_in(held.name, callers, step) if held.reader is step and step is not None else None
        if not found and given is not None:
            name, (code, _) = given
            found = keeping.kept_at(name, e.files, None, code, step, callers)
        if found:
            return found
    return []


def _by_a_new_object(lines: list[Kept]) -> bool:
    """Whether it is an object's own constructor, run by the step, that keeps a value: what keeps the object does."""
    names = (line.location.function.rpartition(".")[2] for line in lines)
    return all(name in put_away.CONSTRUCTORS for name in names) and not any(line.before for line in lines)


def kept_for_a_loop(e: Evidence, call: Call, number: int, mishap: AutogradError) -> list[Kept]:
    """Where a value was kept that this run made once, for a line which used it before, in an earlier pass of a loop.

    A call whose own history was freed had no business with the value, as its loss trains nothing of what made it: there
    is nothing to make anew.
    """
    uses = [one for one in e.trace.using([number]) if one.chain == call.chain]
    is_again = len(uses) > 1 and any(one.index in mishap.freed for one in uses)
    if e.trace.values[number].maker < 0 or not is_again or call.index in mishap.freed:
        return []
    makers = _gathered(e, number)
    places = (put_away.put_away_at(one.chain, call.chain, e.files) for one in makers)
    again = any(sum(one.key == call.key for call in e.trace.calls) > 1 for one in makers)
    return [Kept(spot, before=not (again and _puts_away(spot))) for spot in dict.fromkeys(filter(None, places))]


def _puts_away(spot: Location) -> bool:
    """Whether a line puts a value into a list, an attribute or under a key."""
    tree = locations.tree_of(spot.file)
    here = (one for one in ast.walk(tree) if isinstance(one, ast.stmt)) if tree is not None else ()
    return any(one.lineno <= spot.line <= (one.end_lineno or one.lineno) and rewrites.keeps(one) for one in here)


def kept_in_an_attribute(e: Evidence, call: Call, number: int, mishap: AutogradError) -> list[Kept]:
    """Where an earlier pass kept what it made, for a line that reads it by its attribute once a backward has freed it.

    The innermost function that both ran in was left before the backward: so the line reads it in a later pass.
    """
    maker = e.trace.values[number].maker
    if maker < 0 or not call.chain:
        return []
    found = []
    for one in _gathered(e, number):
        stores = _stores(e, call, one)
        made = {code for code, _ in one.chain}
        both = next((code for code, _ in call.chain if code in made), None)
        left = both is not None and not any(code is both for freeing in mishap.freeing for code, _ in freeing.chain)
        if not left:
            continue
        spot = put_away.put_away_at(one.chain, call.chain, e.files, taken_over=True, stores=stores)
        memo = _remembered(e, one, call)
        found += [spot] if spot is not None and (spot.file, spot.line) in stores else [memo] if memo else []
    return [Kept(spot) for spot in dict.fromkeys(found)]


def _remembered(e: Evidence, maker: Call, call: Call) -> Location | None:
    """What makes a function remember its results, if a value was made in one that does not run where it is used."""
    running = {code for code, _ in call.chain}
    memos = (dataflow.memo_decorator(code, e.files) for code, _ in maker.chain if code not in running)
    return next(filter(None, memos), None)


def _stores(e: Evidence, call: Call, maker: Call) -> set[tuple[str, int]]:
    """The lines that store under a name by which a call reads: of an attribute, or a variable that outlives a run."""
    if not call.chain:
        return set()
    point = call.chain[0]
    attributes = put_away.attributes_read(point, e.files, maker.chain)
    told = [*((name, None) for name in attributes), *((name, point[0]) for name in put_away.variables_read(point))]
    found = (
        spot for name, reader in told for spot, _ in dataflow.store_lines(name, e.files, reader=reader, registered=True)
    )
    return {(spot.file, spot.line) for spot in found}


def kept_past(e: Evidence, call: Call, number: int, freeing: Freeing) -> Location | None:
    """Where a value is kept that a later pass of the step uses, past the backward that freed its history."""
    maker = e.trace.calls[e.trace.values[number].maker]
    alive = {code for code, _ in freeing.chain}
    used = tuple(point for point in call.chain if point[0] in alive)
    for one, made in ((maker, number), *_until_made_again(e, maker, number)):
        at, stores = one.outputs.index(made), _stores(e, call, one)
        spot = put_away.put_away_at(one.chain, used, e.files, at, taken_over=True, stores=stores)
        if spot is not None:
            return spot
    return None


def _until_made_again(e: Evidence, maker: Call, number: int) -> Iterator[tuple[Call, int]]:
    """The calls, with what they make, from a value to the one that the same call makes of it later."""
    ahead = e.trace.ahead([number])
    again = next((one for one in ahead if one.key == maker.key), None)
    way = e.trace.sources(again.inputs) if again is not None else set[int]()
    for one in ahead[: ahead.index(again)] if again is not None else ():
        yield from ((one, output) for output in one.outputs if output in way)


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


def is_used_at_once(e: Evidence, call: Call, number: int) -> bool:
    """Whether a call that takes a value of an earlier pass takes with it what the same line has made in its own pass.

    Then to detach what is kept would take the gradient of this pass, too.
    """
    maker = e.trace.values[number].maker
    if maker < 0:
        return False
    key = e.trace.calls[maker].key
    makers = (e.trace.values[n].maker for n in call.inputs if e.trace.values[n].requires_grad)
    return sum(one >= 0 and e.trace.calls[one].key == key for one in makers) > 1


def used_from_before(e: Evidence) -> tuple[Location, ...]:
    """The lines that use a history from before the step, which its backward frees: a second step needs it made anew.

    Whether the program makes it anew is not to be seen from within the step, so that nothing is blamed for it.
    """
    if not e.first.frees_past or e.reached.error or e.mishap is not None:
        return ()
    values = e.trace.values
    calls = [one for one in e.trace.calls if any(values[n].past and values[n].requires_grad for n in one.inputs)]
    return tuple(dict.fromkeys(filter(None, (locations.innermost(one.chain) for one in calls))))


def is_let_go(e: Evidence, number: int) -> bool:
    """Whether what holds a value is given another without history, before the step comes round again."""
    held = [one for one in e.shown.histories.kept if number in one.numbers]
    return bool(held) and all(keeping.is_let_go(one.name, e.files, one.owner, one.reader) for one in held)


def handed_over(e: Evidence, chain: Chain) -> Chain:
    """The frames from the line on that hands a value to what only uses it as it was given.

    That is a module's ``forward``, or a function that this run has called in several places, with other values as well.
    """
    while len(chain) > 1 and (chain[0][0].co_name == "forward" or _is_shared(e, chain)) and _is_given(chain[0]):
        chain = chain[1:]
    return chain


def _is_shared(e: Evidence, chain: Chain) -> bool:
    code, outer = chain[0][0], chain[1][0]
    return code is not outer and len(e.trace.callers(code)) > 1


def _is_given(point: Point) -> bool:
    """Whether what stands at a place is made of what its function was given, and not of what an object keeps."""
    code, node = point[0], locations.node_at(point)
    given = {*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]}
    parts = syntax.arguments(node) if isinstance(node, ast.Call) else [node] if node else []
    inner = [one for part in parts for one in ast.walk(part)]
    names = {one.id for one in inner if isinstance(one, ast.Name)}
    keeps = any(isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self" for one in inner)
    return bool(names & given) and not keeps
