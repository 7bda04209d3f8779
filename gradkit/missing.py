"""Parameters from which nothing flows into the loss: a constant loss, a module that was not called, a stale value."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from gradkit import births, classes, flows, frames, idle, keeping, ways
from gradkit.calls import GRAD
from gradkit.cuts import NEW
from gradkit.evidence import Evidence, by_line, called_by, one_place
from gradkit.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.traces import Call, Key, Value


def name(e: Evidence, told: set[str]) -> list[Finding]:
    """Why nothing flows from some parameters into the loss."""
    names = [n for n in e.verdict.unconnected if n not in told]
    hidden = [n for n in names if _in_a_script(e, n)]
    names = [n for n in names if n not in hidden]
    return [*_inside_a_script(hidden), *(_why(e, names) if names else ())]


def _in_a_script(e: Evidence, name: str) -> bool:
    """Whether a parameter belongs to a module that torch compiled from its script or its trace."""
    parts = name.split(".")
    owners = (e.facts.classes.get(".".join(parts[:count])) for count in range(len(parts)))
    return any(issubclass(owner, torch.jit.ScriptModule) for owner in owners if owner is not None)


def _inside_a_script(names: Sequence[str]) -> list[Finding]:
    """What a scripted module computes cannot be seen: the cut is said to be in there, and no line is named."""
    return [Finding("unknown", None, (), LIKELY, tuple(names), variant="scripted")] if names else []


def _why(e: Evidence, names: list[str]) -> list[Finding]:
    kept = keeping.name(e, names)
    names = [n for n in names if not any(n in finding.parameters for finding in kept)]
    return [*kept, *(_others(e, names) if names else ())]


def _others(e: Evidence, names: list[str]) -> list[Finding]:
    replaced = _replaced(e, names)
    if replaced:
        return replaced
    if not any(e.trace.values[v].parameter for v in e.verdict.reaching) and e.trace.loss >= 0:
        return _constant(e, names)
    found, names = _escaped(e, names)
    groups: dict[Key, list[str]] = {}
    for parameter in names:
        spot, _ = classes.definition(e.way_to(parameter), e.files, e.built_on(parameter))
        groups.setdefault((spot.file, spot.line) if spot is not None else ("",), []).append(parameter)
    return [*found, *_joined(_unused(e, group) for group in groups.values())]


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """Findings at one line as one."""
    found: dict[object, Finding] = {}
    for one in findings:
        known = found.setdefault(one.location or one.parameters, one)
        if known is not one:
            notes = (*known.notes, *(note for note in one.notes if note not in known.notes))
            found[one.location] = replace(known, parameters=known.parameters + one.parameters, notes=notes)
    return list(found.values())


def _escaped(e: Evidence, names: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Parameters whose value left torch in a way that cannot be followed, while the loss takes in numbers."""
    trips = {name: trip for trip in _trips(e) for name in trip[2].intersection(names)}
    groups: dict[int, tuple[Call, Call, list[str]]] = {}
    for name, (left, back, _) in trips.items():
        groups.setdefault(left.index, (left, back, []))[2].append(name)
    found = [one for left, back, group in groups.values() for one in _round_trip(left, back, sorted(group))]
    return found, [name for name in names if name not in trips]


def _round_trip(left: Call, back: Call, names: Sequence[str]) -> list[Finding]:
    """The way out of torch; and the way back, elsewhere, if it would cut a tensor too."""
    cause = "numpy_roundtrip" if left.name in ("numpy", "__array__") else "python_roundtrip"
    notes = (Note("comes_back", frames.locate(back.chain[0]), {"call": back.name}), *called_by(left.chain))
    found = [Finding(cause, frames.locate(left.chain[0]), notes, LIKELY, tuple(names), call=left.name)]
    if back.name in NEW and not one_place(left, back):
        spot, around = frames.locate(back.chain[0]), tuple(called_by(back.chain))
        found.append(Finding("rewrap_tensor", spot, around, LIKELY, tuple(names), call=back.name))
    return found


def _replaced(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A Parameter of fresh numbers, made in the step, flows into the loss in the place of one that the model has."""
    shapes = {row.shape for row in e.rows if row.name in set(names)}
    swapped = {e.trace.values[number].birth for name, number in e.trace.swapped.items() if name in set(names)}
    found = [call for value, call in fresh(e) if value.birth in swapped or value.shape in shapes]
    return by_line(
        Finding(
            "params_replaced", frames.innermost(call.chain), tuple(called_by(call.chain)), LIKELY, tuple(names),
            call=call.name,
        )
        for call in found
    )  # fmt: skip


def fresh(e: Evidence) -> list[tuple[Value, Call]]:
    """Parameters that were made in the step of fresh numbers, and that flow into the loss; and where.

    Left out are those that an optimizer in the step trains, those that the model keeps, and the batch or what was
    computed from it: data in a Parameter is no weight.
    """
    kept = {e.trace.values[number].birth for number in (*e.trace.newborn.values(), *e.trace.trained)}
    values = (e.trace.values[number] for number in sorted(e.verdict.reaching))
    born = ((v, e.trace.calls[v.birth]) for v in values if v.stray and v.leaf and v.birth >= 0 and v.birth not in kept)
    return [(v, call) for v, call in born if call.name == births.PARAMETER and not e.computed([call])]


def built(e: Evidence, told: set[Location | None]) -> list[Finding]:
    """Layers and Parameters built anew inside the forward of a module: they start from fresh numbers in every step."""
    made = (
        Finding(
            "built_in_forward", frames.innermost(call.chain), tuple(called_by(call.chain)), OBSERVED,
            module=e.trace.modules[call.module],
        )
        for _, call in fresh(e)
        if call.module >= 0
    )  # fmt: skip
    return by_line(one for one in made if one.location not in told)


def _constant(e: Evidence, names: Sequence[str]) -> list[Finding]:
    trips = [trip for trip in _trips(e) if trip[2].intersection(names)]
    if trips:
        return _round_trip(*trips[-1][:2], names)
    origin = next(iter(_origins(e)), None)
    spot = frames.innermost(origin.chain) if origin is not None else None
    notes = called_by(origin.chain) if origin is not None else []
    call = origin.name if origin is not None else ""
    return [Finding("constant_loss", spot, tuple(notes), OBSERVED, tuple(names), call=call)]


def _origins(e: Evidence) -> list[Call]:
    """The calls that made something of the loss out of nothing: they flow into it, and nothing flows into them."""
    reaching = e.verdict.reaching
    return [call for call in e.trace.calls if not call.inputs and reaching.intersection(call.outputs)]


def _trips(e: Evidence) -> list[tuple[Call, Call, set[str]]]:
    """Where something may have left torch and come in again: both calls, and the parameters that it was computed from.

    Calls at one place of the code count as one, with the last of them.
    """
    backs = [c for c in _origins(e) if c.name in ("tensor", "as_tensor", "asarray") and _computed(c)]
    places: dict[tuple[object, ...], list[Call]] = {}
    for call in e.trace.calls if backs else ():
        if call.name not in ("__int__", "__index__") and any(e.trace.values[o].python for o in call.outputs):
            places.setdefault(call.chain, []).append(call)
    found = []
    for lefts in places.values():
        after = [back for back in backs if lefts[0].index < back.index and _goes_on(lefts[0], back)]
        if after:
            found.append((lefts[-1], after[-1], e.behind(lefts, floating=True)))
    return found


def _computed(call: Call) -> bool:
    """Whether what is given to ``torch.tensor(...)`` stands there as names, not as a number written out.

    Where a library that was called there made the tensor, it cannot be told.
    """
    node = frames.node_at(call.chain[0]) if call.chain else None
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != call.name:
        return False
    return any(isinstance(x, ast.Name) for arg in node.args for x in ast.walk(arg))


def _goes_on(left: Call, back: Call) -> bool:
    """Whether, in the innermost function that both happened in, the first call's value is given to the second."""
    points = dict(reversed(left.chain))
    shared = next((point for point in back.chain if point[0] in points), None)
    if shared is None:
        return False
    mine = (shared[0], points[shared[0]])
    return flows.leads(shared[0], frames.line_of(mine), frames.line_of(shared)) or frames.holds(shared, mine)


def _unused(e: Evidence, names: Sequence[str]) -> Finding:
    """The finding for idle parameters that one line defines."""
    spot, attribute = classes.definition(e.way_to(names[0]), e.files, e.built_on(names[0]))
    mine = set(names)
    used = any(row.used for row in e.rows if row.name in mine)
    facts = {"attribute": attribute, "used": "yes" if used else "no"}
    owner = _home(names)
    if used:
        notes = _last_use(e, names)
        return Finding(
            "trainable_unused", spot, tuple(notes), OBSERVED, tuple(names), module=owner, facts=facts, variant="dropped"
        )
    why = idle.reason(e, names[0])
    notes = [Note("not_run", why.use, {"attribute": attribute})] if why is not None and why.use is not None else []
    if not notes and attribute:
        notes = ways.passed_by(dict.fromkeys(e.facts.classes.values()), attribute, spot, e.ran)
    if why is None:
        return Finding("trainable_unused", spot, tuple(notes), OBSERVED, tuple(names), module=owner, facts=facts)
    notes += [Note("defined", spot, {"attribute": attribute})] if spot is not None else []
    return Finding(
        "trainable_unused", why.location, tuple(notes), LIKELY, tuple(names), module=owner,
        facts={**facts, "name": why.name}, variant=why.kind,
    )  # fmt: skip


def _home(names: Sequence[str]) -> str:
    """The innermost module that holds all of some parameters."""
    steps = zip(*(n.split(".")[:-1] for n in names), strict=False)
    return ".".join(parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, steps))


def _last_use(e: Evidence, names: Sequence[str]) -> list[Note]:
    """Where what was computed from the parameters was last touched before it was dropped."""
    flow = [call for call in e.flow_from(names) if call.chain]
    return [Note("dropped", frames.locate(flow[-1].chain[0]), {"call": flow[-1].name})] if flow else []


_SUMS = frozenset("add __add__ __radd__ __iadd__ add_ sub __sub__ __rsub__ __isub__ sub_".split())


def dead_terms(e: Evidence) -> list[Finding]:
    """A gradient without a history that becomes a number of its own in the loss: it teaches nothing.

    A gradient that scales something, or that moves weights, is often meant to have none, and is left in peace.
    """
    found = []
    for call in e.trace.calls:
        if call.name != GRAD or not call.grad_on or not call.chain:
            continue
        if any(e.trace.values[o].requires_grad for o in call.outputs) or not _adds_a_term(e, call):
            continue
        notes = tuple(called_by(call.chain))
        found.append(Finding("create_graph_missing", frames.locate(call.chain[0]), notes, LIKELY, call=call.name))
    return found


def _adds_a_term(e: Evidence, start: Call) -> bool:
    values, dead = e.trace.values, set(start.outputs)
    for call in e.trace.calls[start.index + 1 :]:
        flowing = dead.intersection(call.inputs)
        if not flowing:
            continue
        if not any(values[o].requires_grad for o in call.outputs):
            dead.update(call.outputs)
        elif call.name in _SUMS and e.verdict.reaching.intersection(call.outputs):
            if all(values[n].shape == () for n in (*flowing, *call.outputs)):
                return True
    return False
