"""A stop that is right, and a loss that takes what it stopped in place of the same value with its history.

``feats = enc(x)``, then ``feats_eval = enc(x)`` under ``no_grad`` for a metric, and the loss is computed from the
second: the block is as it should be. Such a value has a live twin: what was computed in the same way, is kept in a
variable and never reaches the loss. Where one line alone takes the wrong one of the two, that line is named; where it
could have been meant otherwise, the cut is no more than likely, and the twin is told.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType

from gradkit.core.operations import ESCAPES
from gradkit.core.records import LIKELY, READ, TWIN, Finding, Note
from gradkit.core.trace import BLOCK, DECORATOR, INFERENCE, Call, Chain, Point, Trace
from gradkit.diagnosis.facts.cuts import DETACH, Cut
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import dataflow, locations, syntax

_STOPS = frozenset(("detach", "data", "clone", "contiguous"))
_SWITCHES = (BLOCK, DECORATOR, INFERENCE)
_Way = tuple[object, ...]


@dataclass(frozen=True)
class _Twins:
    """Two variables of one function that hold the same, once without a history and once with.

    Attributes:
        stopped, live: the statements that give them their values.
        names, others: what those are called.
        point: where the function was at the stopped one.
        outer: the frames around that function.
        numbers: of the values that the stopped statement hands on.
    """

    stopped: ast.stmt
    live: ast.stmt
    names: tuple[str, ...]
    others: tuple[str, ...]
    point: Point
    outer: Chain
    numbers: tuple[int, ...]


def told(e: Evidence, cut: Cut, finding: Finding) -> Finding:
    """A finding of one cut, as it is where what the cut stops has no live twin."""
    if cut.kind == DETACH:
        found = _detached(e, cut)
        return _in_doubt(found, finding) if found is not None else finding
    region = e.trace.regions[cut.region] if cut.region >= 0 else None
    if region is None or region.kind not in _SWITCHES or region.via:
        return finding
    dead = _without_use(e, cut)
    if not dead:
        return finding
    pairs = list(_pairs(e, cut, dead, _Alike(e.trace, by_data=True)))
    if pairs:
        moved = _moved(e, cut, [one for one, _ in pairs], finding) if _are_idle(e.trace, pairs) else None
        return moved or _in_doubt(pairs[0][0], finding)
    pairs = list(_pairs(e, cut, dead, _Alike(e.trace, by_data=False)))
    return _in_doubt(pairs[0][0], finding) if pairs and _are_idle(e.trace, pairs) else finding


def _in_doubt(found: _Twins, finding: Finding) -> Finding:
    """The cut may be right, and the loss may take the wrong one of two: it is no more than likely."""
    notes = (*finding.notes, _live(found, finding))
    return replace(finding, proof=LIKELY, doubt=finding.doubt or TWIN, notes=notes)


def _live(found: _Twins, finding: Finding) -> Note:
    spot = finding.location
    function = spot.function if spot is not None else ""
    place = locations.place(found.point[0].co_filename, found.live, function)
    return Note("live_twin", place, {"name": found.others[0]})


def _moved(e: Evidence, cut: Cut, pairs: Sequence[_Twins], finding: Finding) -> Finding | None:
    """The finding at the line that takes the stopped one; None if that is not one line."""
    if len({(one.stopped.lineno, one.live.lineno) for one in pairs}) != 1:
        return None
    found = pairs[0]
    read = _read_by(e, cut, found)
    if read is None or read.lineno <= max(found.live.lineno, found.stopped.lineno):
        return None
    file, function = found.point[0].co_filename, locations.qualified_name(found.point[0])
    notes = (
        Note("stopped_here", locations.place(file, found.stopped, function), {"name": read.id}),
        _live(found, finding),
    )
    return Finding(
        "trainable_unused", locations.place(file, read, function), notes, proof=LIKELY, doubt=READ,
        parameters=finding.parameters, module=finding.module, variant="stopped", cuts=finding.cuts,
        facts={"name": read.id, "live": found.others[0]},
    )  # fmt: skip


# -- which two are alike ----------------------------------------------------------------------------------------------


class _Alike:
    """Tells values that were computed in the same way from the same parameters.

    Attributes:
        by_data: and from the same data.
    """

    def __init__(self, trace: Trace, *, by_data: bool) -> None:
        self.by_data = by_data
        self._trace = trace
        self._known: dict[_Way, int] = {}
        self._of: dict[int, int] = {}
        self._learns: set[int] = set() if by_data else self._behind_parameters()
        for call in trace.calls:
            for place, number in enumerate(call.outputs):
                if number not in self._of:
                    self._of[number] = self._way(call, place, number)

    def of(self, number: int) -> int:
        """Equal for values that are alike."""
        if number not in self._of:
            value = self._trace.values[number]
            data = not (value.parameter or value.buffer or value.attribute or value.stray)
            alone: _Way = ("", value.parameter) if value.parameter else ("", number)
            self._of[number] = self._number(("data",) if data and not self.by_data else alone)
        return self._of[number]

    def _way(self, call: Call, place: int, number: int) -> int:
        if call.name in _STOPS and len(call.inputs) == 1:
            return self.of(call.inputs[0])
        if not self.by_data and number not in self._learns:
            return self._number(("data",))
        if not call.inputs:
            return self._number(("", number))
        return self._number((call.name, place, *map(self.of, call.inputs)))

    def _behind_parameters(self) -> set[int]:
        found = {n for n, value in enumerate(self._trace.values) if value.parameter or value.stray}
        return found.union(*(call.outputs for call in self._trace.ahead(found)))

    def _number(self, way: _Way) -> int:
        return self._known.setdefault(way, len(self._known))


def _without_use(e: Evidence, cut: Cut) -> list[int]:
    """The values with a history that were computed from what a cut starves, and that the loss has no use for."""
    return [
        number for call in e.flow_from(cut.parameters) if call.grad_on and call.chain
        for number in call.outputs
        if e.trace.values[number].requires_grad and not e.trace.values[number].leaf
        and number not in e.verdict.reaching
    ]  # fmt: skip


def _pairs(e: Evidence, cut: Cut, dead: Sequence[int], alike: _Alike) -> Iterator[tuple[_Twins, int]]:
    """The variables that hold what a cut stopped, each with its live twin and the number of that one's value."""
    lives: dict[int, list[int]] = {}
    for number in dead:
        lives.setdefault(alike.of(number), []).append(number)
    for call in (e.trace.calls[index] for index in cut.calls):
        for other in dict.fromkeys(n for output in call.outputs for n in lives.get(alike.of(output), ())):
            found = _twins(e, cut, call, e.trace.calls[e.trace.values[other].maker])
            if found is not None and not _is_meant(e.trace, other, found.numbers):
                yield found, other


def _twins(e: Evidence, cut: Cut, call: Call, live: Call) -> _Twins | None:
    """The variables that two calls are made for, in the function that leads to both."""
    depth = _parting(call.chain, live.chain)
    if depth is None:
        return None
    mine, its = call.chain[len(call.chain) - depth - 1], live.chain[len(live.chain) - depth - 1]
    outer = call.chain[len(call.chain) - depth :]
    (stopped, names, _), (kept, others, _) = _assigned(mine), _assigned(its)
    if stopped is None or kept is None or not names or not others or set(names) & set(others):
        return None
    inside = [e.trace.calls[index] for index in cut.calls if _stands_in(e.trace.calls[index].chain, mine, outer)]
    numbers = tuple(n for one in inside for n in one.outputs)
    after = e.trace.using(live.outputs)
    if any(_stands_in(one.chain, its, outer) for one in after):
        return None  # what the variable holds is not yet this
    return _Twins(stopped, kept, names, others, mine, outer, numbers)


def _parting(one: Chain, other: Chain) -> int | None:
    """How many outer frames two calls share, where both were led to by one function from different statements."""
    for depth, (mine, its) in enumerate(zip(reversed(one), reversed(other), strict=False)):
        if mine != its:
            same = mine[0] is its[0] and locations.line_of(mine) != locations.line_of(its)
            return depth if same else None
    return None


def _stands_in(chain: Chain, point: Point, outer: Chain) -> bool:
    """Whether a call was led to by the statement that was running at a point, and for the same variable."""
    at = len(chain) - len(outer) - 1
    if at < 0 or chain[at + 1 :] != outer or chain[at][0] is not point[0]:
        return False
    (statement, _, value), (other, _, its) = _assigned(chain[at]), _assigned(point)
    return statement is other and value is its


def _statement(point: Point) -> ast.stmt | None:
    return dataflow.statement_at(point[0], locations.line_of(point))


def _assigned(point: Point) -> tuple[ast.stmt | None, tuple[str, ...], ast.expr | None]:
    """The statement that was running at a point, the variables that it gave the value, and the value.

    Of ``a, b = f(x), f(y)``, it is one of the two.
    """
    statement, node = _statement(point), locations.node_at(point)
    for target, value in syntax.pairs(statement) if isinstance(statement, ast.Assign) else ():
        if node is None or any(syntax.same(node, part) for part in ast.walk(value)):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return statement, tuple(name.id for name in names if isinstance(name, ast.Name)), value
    return statement, (), None


def _are_idle(trace: Trace, pairs: Sequence[tuple[_Twins, int]]) -> bool:
    """Whether nothing is read off the live ones: neither a number for a log nor a choice."""
    return all(
        call.name not in ESCAPES and all(trace.values[n].floating and not trace.values[n].python for n in call.outputs)
        for call in trace.ahead(number for _, number in pairs)
    )


def _is_meant(trace: Trace, live: int, stopped: Collection[int]) -> bool:
    """Whether a value is there for something else than the loss: stopped on its way to what trains, or compared.

    A generator's output goes to the discriminator without its history; two passes are held against each other.
    """
    flow, beside = {live}, {*stopped}.union(*(call.outputs for call in trace.ahead(stopped)))
    for call in trace.ahead([live]):
        mine = flow.intersection(call.inputs)
        woken = any(not trace.values[n].requires_grad for n in mine)
        if woken and any(trace.values[n].requires_grad for n in call.outputs):
            return True
        if beside.intersection(call.inputs) and not any(c.name in ESCAPES for c in trace.ahead(call.outputs)):
            return True
        flow.update(call.outputs)
    return False


# -- which line takes the wrong one -----------------------------------------------------------------------------------


def _read_by(e: Evidence, cut: Cut, found: _Twins) -> ast.Name | None:
    """Where the stopped variable is read on the way to the loss, if that is one line."""
    users = [
        call for call in e.trace.using(found.numbers)
        if cut.region not in call.regions and e.verdict.reaching.intersection(call.outputs)
    ]  # fmt: skip
    depth, code = len(found.outer), found.point[0]
    at = [c.chain[len(c.chain) - depth - 1] for c in users if _is_in(c.chain, depth, found)]
    reads = _reads(code, found.names, found.stopped)
    if len(at) == len(users) and at and e.trace.loss not in found.numbers:
        lines = {statement.lineno for point in at if (statement := _statement(point)) is not None}
        reads = [(statement, name) for statement, name in reads if statement.lineno in lines]
        return reads[0][1] if len(lines) == 1 and reads else None
    lines = {statement.lineno for statement, _ in reads}
    return reads[0][1] if len(lines) == 1 else None


def _is_in(chain: Chain, depth: int, found: _Twins) -> bool:
    at = len(chain) - depth - 1
    return at >= 0 and chain[at + 1 :] == found.outer and chain[at][0] is found.point[0]


def _reads(code: CodeType, names: Collection[str], stopped: ast.stmt) -> list[tuple[ast.stmt, ast.Name]]:
    return [one for one in dataflow.reads(code, names) if one[0].lineno > (stopped.end_lineno or stopped.lineno)]


# -- of a detach ------------------------------------------------------------------------------------------------------


def _detached(e: Evidence, cut: Cut) -> _Twins | None:
    """What was detached stands in a variable that nothing else uses, and the copy is used for more than the loss."""
    for call in (e.trace.calls[index] for index in cut.calls if e.trace.calls[index].inputs):
        maker = e.trace.values[call.inputs[0]].maker
        users, copies = e.trace.using(call.inputs[:1]), e.trace.using(call.outputs)
        aside = any(not e.verdict.reaching.intersection(one.outputs) for one in copies)
        if maker < 0 or not aside or any(one.index not in cut.calls for one in users):
            continue
        found = _twins(e, cut, call, e.trace.calls[maker])
        if found is not None:
            return found
    return None
