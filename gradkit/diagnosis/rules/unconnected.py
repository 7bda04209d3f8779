"""Parameters from which nothing flows into the loss, and why: replaced, not called, kept, or behind a constant.

First what the run shows by itself (``findings``): Parameters that were replaced, a loss that is a constant, a way
through NumPy or Python numbers, a layer that is not called. Then values kept from before (``cached_findings``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from gradkit.core import operations
from gradkit.core.operations import FROM_PLAIN, NEW
from gradkit.core.records import LIKELY, OBSERVED, PROVEN, Finding, Location, Note
from gradkit.core.trace import Call, Chain, Key, Value
from gradkit.diagnosis.experiments.caches import CachedValue
from gradkit.diagnosis.rules import bypass, deciding, kept_by_hooks, left_out_terms
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, one_place
from gradkit.source import (
    arguments,
    attributes,
    conditions,
    dataflow,
    frames,
    keeping,
    locations,
    returns,
    unused_results,
)  # fmt: skip
from gradkit.source.taken_out import ARRAY, BARE, COPY, NUMBER, taken_out_at
from gradkit.source.unused_results import Lost


def findings(e: Evidence, told: set[str]) -> list[Finding]:
    """Why nothing flows from some parameters into the loss.

    Where the step raised before its end, for a fault that is told already, what it had not come to use is left aside.
    """
    names = [n for n in e.verdict.unconnected if n not in told]
    hidden = [n for n in names if _in_a_script(e, n)]
    names = [n for n in names if n not in hidden]
    found = _explained(e, names) if names else []
    if told and e.mishap is not None and e.mishap.in_step:
        found = [one for one in found if one.cause != "trainable_unused" or one.variant == "bypass"]
    return [*_inside_a_script(hidden), *found]


def _in_a_script(e: Evidence, name: str) -> bool:
    """Whether a parameter belongs to a module that torch compiled from its script or its trace."""
    parts = name.split(".")
    owners = (e.facts.classes.get(".".join(parts[:count])) for count in range(len(parts)))
    return any(issubclass(owner, torch.jit.ScriptModule) for owner in owners if owner is not None)


def _inside_a_script(names: Sequence[str]) -> list[Finding]:
    """What a scripted module computes cannot be seen: the cut is said to be in there, and no line is named."""
    return [Finding("unknown", None, proof=LIKELY, parameters=tuple(names), variant="scripted")] if names else []


def _explained(e: Evidence, names: list[str]) -> list[Finding]:
    proven = {name for kept in e.shown.caches.kept for name in kept.connected}
    past = bypass.findings(e, [name for name in names if name not in proven])
    names = _left(names, past)
    hooked = kept_by_hooks.findings(e, names) if names else []
    names = _left(names, hooked)
    kept = cached_findings(e, names) if names else []
    names = _left(names, kept)
    return [*past, *hooked, *kept, *(_without_a_kept_value(e, names) if names else ())]


def _left(names: Iterable[str], found: Sequence[Finding]) -> list[str]:
    return [name for name in names if not any(name in finding.parameters for finding in found)]


def _without_a_kept_value(e: Evidence, names: list[str]) -> list[Finding]:
    replaced = _replaced(e, names)
    if replaced:
        return replaced
    if e.trace.loss >= 0 and not _parameters_in(e):
        found, left = deciding.among_constants(e, names)
        if not found or _is_flagged(e, found):
            return _constant(e, names)
        names = left
    else:
        found, names = _escaped(e, names)
        chosen, names = deciding.findings(e, names)
        found += chosen
    groups: dict[Key, list[str]] = {}
    for parameter in (name for name in names if name not in e.facts.left):
        spot, _ = e.defined_at(parameter, names)
        groups.setdefault((spot.file, spot.line) if spot is not None else ("",), []).append(parameter)
    without_history = e.trace.loss >= 0 and not e.trace.values[e.trace.loss].requires_grad
    nowhere = groups.pop(("",), []) if without_history else []  # no module holds them: the loss is all there is to name
    unused = _joined(_unused(e, group) for group in groups.values())
    return [*found, *unused, *(_constant(e, nowhere) if nowhere else ())]


def _is_flagged(e: Evidence, chosen: Sequence[Finding]) -> bool:
    """Whether the loss is made of numbers of Python's that were given a flag, elsewhere than they were chosen."""
    here = {one.location.function for one in chosen if one.location is not None}
    leaves = (v for n in e.verdict.reaching if (v := e.trace.values[n]).leaf and v.requires_grad and v.maker >= 0)
    makers = (call for v in leaves if (call := e.trace.calls[v.maker]).name in FROM_PLAIN and call.chain)
    return any(locations.locate(call.chain[0]).function not in here for call in makers)


def _parameters_in(e: Evidence) -> set[str]:
    """The names of the parameters that the loss is computed from, with a history or without."""
    return {name for v in e.verdict.reaching if (name := e.trace.values[v].parameter)}


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
    notes = (Note("comes_back", locations.locate(back.chain[0]), {"call": back.name}), *called_by(left.chain))
    found = [
        Finding(cause, locations.locate(left.chain[0]), notes, proof=LIKELY, parameters=tuple(names), call=left.name)
    ]
    if back.name in NEW and not one_place(left, back):
        spot, around = locations.locate(back.chain[0]), tuple(called_by(back.chain))
        found.append(Finding("rewrap_tensor", spot, around, proof=LIKELY, parameters=tuple(names), call=back.name))
    return found


def _replaced(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A Parameter of fresh numbers, made in the step, flows into the loss in the place of one that the model has."""
    shapes = {row.shape for row in e.rows if row.name in set(names)}
    swapped = {e.trace.values[number].birth for name, number in e.trace.swapped.items() if name in set(names)}
    made = [(value, call) for value, call in fresh(e) if value.birth in swapped or value.shape in shapes]
    bare = [call for value, call in made if value.birth in swapped or _is_bare(call)]
    found = (
        Finding(
            "params_replaced", locations.innermost(call.chain), tuple(called_by(call.chain)),
            proof=LIKELY, parameters=tuple(names), call=call.name,
        )
        for call in bare
    )  # fmt: skip
    layers = (_built(e, call) for _, call in made if not bare and call.module >= 0)
    return by_line(found) or by_line(replace(one, proof=LIKELY, parameters=tuple(names)) for one in layers)


def fresh(e: Evidence) -> list[tuple[Value, Call]]:
    """Parameters that were made in the step of fresh numbers, and that flow into the loss; and where.

    Left out are those that an optimizer in the step trains, those that the model keeps, and the batch or what was
    computed from it: data in a Parameter is no weight.
    """
    kept = {e.trace.values[number].birth for number in (*e.trace.newborn.values(), *e.trace.trained)}
    asks = {v.birth: v.requires_grad for v in e.trace.values if v.stray}  # as it was last used: no fixed filter
    values = (e.trace.values[number] for number in sorted(e.verdict.reaching))
    born = (
        (v, e.trace.calls[v.birth])
        for v in values
        if v.stray and v.leaf and v.birth >= 0 and v.birth not in kept and asks[v.birth]
    )
    return [(v, call) for v, call in born if call.name == operations.PARAMETER and not e.computed([call])]


def built(e: Evidence, told: set[Location | None]) -> list[Finding]:
    """Layers and Parameters built anew inside the forward of a module: they start from fresh numbers in every step.

    Where names that should train are of nothing in the model, they may be of what is built in any function.
    """
    calls = (call for _, call in fresh(e) if locations.innermost(call.chain) not in told)
    made = (_built(e, call) for call in calls if call.module >= 0 or e.facts.missing)
    return by_line(one for one in made if one.location not in told)


def _built(e: Evidence, call: Call) -> Finding:
    """Of a layer, the line that builds it, or that has a helper build it; a written out Parameter is part of none."""
    bare = _is_bare(call)
    chain = call.chain[frames.building(call.chain) :]
    chain = chain if bare else returns.past_factories(chain)
    return Finding(
        "params_replaced" if bare else "built_in_forward", locations.innermost(chain), tuple(called_by(chain)),
        proof=OBSERVED, module=e.trace.modules[call.module] if call.module >= 0 else "",
        variant="unknown" if bare else "",
    )  # fmt: skip


def _is_bare(call: Call) -> bool:
    """Whether it is a Parameter that is written out, and no part of a layer."""
    layer = frames.building(call.chain)
    return not layer and not call.through and locations.word_at(call.chain) == "Parameter"


def _constant(e: Evidence, names: Sequence[str]) -> list[Finding]:
    trips = [trip for trip in _trips(e) if trip[2].intersection(names)]
    if trips:
        return _round_trip(*trips[-1][:2], names)
    origin = _over_data(e) or next(iter(_origins(e)), None)
    spot = locations.innermost(origin.chain) if origin is not None else None
    notes = called_by(origin.chain) if origin is not None else []
    call = origin.name if origin is not None else ""
    variant = "without" if _parameters_in(e) else ""
    return [
        Finding(
            "constant_loss", spot, tuple(notes), proof=OBSERVED, parameters=tuple(names), call=call, variant=variant
        )
    ]


def _over_data(e: Evidence) -> Call | None:
    """The call that made one number for the loss out of the data, once a module had run: its output is wanted there."""
    values, reaching = e.trace.values, e.verdict.reaching
    ran = max((call.index for call in e.trace.calls if call.module >= 0), default=len(e.trace.calls))
    made = (call for call in e.trace.calls if call.index > ran and call.chain and reaching.intersection(call.outputs))
    for call in made:
        several = any(math.prod(values[n].shape) > 1 for n in call.inputs)
        if several and not any(values[n].shape for n in call.outputs):
            return call if any(values[n].maker < 0 for n in e.trace.sources(call.inputs)) else None
    return None


def _origins(e: Evidence) -> list[Call]:
    """The calls that made something of the loss out of nothing: they flow into it, and nothing flows into them."""
    reaching = e.verdict.reaching
    return [call for call in e.trace.calls if not call.inputs and reaching.intersection(call.outputs)]


_INTO_TORCH = ("tensor", "as_tensor", "asarray")


def _trips(e: Evidence) -> list[tuple[Call, Call, set[str]]]:
    """Where something may have left torch and come in again: both calls, and the parameters that it was computed from.

    Calls at one place of the code count as one, with the last of them.
    """
    backs = [c for c in _origins(e) if c.name in _INTO_TORCH and dataflow.is_given_names(c.chain, c.name)]
    places: dict[tuple[object, ...], list[Call]] = {}
    for call in e.trace.calls if backs else ():
        if call.name not in ("__int__", "__index__") and any(e.trace.values[o].python for o in call.outputs):
            places.setdefault(call.chain, []).append(call)
    found = []
    for lefts in places.values():
        first = lefts[0]
        after = [back for back in backs if first.index < back.index and dataflow.leads_to(first.chain, back.chain)]
        if after:
            found.append((lefts[-1], after[-1], e.behind(lefts, floating=True)))
    return found


def _unused(e: Evidence, names: Sequence[str]) -> Finding:
    """The finding for idle parameters that one line defines."""
    spot, attribute = e.defined_at(names[0], names)
    mine = set(names)
    used = any(row.used for row in e.rows if row.name in mine)
    facts = {"attribute": attribute, "used": "yes" if used else "no"}
    owner = _home(names)
    left = left_out_terms.told(e, names, spot, attribute, owner) if used else None
    if left is not None:
        return left
    lost = _lost(e, names) if used else None
    if lost is not None:
        notes = [Note("defined", spot, {"attribute": attribute})] if spot is not None else []
        return Finding(
            "trainable_unused", lost.location, tuple(notes), proof=LIKELY, parameters=tuple(names), module=owner,
            facts={**facts, "name": lost.name}, variant=lost.kind,
        )  # fmt: skip
    if used:
        notes = _last_use(e, names)
        return Finding(
            "trainable_unused",
            spot,
            tuple(notes),
            proof=OBSERVED,
            parameters=tuple(names),
            module=owner,
            facts=facts,
            variant="dropped",
        )
    taken = _taken_out(e, names) if e.way_to(names[0]) else None
    if taken is not None:
        return taken
    why = unused_reason(e, names[0])
    notes = [Note("not_run", why.use, {"attribute": attribute})] if why is not None and why.use is not None else []
    if not notes and attribute:
        notes = conditions.skipped_uses(dict.fromkeys(e.facts.classes.values()), attribute, spot, e.ran)
    if why is None:
        return Finding(
            "trainable_unused", spot, tuple(notes), proof=OBSERVED, parameters=tuple(names), module=owner, facts=facts
        )
    notes += [Note("defined", spot, {"attribute": attribute})] if spot is not None else []
    return Finding(
        "trainable_unused", why.location, tuple(notes), proof=LIKELY, parameters=tuple(names), module=owner,
        facts={**facts, "name": why.name}, variant=why.kind,
    )  # fmt: skip


_MOST_ENDS = 12
_TAKEN = {NUMBER: "python_roundtrip", ARRAY: "numpy_roundtrip", COPY: "detach", BARE: "data_attr"}


def _taken_out(e: Evidence, names: Sequence[str]) -> Finding | None:
    """The finding for a Parameter whose value was taken out of it while the model was built."""
    cls, attribute = e.way_to(names[0])[-1]
    found = taken_out_at(cls, attribute)
    if found is None or any(e.way_to(name)[-1:] != [(cls, attribute)] for name in names):
        return None
    kind, spot = found
    return Finding(_TAKEN[kind], spot, proof=LIKELY, parameters=tuple(names), module=_home(names))


def _home(names: Sequence[str]) -> str:
    """The innermost module that holds all of some parameters."""
    steps = zip(*(n.split(".")[:-1] for n in names), strict=False)
    return ".".join(parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, steps))


def _lost(e: Evidence, names: Sequence[str]) -> Lost | None:
    """Where what was computed from the parameters gets lost, if that can be told of any of it."""
    flow = [call for call in e.flow_from(names) if call.chain]
    ends = [call for call in reversed(flow) if any(e.trace.values[n].requires_grad for n in call.outputs)]
    found = (unused_results.lost_at(chain, e.lines_run) for chain in dict.fromkeys(call.chain for call in ends))
    return next(filter(None, itertools.islice(found, _MOST_ENDS)), None)


def _last_use(e: Evidence, names: Sequence[str]) -> list[Note]:
    """Where what was computed from the parameters was last touched before it was dropped."""
    flow = [call for call in e.flow_from(names) if call.chain]
    return [Note("dropped", locations.locate(flow[-1].chain[0]), {"call": flow[-1].name})] if flow else []


@dataclass(frozen=True)
class Reason:
    """Why a layer is not used, and where the fault is.

    Attributes:
        kind: ``"argument"`` (``name`` is not given there), ``"taken"`` (it is taken out there), ``"unmet"`` (a function
            that a library calls asks for it there, in vain) or ``"slot"`` (it is ignored there).
        use: the line that would have used the layer, and did not run.
    """

    kind: str
    location: Location
    name: str
    use: Location | None = None


def unused_reason(e: Evidence, parameter: str) -> Reason | None:
    """Why the layer of a parameter is not used; None if its definition is all that can be named."""
    way = [(cls, attribute) for cls, attribute in reversed(e.way_to(parameter)) if any(attributes.bodies(cls))]
    owners = dict.fromkeys(e.facts.classes.values())
    asked = (conditions.required_arguments(owners, attribute, e.ran) for _, attribute in way)
    guards = next((found for found in asked if found is not None), ())
    for guard in guards:
        spot, is_taken = arguments.missing_at(guard, e.ran, e.files)
        if spot is not None:
            return Reason("taken" if is_taken else "argument", spot, guard.key or guard.argument, guard.use)
    for guard in guards:
        if guard.alone and set(e.ran.callers(guard.file, guard.function)) == {None}:
            return Reason("unmet", guard.test, guard.key or guard.argument, guard.use)
    for cls, attribute in way:
        spot = attributes.ignored_slot(cls, attribute, e.ran)
        if spot is not None:
            return Reason("slot", spot, attribute)
    return None


def cached_findings(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A finding for each line that kept a value from before: proven, or read off the source where no run could tell."""
    unexplained, found = list(names), []
    for kept in e.shown.caches.kept:
        if kept.connected:
            connected = tuple(n for n in names if n in kept.connected)
            proof = PROVEN if kept.revived.issuperset(connected) else LIKELY
            for spot in _store_places(e, kept) if connected else ():
                revived = tuple(n for n in connected if n in kept.revived)
                found.append(_cached_finding(e, kept, spot, proof, connected, revived))
            unexplained = [n for n in unexplained if n not in kept.connected]
    for kept in e.shown.caches.kept:
        if unexplained and not kept.connected and not kept.idle:
            stores = _lines_naming(e, kept, unexplained)
            found += [_cached_finding(e, kept, spot, LIKELY, connected) for spot, connected in stores]
            unexplained = [n for n in unexplained if not any(n in connected for _, connected in stores)]
    return found


def _cached_finding(
    e: Evidence, kept: CachedValue, spot: Location, proof: str, names: tuple[str, ...], revived: tuple[str, ...] = ()
) -> Finding:
    chain = next((chain for chain in kept.made if chain), ())
    held = next((e.trace.values[n].attribute for n in kept.numbers if e.trace.values[n].attribute), "")
    facts = {"attribute": held or kept.name}
    notes = tuple(note for note in called_by(chain) if note.location is not None and note.location.line != spot.line)
    return Finding(
        "cached_tensor", spot, notes, proof=proof, parameters=names, module=held.rpartition(".")[0], revived=revived,
        reruns=e.reruns if revived else 0, facts=facts,
    )  # fmt: skip


def _store_places(e: Evidence, kept: CachedValue) -> list[Location]:
    """Where a run without the values stored new ones; else where the source stores such; else where they were made."""
    fixed = _memo_line(e, kept)
    if fixed is not None:
        return [fixed]
    found = (_store_place(e, kept, chain) for chain in kept.made)
    return list({(spot.file, spot.line): spot for spot in found if spot is not None}.values())


def _store_place(e: Evidence, kept: CachedValue, chain: Chain) -> Location | None:
    read = (spot for spot, _ in dataflow.store_lines(kept.name, e.files, kept.owner, kept.reader))
    return dataflow.stored_at(chain, kept.name) or next(read, None) or locations.innermost(chain)


def _memo_line(e: Evidence, kept: CachedValue) -> Location | None:
    """The line of the decorator, where it is a decorator that keeps results; else None."""
    if kept.memo is not None:
        return dataflow.memo_decorator(kept.memo, e.files)
    return dataflow.computed_once(kept.owner, kept.name) if kept.owner is not None else None


def _lines_naming(e: Evidence, kept: CachedValue, names: Sequence[str]) -> list[tuple[Location, tuple[str, ...]]]:
    """The line that stores what is computed by the parameters: the one whose words name most of them."""
    lines = dataflow.store_lines(kept.name, e.files, kept.owner, kept.reader, wanted=keeping.may_be_computed)
    found = [(spot, _named_by(words, names)) for spot, words in lines]
    best = max(found, key=lambda one: len(one[1]), default=None)
    fixed = _memo_line(e, kept)
    if best is None or not best[1]:
        return []
    return [(fixed or best[0], best[1])]


def _named_by(words: set[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(n for n in names if words.intersection(_parts_of_name(n)))


_COMMON = frozenset(("weight", "bias"))


def _parts_of_name(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (part for part in parts if part not in _COMMON or len(parts) == 1)
