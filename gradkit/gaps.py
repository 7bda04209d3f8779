"""Enter the cuts into a picture: a plate on every way from what starves to the loss, where it is lost."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from types import CodeType

from gradkit import cause_registry
from gradkit.canvas import Canvas
from gradkit.cuts import REGION, Cut, Verdict
from gradkit.records import Finding
from gradkit.traces import Call


def enter(canvas: Canvas, verdict: Verdict, findings: Sequence[Finding]) -> None:
    """Put the plate of every cut that has a finding into the flow.

    A call that cuts is replaced by its plate. What a stretch without recording computed hangs on the plate where it
    comes out of that stretch; if nothing that is drawn uses it, the plate stands where the gradient went in.
    """
    told = _Told(canvas, findings)
    for cut in verdict.cuts:
        index = told.of(cut.calls, cut.parameters)
        if index is None or not cut.calls:
            continue
        exits = _exits(canvas, cut) if cut.kind == REGION else []
        key, finding = ("cut", index), findings[index]
        order = (min((target for _, target in exits), default=cut.calls[0]), -1)
        canvas.node(
            key, order, label=finding.cause, kind="cut", status="cut", location=finding.location, finding=index,
            module=_shared(canvas, exits) if exits else finding.module,
        )  # fmt: skip
        for source, target in exits:
            _lead_over(canvas, key, source, target)
        for number in () if exits else cut.calls:
            _sever(canvas, key, canvas.trace.calls[number], set(cut.calls) if cut.kind == REGION else set())
            if cut.kind != REGION:
                _replace(canvas, key, number)


def _exits(canvas: Canvas, cut: Cut) -> list[tuple[int, int]]:
    """Where values that starve come out of a stretch without recording: pairs of a value's number and the call that
    uses it, one more than the last call for the loss."""
    trace = canvas.trace
    keys = {trace.regions[region].key for region in (cut.region,) if region >= 0}
    inside = {c.index for c in trace.calls if any(trace.regions[r].key in keys for r in c.regions)}
    flowing = {trace.parameters[name] for name in cut.parameters if name in trace.parameters}
    found = []
    for call in trace.calls:
        used = flowing.intersection(call.inputs)
        if used:
            flowing.update(call.outputs)
        if call.index not in inside and call.index in canvas.of_call:
            found += [(number, call.index) for number in sorted(used) if _comes_from(canvas, number, inside)]
    if trace.loss in flowing and _comes_from(canvas, trace.loss, inside):
        found.append((trace.loss, len(trace.calls)))
    return found


def _comes_from(canvas: Canvas, number: int, inside: set[int]) -> bool:
    value = canvas.trace.values[number]
    return value.maker in inside and (value.floating or value.python) and value.maker in canvas.of_call


def _shared(canvas: Canvas, exits: Iterable[tuple[int, int]]) -> str:
    """The innermost module that holds both sides of all these exits."""
    trace, sides = canvas.trace, []
    for source, target in exits:
        for number in (trace.values[source].maker, target):
            running = trace.calls[number].module if number < len(trace.calls) else -1
            sides.append(trace.modules[running].split(".") if running >= 0 else [])
    same = []
    for names in zip(*sides, strict=False):
        if len(set(names)) > 1:
            break
        same.append(names[0])
    return ".".join(same)


def _lead_over(canvas: Canvas, key: object, source: int, target: int) -> None:
    """Lead a link over a plate."""
    tail = canvas.key_of(source)
    heads: list[object] = canvas.of_call.get(target, ["loss"])
    kept = [head for head in heads if (tail, head) in canvas.edges] or heads[:1]
    for head in kept:
        canvas.unlink(tail, head)
        canvas.edge(key, head, "cut")
    canvas.edge(tail, key, "cut")


def _sever(canvas: Canvas, key: object, call: Call, inside: set[int]) -> None:
    """Lead what flows into a call from outside of the cut over the cut's plate."""
    mine = canvas.of_call.get(call.index)
    if not mine:
        return
    for number in call.inputs:
        value = canvas.trace.values[number]
        if value.maker in inside or not value.floating:
            continue
        source = canvas.key_of(number)
        if source is None or source not in canvas.nodes or canvas.nodes[source][1]["kind"] == "input":
            continue
        if value.requires_grad or value.parameter:
            canvas.unlink(source, mine[0])
            canvas.edge(source, key, "cut")
            canvas.edge(key, mine[0], "cut")


def _replace(canvas: Canvas, key: object, number: int) -> None:
    """The plate stands for the call that cuts: what used its result hangs on the plate."""
    for mine in [k for k in canvas.of_call.get(number, []) if k == ("call", number)]:
        for source, target in list(canvas.touching.get(mine, ())):
            if source == mine:
                canvas.edge(key, target, "cut")
            canvas.unlink(source, target)
        del canvas.nodes[mine]
        canvas.of_call[number] = [key]


class _Told:
    """The findings by the lines that they name."""

    def __init__(self, canvas: Canvas, findings: Sequence[Finding]) -> None:
        self._canvas = canvas
        self._starved = [frozenset(finding.parameters) for finding in findings]
        self._at: dict[tuple[str, int], list[int]] = {}
        self._lines: dict[int, tuple[list[int], list[int]]] = {}
        for index, finding in enumerate(findings):
            if cause_registry.cause(finding.cause).drawn:
                spots = (finding.location, *finding.also) if finding.location else finding.also
                for place in dict.fromkeys((spot.file, spot.line) for spot in spots):
                    self._at.setdefault(place, []).append(index)

    def of(self, calls: Iterable[int], parameters: Iterable[str]) -> int | None:
        """The first finding that names a line of one of the calls and starves all these parameters."""
        points = {(id(code), at): (code, at) for number in calls for code, at in self._canvas.trace.calls[number].chain}
        places = {(code.co_filename, self._line(code, at)) for code, at in points.values()}
        found = {index for place in places for index in self._at.get(place, ())}
        starved = frozenset(parameters)
        return next((index for index in sorted(found) if starved <= self._starved[index]), None)

    def _line(self, code: CodeType, at: int) -> int:
        """As ``frames.line_of``, with the table of a long function read once."""
        if id(code) not in self._lines:
            known = [(start, line or code.co_firstlineno) for start, _, line in code.co_lines()]
            self._lines[id(code)] = [start for start, _ in known], [line for _, line in known]
        starts, lines = self._lines[id(code)]
        row = bisect.bisect_right(starts, at) - 1
        return lines[row] if row >= 0 else code.co_firstlineno
