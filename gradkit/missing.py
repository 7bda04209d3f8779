"""Parameters from which nothing flows into the loss: a constant loss, a module that was not called, a stale value."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gradkit import classes, flows, frames, sources
from gradkit.evidence import Evidence, called_by
from gradkit.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.traces import Call, Key


def name(e: Evidence, told: set[str]) -> list[Finding]:
    """Why nothing flows from some parameters into the loss."""
    names = [n for n in e.verdict.unconnected if n not in told]
    if not names:
        return []
    other = [*_cached(e, names), *_replaced(e, names)]
    if other:
        return other
    if not any(e.trace.values[v].parameter for v in e.verdict.reaching) and e.trace.loss >= 0:
        return [_constant(e, names)]
    found, names = _escaped(e, names)
    groups: dict[Key, tuple[Location | None, str, list[str]]] = {}
    for parameter in names:
        spot, attribute = classes.definition(e.way_to(parameter))
        key = (spot.file, spot.line) if spot is not None else (parameter.rpartition(".")[0],)
        groups.setdefault(key, (spot, attribute, []))[2].append(parameter)
    return [*found, *(_unused(e, spot, attribute, group) for spot, attribute, group in groups.values())]


def _escaped(e: Evidence, names: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Parameters whose value left torch in a way that cannot be followed, while the loss takes in numbers."""
    used = {row.name for row in e.rows if row.used}
    groups: dict[int, tuple[Call, Call, list[str]]] = {}
    for name in used.intersection(names) if _origins(e) else ():
        left, back = _left_torch(e, [name])
        if left is not None and back is not None:
            groups.setdefault(left.index, (left, back, []))[2].append(name)
    found = [_round_trip(left, back, sorted(group)) for left, back, group in groups.values()]
    told = {name for finding in found for name in finding.parameters}
    return found, [name for name in names if name not in told]


def _round_trip(left: Call, back: Call, names: Sequence[str]) -> Finding:
    cause = "numpy_roundtrip" if left.name in ("numpy", "__array__") else "python_roundtrip"
    notes = (Note("comes_back", frames.locate(back.chain[0]), {"call": back.name}), *called_by(left.chain))
    return Finding(cause, frames.locate(left.chain[0]), notes, LIKELY, tuple(names), call=left.name)


def _cached(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A value without history that a module kept from before the step, and that stands where the parameters should."""
    found = []
    for number in sorted(e.verdict.reaching):
        value = e.trace.values[number]
        if not value.attribute or value.requires_grad or not value.floating:
            continue
        path, _, attribute = value.attribute.rpartition(".")
        spot = classes.stored(e.classes[path], attribute) if path in e.classes else None
        if spot is not None:
            facts = {"attribute": value.attribute}
            found.append(Finding("cached_tensor", spot, (), LIKELY, tuple(names), module=path, facts=facts))
    return found


def _replaced(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A Parameter that the model does not have flows into the loss: it was made anew in the step."""
    if not any(e.trace.values[v].stray and e.trace.values[v].leaf for v in e.verdict.reaching):
        return []
    ran = {code for call in e.trace.calls for code, _ in call.chain}
    return [
        Finding("params_replaced" if fresh else "parameter_rewrap", spot, (), LIKELY, tuple(names))
        for spot, fresh in sources.new_parameters(ran)
    ]


def _constant(e: Evidence, names: Sequence[str]) -> Finding:
    left, back = _left_torch(e, names)
    if left is not None and back is not None:
        return _round_trip(left, back, names)
    origin = next(iter(_origins(e)), None)
    spot = frames.locate(origin.chain[0]) if origin is not None and origin.chain else None
    notes = called_by(origin.chain) if origin is not None else []
    call = origin.name if origin is not None else ""
    return Finding("constant_loss", spot, tuple(notes), OBSERVED, tuple(names), call=call)


def _origins(e: Evidence) -> list[Call]:
    """The calls that made something of the loss out of nothing: they flow into it, and nothing flows into them."""
    reaching = e.verdict.reaching
    return [call for call in e.trace.calls if not call.inputs and reaching.intersection(call.outputs)]


def _left_torch(e: Evidence, names: Sequence[str]) -> tuple[Call | None, Call | None]:
    """The last call at which something computed from ``names`` left torch, and the one that may have taken it in."""
    backs = [c for c in _origins(e) if c.name in ("tensor", "as_tensor", "asarray") and _computed(c)]
    if not backs:
        return None, None
    left = [c for c in e.flow_from(names) if any(e.trace.values[o].python for o in c.outputs)]
    pairs = [
        (c, back)
        for c in left
        for back in backs
        if c.name not in ("__int__", "__index__") and c.index < back.index and _goes_on(c, back)
    ]
    return pairs[-1] if pairs else (None, None)


def _computed(call: Call) -> bool:
    """Whether what is given to ``torch.tensor(...)`` stands there as names, not as a number written out."""
    node = frames.node_at(call.chain[0]) if call.chain else None
    return isinstance(node, ast.Call) and any(isinstance(x, ast.Name) for arg in node.args for x in ast.walk(arg))


def _goes_on(left: Call, back: Call) -> bool:
    """Whether, in a function that both happened in, the value of the first call is among what the second is given."""
    lines = {point[0]: frames.line_of(point) for point in reversed(left.chain)}
    shared = [(code, lines[code], frames.line_of((code, at))) for code, at in back.chain if code in lines]
    return any(flows.leads(code, start, end) for code, start, end in shared)


def _unused(e: Evidence, spot: Location | None, attribute: str, names: Sequence[str]) -> Finding:
    used = any(row.used for row in e.rows if row.name in set(names))
    notes = []
    if attribute and not used:
        places = [u for u in classes.uses(e.classes.values(), attribute) if spot is None or u.line != spot.line]
        notes = [Note("not_run", place, {"attribute": attribute}) for place in places[:2]]
    if used:
        notes = _last_use(e, names)
    owner = names[0].rpartition(".")[0]
    facts = {"attribute": attribute, "used": "yes" if used else "no"}
    return Finding("trainable_unused", spot, tuple(notes), OBSERVED, tuple(names), module=owner, facts=facts)


def _last_use(e: Evidence, names: Sequence[str]) -> list[Note]:
    """Where what was computed from the parameters was last touched before it was dropped."""
    flow = [call for call in e.flow_from(names) if call.chain]
    return [Note("dropped", frames.locate(flow[-1].chain[0]), {"call": flow[-1].name})] if flow else []
