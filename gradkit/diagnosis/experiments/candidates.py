"""Which changes a finding suggests, with what the run tells beside its line.

They are read off source and trace; whether one cures is for ``judge`` to find out.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import torch

from gradkit.core import causes
from gradkit.core.records import TWIN, Change, Finding, Location
from gradkit.core.trace import Call, Point
from gradkit.diagnosis.experiments.plan import Known, Lab
from gradkit.source import changes, computed_anew, dataflow, imported, locations, syntax
from gradkit.source.changes import Candidate
from gradkit.source.rewrites import Changes

BLOCK, KEPT, ONCE, RESET, ANEW = "block", "kept", "once", "reset", "anew"
_MOST = 3


def suggested(finding: Finding, known: Known) -> tuple[Candidate, ...]:
    """The changes that may cure a finding, the one that leaves most as it is first; ``()`` where a person decides."""
    spot = finding.location
    change = causes.cause(finding.cause).change
    if finding.doubt == TWIN:
        return ()  # whether the cut is right or what takes its value, a person decides
    if change == KEPT and finding.variant == RESET:
        return ()  # what is to stand in its place, a person decides
    if change == KEPT and finding.variant == ONCE:
        return tuple(_of_one_for_all(known, spot)) if spot is not None and imported.stands_as_imported(spot) else ()
    if change == KEPT and spot is not None and imported.stands_as_imported(spot):
        stored = changes.derive_changes(finding)
        return stored or tuple(_of_history(known, spot))
    stays = _stays(finding, known) if change == BLOCK and spot is not None else frozenset()
    return changes.derive_changes(finding, stays)


def stale(known: Known, lab: Lab) -> tuple[torch.Tensor, ...]:
    """The values from before the step whose history is gone: a step that was always cured would have none."""
    values = known.first.trace.values
    numbers = [n for _, n in known.first.crossing if values[n].past or values[n].maker < 0]
    return tuple(lab.ledger.alive(numbers).values())


# -- what may stay in a block -----------------------------------------------------------------------------------------


def _stays(finding: Finding, known: Known) -> frozenset[int]:
    """The lines of those statements of a block that nothing flows through which is to learn.

    None, if they use no parameter: there would be nothing to keep from recording.
    """
    spot, trace = finding.location, known.first.trace
    if spot is None:
        return frozenset()
    spans = changes.block_statements(spot)
    wanted = set(finding.parameters)
    flow = {call.index for call in trace.ahead(n for n, v in enumerate(trace.values) if v.parameter in wanted)}
    kept: set[int] = set()
    uses = False
    for span in spans:
        inside = [call for call in trace.calls if _runs_on(call, spot, span)]
        if inside and not any(call.index in flow for call in inside):
            kept.update(range(span[0], span[1] + 1))
            uses = uses or any(trace.values[n].parameter or trace.values[n].stray for c in inside for n in c.inputs)
    return frozenset(kept) if uses else frozenset()


def _runs_on(call: Call, spot: Location, span: tuple[int, int]) -> bool:
    return any(
        code.co_filename == spot.file and span[0] <= locations.line_of((code, at)) <= span[1] for code, at in call.chain
    )


# -- a history that is needed twice -----------------------------------------------------------------------------------


def _of_history(known: Known, spot: Location) -> Iterator[Candidate]:
    """Detach what two losses share where the earlier uses it; else where the later one does."""
    trace, mishap = known.first.trace, known.first.mishap
    freed = frozenset().union(*(one.calls for one in mishap.freeing)) if mishap is not None else frozenset[int]()
    for number in dict.fromkeys(number for _, number in known.first.crossing):
        value = trace.values[number]
        made = trace.calls[value.maker].chain if value.maker >= 0 and not value.past else ()
        users = trace.using([number])
        earlier = [one for one in users if one.index in freed]
        later = [one for one in users if all(one.index > before.index for before in earlier)]
        for kind, calls in (("earlier", earlier), ("later", later)):
            for found in itertools.islice(
                zip(*(list(_detached(one, made, spot)) for one in calls), strict=False), _MOST
            ):
                lines = {change for pair in found for change in pair}
                yield Candidate(kind, tuple(sorted(lines, key=lambda one: (one.number, one.sign != "-"))))
        return


def _of_one_for_all(known: Known, spot: Location) -> Iterator[Candidate]:
    """What was computed once and is used in every step: compute it anew in each; else let go of its history."""
    for call, _ in known.first.crossing:
        made = computed_anew.before_its_use(spot, call.chain)
        if made:
            yield Candidate(ANEW, made)
            there = f"{computed_anew.variable_at(spot)}.detach()"
            later = (one for one in _of_history(known, spot) if one.kind == "later")
            yield from (one for one in later if any(there in change.text for change in one.changes))
            return


def _detached(call: Call, made: tuple[Point, ...], spot: Location) -> Iterator[Changes]:
    """``f(x)`` as ``f(x.detach())`` in the function that has made ``x``; of what is older than the step, in any.

    Several, where ``f`` is handed several things of which one may be ``x``.
    """
    frames = {id(code): (code, at) for code, at in made}
    shared = [point for point in call.chain if id(point[0]) in frames][:1] if made else call.chain
    for point in shared:
        node, source = locations.node_at(point), imported.read(spot.file, point[0]).source
        if not isinstance(node, ast.Call) or source is None or point[0].co_filename != spot.file:
            continue
        names = _assigned(frames[id(point[0])]) if made else None
        for argument in syntax.arguments(node):
            named = argument.id in (names or (argument.id,)) if isinstance(argument, ast.Name) else not made
            if named and isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
                text, end = source.line(argument.end_lineno or argument.lineno), argument.end_col_offset or 0
                new = (text.encode()[:end] + b".detach()" + text.encode()[end:]).decode()
                yield Change("-", argument.lineno, text), Change("+", argument.lineno, new)


def _assigned(point: Point) -> set[str]:
    """The variables that the statement at a point gives a value; several statements may stand on its line."""
    line, node = locations.line_of(point), locations.node_at(point)
    holding = [s for s in dataflow.statements(point[0]) if s.lineno <= line <= (s.end_lineno or line)]
    exact = [s for s in holding if any(syntax.same(node, one) for one in ast.walk(s))] if node is not None else []
    statement = min(exact or holding, key=lambda s: (s.end_lineno or line) - s.lineno, default=None)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
