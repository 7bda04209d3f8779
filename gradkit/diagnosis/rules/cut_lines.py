"""A finding for each line that cuts: the cause, the line, whether a rerun has proven it, and if not, why not."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradkit.core import operations
from gradkit.core.operations import FILLED, GRAD, NEW, UNSEEN
from gradkit.core.records import (
    LIKELY,
    NOT_REVIVED,
    NOT_RUN,
    PROVEN,
    RAISED,
    STORED,
    Finding,
    Location,
    Note,
)
from gradkit.core.trace import (
    BACKWARD,
    BLOCK,
    CHECKPOINT,
    DECORATOR,
    FUNCTION,
    INFERENCE,
    PRESET,
    SAMPLE,
    SWITCH,
    Call,
    Region,
)
from gradkit.diagnosis.experiments import undo_cuts
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import CAST, DATA, DETACH, ESCAPE, OPERATION, REWRAP, UNDECLARED, Cut
from gradkit.diagnosis.rules import (
    checkpoints,
    chosen_weights,
    create_graph,
    cut_variants,
    gradients,
    handed_out,
    leaf_copies,
    library,
    live_twins,
    straight_through,
)  # fmt: skip
from gradkit.diagnosis.rules.evidence import Beside, Evidence, called_by, line_of
from gradkit.source import locations, setup


def writes_out_of(e: Evidence, region: int, inside: tuple[int, ...]) -> list[Call]:
    """The writes by which values leave a region, in order; ``[]`` if anything leaves it in another way.

    A value that was computed outside, with its history, is then copied in here without it: the write is at fault, and
    not the region. Where a parameter is used inside, the region itself is what loses its gradient.

    Args:
        region: index of the region.
        inside: indices of the calls in it that lost the gradient.
    """
    opened = e.trace.regions[region]
    if opened.kind not in (BLOCK, DECORATOR, SWITCH, PRESET) or opened.via:
        return []
    lost = [e.trace.calls[i] for i in inside]
    if any(e.trace.values[n].parameter for call in lost if not _target(call) for n in call.inputs):
        return []
    last = [call for call in lost if e.trace.leaves(call.outputs, region)]
    if not last or not all(_stood_before(e, call, region) for call in last):
        return []
    return [call for call in lost if _target(call) and any(_flows(e, n, region) for n in _sources(call))]


def _sources(call: Call) -> set[int]:
    return set(call.inputs) - set(_target(call))


def _flows(e: Evidence, number: int, region: int) -> bool:
    """Whether a value has a history, or lost it in this region."""
    value = e.trace.values[number]
    return value.requires_grad or (value.maker >= 0 and region in e.trace.calls[value.maker].regions)


def _target(call: Call) -> tuple[int, ...]:
    """The value that a call writes into, if it writes."""
    if call.name.endswith(operations.INTO):
        return call.inputs[-1:]
    return call.inputs[:1] if operations.writes(call.name) else ()


def _stood_before(e: Evidence, call: Call, region: int) -> bool:
    """Whether a call writes into a tensor, or a view of one, that was made outside of the region."""
    numbers = _target(call)
    while numbers:
        maker = e.trace.values[numbers[0]].maker
        if maker < 0 or region not in e.trace.calls[maker].regions:
            return True
        made_by = e.trace.calls[maker]
        numbers = _target(made_by) or made_by.inputs[:1]
    return False


_OF_REGION = {
    BLOCK: "no_grad_block", DECORATOR: "no_grad_decorator", SWITCH: "grad_disabled_globally",
    PRESET: "grad_disabled_globally", INFERENCE: "inference_mode", CHECKPOINT: "checkpoint_reentrant",
    SAMPLE: "non_differentiable_op", FUNCTION: "custom_function", BACKWARD: "create_graph_missing",
}  # fmt: skip
_OF_CALL = {
    DETACH: "detach", DATA: "data_attr", REWRAP: "rewrap_tensor", CAST: "integer_cast",
    OPERATION: "non_differentiable_op", UNDECLARED: "custom_function",
}  # fmt: skip


def findings(e: Evidence) -> list[Finding]:
    """A finding for each line that cuts: most blocking first, and one behind the other in the order of the run."""
    found: dict[tuple[object, ...], Finding] = {}
    beside, fed = (
        {kind: Beside(c for cut in e.verdict.cuts if cut.kind == kind for c in _calls(cut, e)) for kind in _OUT},
        _fed(e),
    )
    for cut, entered in zip(e.verdict.cuts, fed, strict=True):
        for finding in _findings(cut, entered, e) if not _swallowed(cut, e, beside) else ():
            spot = finding.location
            place = (finding.cause, spot.file, spot.line) if spot is not None else (finding.cause, cut.key)
            found[place] = _joined(found[place], finding) if place in found else finding
    copies = {place[1:] for place, finding in found.items() if finding.variant == gradients.COPIED}
    found = {place: f for place, f in found.items() if f.variant == gradients.COPIED or place[1:] not in copies}
    for finding in _likewise(e, list(found.values())):
        spot = finding.location
        found.setdefault((finding.cause, spot.file if spot else "", spot.line if spot else 0), finding)
    together = _together(_with_all_cuts(_with_swallowed(found, e, beside), e))
    total = not e.reached.norms
    integers = {f.location for f in found.values() if f.cause == "integer_cast"}
    ranked = sorted(
        together,
        key=lambda f: (0 if total else -len(f.parameters), bool(f.library) and f.location in integers),
    )
    return straight_through.told(e, ranked)


def _likewise(e: Evidence, known: Sequence[Finding]) -> list[Finding]:
    """The other lines that make a new tensor of tensors, of what some of these findings' parameters compute."""
    names = [name for one in known if one.cause == "rewrap_tensor" and one.call in NEW for name in one.parameters]
    places = {(f.location.file, f.location.line) for f in known if f.location is not None}
    found = []
    for call in e.trace.calls if names else ():
        alive = any(e.trace.values[n].requires_grad and not e.trace.values[n].python for n in call.inputs)
        if call.name in NEW and alive and line_of(call) not in places and e.verdict.reaching.intersection(call.outputs):
            behind = e.behind([call])
            mine = tuple(dict.fromkeys(name for name in names if name in behind))
            spot, notes = locations.innermost(call.chain), tuple(called_by(call.chain))
            found += (
                [Finding("rewrap_tensor", spot, notes, proof=LIKELY, parameters=mine, call=call.name)] if mine else []
            )
            places.add(line_of(call) or ("", 0))
    return found


def _with_all_cuts(found: Mapping[tuple[object, ...], Finding], e: Evidence) -> dict[tuple[object, ...], Finding]:
    """The findings; one that swallowed another cut on its line, and has no note of it, is about that as well."""
    told = dict(found)
    owned = {key for finding in found.values() for key in finding.cuts}
    for cut in (cut for cut in e.verdict.cuts if cut.key not in owned):
        lines = {line_of(call) for call in _calls(cut, e)}
        for place, one in found.items():
            noted = any(note.kind == "cuts_too" for note in one.notes)
            if one.location is not None and (one.location.file, one.location.line) in lines and not noted:
                told[place] = replace(told[place], cuts=(*told[place].cuts, cut.key))
    return told


def _with_swallowed(
    found: Mapping[tuple[object, ...], Finding], e: Evidence, beside: dict[str, Beside]
) -> dict[tuple[object, ...], Finding]:
    """The findings; one of a ``Parameter`` made of what was detached on its line has a note of that.

    What makes the Parameter can be taken out without the detach, which would go on cutting.
    """
    told = dict(found)
    for call in (c for cut in e.verdict.cuts if cut.kind in (DETACH, DATA) for c in _calls(cut, e)):
        makers = [other for other in beside[REWRAP].of(call) if other.name == operations.PARAMETER]
        spot = locations.innermost(call.chain)
        for key, finding in told.items() if makers and spot is not None else ():
            if finding.cause == "parameter_rewrap" and finding.location == locations.innermost(makers[0].chain):
                too = Note("cuts_too", spot)
                notes = [note for note in finding.notes if note != too]
                told[key] = replace(finding, notes=(*notes, too), facts={**finding.facts, "together": "1"})
    return told


def _together(found: Mapping[tuple[object, ...], Finding]) -> list[Finding]:
    """The findings; one that shares parameters with others says that the rerun undid these lines as well."""
    ways: dict[str, int] = {}
    for name in (name for finding in found.values() for name in finding.parameters):
        ways[name] = ways.get(name, 0) + 1
    return [
        replace(f, facts={**f.facts, "together": "1"})
        if f.proof == PROVEN and any(ways[name] > 1 for name in f.parameters)
        else f
        for f in found.values()
    ]


def _joined(known: Finding, other: Finding) -> Finding:
    """Two findings at one line as one."""
    names = tuple(dict.fromkeys([*known.parameters, *other.parameters]))
    proof = known.proof if known.proof == other.proof else LIKELY
    told = (known.location, *(note.location for note in known.notes))
    beside = (Note("beside", other.location),) if other.location is not None and other.location not in told else ()
    revived, both = (*known.revived, *other.revived), tuple(dict.fromkeys([*known.cuts, *other.cuts]))
    return replace(known, parameters=names, proof=proof, revived=revived, notes=(*beside, *known.notes), cuts=both)


def _swallowed(cut: Cut, e: Evidence, beside: dict[str, Beside]) -> bool:
    """``x.detach().cpu().numpy()`` is one thing to change: the detach goes with the way out of torch.

    So is ``torch.tensor(x.item())``: the way back goes with the way out, unless it makes a leaf of it.

    Args:
        beside: the calls of all cuts of a kind.
    """
    kinds = {DETACH: (ESCAPE, REWRAP), DATA: (ESCAPE, REWRAP), REWRAP: (ESCAPE,), ESCAPE: (REWRAP,)}.get(cut.kind, ())
    if cut.calls and not any(beside[kind] for kind in kinds):
        return False
    calls = {(id(c.chain[0][0]), c.chain[0][1]) if c.chain else (): c for c in _calls(cut, e)}.values()
    if cut.kind == REWRAP and (not all(_from_python(c, e) for c in _calls(cut, e)) or _leaf(_calls(cut, e), e)):
        return False
    if cut.kind == ESCAPE:
        return all(any(_from_python(c, e) and _leaf([c], e) for c in beside[REWRAP].of(call)) for call in calls)
    return all(any(True for kind in kinds for _ in beside[kind].of(call)) for call in calls)


_OUT = (ESCAPE, REWRAP)


def _fed(e: Evidence) -> list[Call | None]:
    """For every cut, the first of its calls that uses something computed from the parameters that it starves."""
    first_users: list[Call | None] = [None] * len(e.verdict.cuts)
    starved: dict[str, int] = {}  # one bit for each cut, as there may be thousands
    cut_at: dict[int, list[int]] = {}
    for number, cut in enumerate(e.verdict.cuts):
        for name in cut.parameters:
            starved[name] = starved.get(name, 0) | 1 << number
        for index in cut.calls:
            cut_at.setdefault(index, []).append(number)
    flowing = {n: starved[value.parameter] for n, value in enumerate(e.trace.values) if value.parameter in starved}
    for call in e.trace.calls if flowing else ():
        bits = functools.reduce(operator.or_, (flowing.get(n, 0) for n in call.inputs), 0)
        for output in call.outputs if bits else ():
            flowing[output] = flowing.get(output, 0) | bits
        for number in cut_at.get(call.index, ()) if bits else ():
            first_users[number] = first_users[number] or (call if bits >> number & 1 else None)
    return first_users


def _from_python(call: Call, e: Evidence) -> bool:
    return all(e.trace.values[n].python for n in call.inputs)


def _leaf(calls: Sequence[Call], e: Evidence) -> bool:
    return any(e.trace.values[o].leaf for c in calls for o in c.outputs)


def _calls(cut: Cut, e: Evidence) -> list[Call]:
    return [e.trace.calls[i] for i in cut.calls]


def _findings(cut: Cut, entered: Call | None, e: Evidence) -> list[Finding]:
    """One finding for a cut; where values are written into tensors in a region, one for each of these lines."""
    whole = _finding(cut, entered, e)
    written = writes_out_of(e, cut.region, cut.calls) if cut.region >= 0 else []
    if not all(call.chain for call in written) or not written:
        return [live_twins.told(e, cut, whole)]
    around = Note("unrecorded", whole.location) if whole.location is not None else None
    return [
        replace(
            whole, cause="inplace_under_no_grad", location=locations.locate(call.chain[0]), call=call.name,
            notes=(*([around] if around is not None else []), *called_by(call.chain)), facts={}, library="", doubt="",
        )
        for call in {line_of(call): call for call in written}.values()
    ]  # fmt: skip


def _finding(cut: Cut, entered: Call | None, e: Evidence) -> Finding:
    calls = _calls(cut, e)
    region = e.trace.regions[cut.region] if cut.region >= 0 else None
    copied = gradients.copied_input(e, cut.region) if region is not None and region.kind == FUNCTION else None
    first = copied or (calls[-1 if region is not None and region.kind == FUNCTION else 0] if calls else None)
    if region is not None and region.kind == BACKWARD:
        first = entered or first
    cause, spot = _cause(cut, region, calls, e), _location(cut, region, first, e)
    revived = tuple(n for n in cut.parameters if e.revived is not None and n in e.revived)
    names = revived if revived and cause == "create_graph_missing" else cut.parameters  # a slope forgets a last bias
    all_alive = bool(revived) and len(revived) == len(set(names) - set(e.frozen))
    proof = PROVEN if all_alive and undo_cuts.can_undo(cut) else LIKELY
    if region is not None and region.kind == CHECKPOINT and spot not in [locations.locate(p) for p in region.chain[:1]]:
        proof = LIKELY
    if region is not None and region.kind == PRESET and spot is not None and _seen_off(e) is None:
        proof = LIKELY  # that it was off is proven, and the line was looked for in the source
    via = library.called(region) if region is not None else ""
    call = via or (first.name if first is not None else "")
    inside = entered or first
    module = e.trace.modules[inside.module] if inside is not None and inside.module >= 0 else ""
    hidden, lost = cuts.is_hidden(e.trace, cut), entered or _first_loser(calls, e)
    notes = (
        *(_inside(region, lost) if cause not in ("custom_function", "create_graph_missing") else ()),
        *_returns(cut, e),
        *(called_by(region.chain) if hidden and region is not None else _called_by(region, first)),
    )
    variant = (
        "hidden" if hidden else gradients.COPIED if copied is not None else cut_variants.variant(cause, cut, first, e)
    )
    doubt = "" if proof != LIKELY else STORED if variant == cut_variants.STORED else _doubt(cut, e)
    facts = {"raised": e.shown.rerun.error.splitlines()[0]} if doubt == RAISED else {}
    if cause == "integer_cast" and region is not None:
        variant, facts["function"] = handed_out.WHOLE, region.via
    if cause == "custom_function" and (said := handed_out.said_at(e, cut)) is not None:
        variant, spot = said
    if variant == "within" and first is not None:
        facts["written"] = locations.word_at(first.chain)
    if cause == "checkpoint_reentrant" and _lets_inputs_train(e):
        variant = "by_method"
    found = Finding(
        cause, spot, notes, proof=proof, parameters=names, module=module, call=call,
        revived=revived, reruns=e.reruns, facts=facts, variant=variant, doubt=doubt, library=via, cuts=(cut.key,),
    )  # fmt: skip
    if cause == "create_graph_missing" and region is None and first is not None:
        return create_graph.decided(e, first, found)
    if cause == "checkpoint_reentrant" and region is not None:
        return checkpoints.decided(e, region, found)
    told = library.told(chosen_weights.told(e, cut, found), region, first)
    return cut_variants.mapped(told, first, e) if region is None and first is not None else told


def _lets_inputs_train(e: Evidence) -> bool:
    """Whether the model has transformers' method for that; others have to let their inputs require grad themselves."""
    return any(hasattr(cls, "enable_input_require_grads") for cls in e.facts.classes.values())


def _called_by(region: Region | None, call: Call | None) -> list[Note]:
    """The user's frame that called the function in which the line of a cut stands.

    A region's frames begin with that one where its line stands in the function that was called: at a decorator, or in
    the ``forward`` of a custom Function.
    """
    if region is None:
        return called_by(call.chain) if call is not None else []
    within = region.place is not None or region.kind == FUNCTION
    return called_by((*region.chain[:1], *region.chain) if within else region.chain)


def _doubt(cut: Cut, e: Evidence) -> str:
    """Why a cut is no more than likely."""
    if not undo_cuts.can_undo(cut):
        return STORED
    if e.shown.rerun.error:
        return RAISED
    return NOT_RUN if e.revived is None else NOT_REVIVED


def _cause(cut: Cut, region: Region | None, calls: Sequence[Call], e: Evidence) -> str:
    if region is not None:
        cast = handed_out.cast_by(e.trace, cut)
        return _OF_REGION.get(region.kind, "unknown") if cast is None else "integer_cast"
    if cut.kind == ESCAPE and all(_OLD.search(locations.called_at(c.chain)) for c in calls):
        return "rewrap_tensor"
    if cut.kind == ESCAPE:
        return "numpy_roundtrip" if any(c.name in ("numpy", "__array__") for c in calls) else "python_roundtrip"
    if cut.kind == REWRAP and any(c.name == operations.PARAMETER for c in calls):
        return "params_replaced" if _in_its_own_place(cut, calls, e) else "parameter_rewrap"
    if (cut.kind == REWRAP and _leaf(calls, e)) or leaf_copies.is_made(e, cut):
        return "new_leaf"
    if cut.kind == OPERATION and all(c.name == "_values" for c in calls):
        return "detach"
    if cut.kind == OPERATION and any(c.name in (GRAD, FILLED) for c in calls):
        return "create_graph_missing"
    if cut.kind == OPERATION and all(_in_library(c, e) for c in calls):
        return "integer_cast"
    return _OF_CALL[cut.kind]


def _in_its_own_place(cut: Cut, calls: Sequence[Call], e: Evidence) -> bool:
    """Whether the new leaf stands in the model under the name of the one parameter that it was computed from."""
    made = {call.index for call in calls}
    return {name for name, n in e.trace.swapped.items() if e.trace.values[n].birth in made} >= set(cut.parameters)


_OLD = re.compile(r"(Float|Double|Half|BFloat16|torch\.)Tensor$")


def _in_library(call: Call, e: Evidence) -> bool:
    """Whether a library's function that records nothing came to hand out integers by this operation."""
    inside = any(e.trace.regions[r].via for r in call.regions)
    return inside and not any(e.trace.values[o].floating for o in call.outputs)


def _location(cut: Cut, region: Region | None, call: Call | None, e: Evidence) -> Location | None:
    if region is None:
        return locations.innermost(call.chain) if call is not None else None
    if region.kind == PRESET:
        return _seen_off(e) or setup.grad_off_line(e.files)
    if region.kind == BACKWARD and call is not None:
        return locations.innermost(call.chain)
    if region.kind == FUNCTION and call is not None:
        if cuts.is_hidden(e.trace, cut):
            return locations.innermost(region.chain)
        return locations.innermost(cuts.inside(e.trace, call, cut.region))
    if region.place is not None:
        return region.place
    if region.kind == CHECKPOINT and region.via and not _in_a_module(region, e):
        enabled = setup.checkpointing_line(e.files)
        if enabled is not None:
            return enabled
    return locations.innermost(region.chain)


def _seen_off(e: Evidence) -> Location | None:
    """What autograd was switched off by before the step: a block around the diagnosis, or a switch that was seen."""
    outside = (locations.around(point) for point in e.facts.callers)
    block = next((spot for spot in outside if spot is not None), None)
    left = [deed for deed in e.seen.switches if deed.chain]
    left = [deed for deed in left if deed.facts.get("left")] or left
    return locations.locate(left[0].chain[0]) if block is None and left else block


def _in_a_module(region: Region, e: Evidence) -> bool:
    """Whether a region was entered in a method of one of the model's own classes."""
    names = {cls.__name__ for cls in e.facts.classes.values()}
    return bool(region.chain) and not names.isdisjoint(locations.qualified_name(region.chain[0][0]).split("."))


def _first_loser(calls: Sequence[Call], e: Evidence) -> Call | None:
    """The first of some calls that was handed what requires grad; the first of all where none was."""
    return next((c for c in calls if any(e.trace.values[n].requires_grad for n in c.inputs)), next(iter(calls), None))


def _inside(region: Region | None, call: Call | None) -> list[Note]:
    """A note with the first call in a region that lost the gradient."""
    if region is None or region.kind == FUNCTION or call is None or not call.chain:
        return []
    same = call.chain[:1] == region.chain[:1]
    return [] if same else [Note("lost_here", locations.locate(call.chain[0]), {"call": call.name})]


def _returns(cut: Cut, e: Evidence) -> list[Note]:
    """A note with the place where a value that left torch came back."""
    if cut.kind != ESCAPE:
        return []
    gone = {number for call in _calls(cut, e) for number in call.outputs}
    for call in e.trace.using(gone):
        if e.verdict.reaching.intersection(call.outputs) and call.chain:
            if line_of(call) not in {line_of(c) for c in _calls(cut, e)}:
                key = "used_again" if call.name == UNSEEN else "comes_back"
                return [Note(key, locations.locate(call.chain[0]), {"call": call.name})]
            break
    return []


def unexplained(e: Evidence, told: set[str]) -> list[Finding]:
    """What should learn and does not, where no cut was found and no other rule has a name for it.

    Args:
        told: the parameters that some finding names.
    """
    told = told.union(e.frozen)
    names = [n for n in e.verdict.unexplained if n not in told]
    facts = {"error": e.reached.error.splitlines()[0]} if e.reached.error else {}
    if not names and not facts:
        return []
    return [Finding("unknown", None, proof=LIKELY, parameters=tuple(names), facts=facts)]
