"""Errors that torch raised and that are no cut: a value overwritten, a graph used twice, something asked for unused.

Also what a step does out of order with a gradient scaler, whether or not that raised (``scaler_findings``).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.records import LIKELY, OBSERVED, PROVEN, SEVERAL, Finding, Location, Note
from gradkit.core.trace import CHECKPOINT, FUNCTION, INFERENCE, Call, Chain
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.rules import gradients, histories, no_loss, unflagged
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by
from gradkit.source import (
    attributes,
    dataflow,
    functions,
    locations,
    non_leaves,
    return_lines,
    setup,
)
from gradkit.source.locations import innermost
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError

KEPT, ONCE, CARRIED = "kept", "once", "carried"


def findings(e: Evidence) -> list[Finding]:
    """What the error that was raised means; ``[]`` if it means what the cuts say, or nothing that is known here."""
    mishap = e.mishap
    if mishap is None:
        return []
    if mishap.inside == autograd_errors.IN_FUNCTION:
        return _recomputed(e, mishap) or [_finding("custom_function", e, mishap, _in_function(mishap))]
    if mishap.inside == autograd_errors.IN_HOOK:
        return [_finding("hook_misuse", e, mishap, innermost(mishap.chain))]
    rule = _RULES.get(mishap.kind)
    return rule(e, mishap) if rule is not None else []


def _finding(
    cause: str, e: Evidence, mishap: AutogradError, spot: Location | None, *, call: str = "", proof: str = OBSERVED,
    names: Sequence[str] = (), chain: Chain | None = None, **facts: str,
) -> Finding:  # fmt: skip
    chain = mishap.chain if chain is None else chain
    there = innermost(chain)
    beside = spot is None or there is None or (spot.file, spot.function) == (there.file, there.function)
    notes = called_by(chain) if beside else []
    told = {"error": mishap.message.splitlines()[0].split(". ")[0], **facts}
    revived = tuple(n for n in e.wanted if n in (e.shown.mended.revived or ())) if proof == PROVEN else ()
    return Finding(
        cause,
        spot,
        tuple(notes),
        proof=proof,
        parameters=tuple(names),
        call=call,
        revived=revived,
        reruns=e.shown.mended.runs,
        facts=told,
    )


# -- a second time --------------------------------------------------------------------------------------------------


def _twice(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The graph of an earlier backward is used again: the line that should have let it go, or that uses it."""
    if e.first.no_loss is not None:
        return [no_loss.from_before(e, _finding("double_backward", e, mishap, None, chain=()))]
    proof = PROVEN if e.shown.mended.revived else LIKELY
    carried = by_line(_taken_over(e, mishap, proof))
    if carried:
        return carried
    freeing = next((one.chain for one in reversed(mishap.freeing) if _frees(e, one.calls)), ())
    if mishap.in_step and freeing and not mishap.trained:
        found = _finding("double_backward", e, mishap, innermost(freeing), call="backward", chain=freeing)
        again = Note("again", locations.locate(mishap.chain[0]), {}) if mishap.chain else None
        return [replace(found, notes=(*found.notes, *([again] if again else [])), variant="frees")]
    return (
        by_line(
            _finding("double_backward", e, mishap, spot, call=call.name, proof=proof, chain=call.chain)
            for spot, call in _dropped(e)
        )
        or by_line(_carried_over("double_backward", e, mishap, proof))
        or [_finding("double_backward", e, mishap, innermost(mishap.chain))]
    )


def _taken_over(e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines of a step that goes backward by itself which keep a value with its history past that."""
    for call, number, freeing in e.first.taken_over:
        used, kept = innermost(call.chain), histories.kept_past(e, call, number, freeing)
        if kept is not None:
            found = _finding("double_backward", e, mishap, kept, call=call.name, proof=proof, chain=call.chain)
            notes = [Note("again", used, {})] if used is not None and not _same_line(used, kept) else []
            yield replace(found, notes=tuple(notes), variant=CARRIED)


def _carried_over(cause: str, e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines that keep a value with its history for a later step; where none is known, those that use it."""
    unsure: list[Finding] = []
    told = False
    for call, number in e.first.crossing:
        chain = histories.handed_to_a_module(call.chain)
        used = innermost(chain)
        found = _finding(cause, e, mishap, used, call=call.name, proof=proof, chain=chain)
        kept = histories.kept(e, call, number) or histories.put_away(e, call, number, mishap)
        if not kept and histories.is_let_go(e, number):
            unsure.append(found)
            continue
        for line in kept:
            notes = [Note("again", used, {})] if used is not None and not _same_line(used, line.location) else []
            variant = ONCE if line.before else KEPT
            yield replace(found, location=line.location, notes=tuple(notes), variant=variant)
        if not kept:
            yield found
        told = True
    yield from () if told else unsure


def _frees(e: Evidence, calls: frozenset[int]) -> bool:
    """Whether these calls are among what is needed again; where nothing else is known, they are."""
    needed = {e.trace.values[number].maker for _, number in e.first.crossing}
    return bool(needed & calls) or not needed


def _dropped(e: Evidence) -> list[tuple[Location | None, Call]]:
    """Calls of ``detach()`` on what comes from the past, whose result nobody uses: a ``detach_()`` was meant."""
    past = {number for _, number in e.first.crossing}
    used = {number for call in e.trace.calls for number in call.inputs}
    return [
        (locations.locate(call.chain[0]), call)
        for call in e.trace.calls
        if call.name == "detach" and call.chain and past.intersection(call.inputs) and not used & set(call.outputs)
    ]


def _same_line(one: Location, other: Location) -> bool:
    return (one.file, one.line) == (other.file, other.line)


# -- overwritten ----------------------------------------------------------------------------------------------------


def _overwritten(e: Evidence, mishap: AutogradError) -> list[Finding]:
    proof = PROVEN if e.shown.mended.revived else LIKELY
    return (
        by_line(
            _finding("inplace_modified", e, mishap, innermost(chain), call=call, proof=proof, chain=chain)
            for call, chain in e.shown.mended.calls
        )
        or by_line(_carried_over("inplace_modified", e, mishap, proof))
        or [_finding("inplace_modified", e, mishap, None, proof=LIKELY)]
    )


def _written(e: Evidence, mishap: AutogradError) -> list[Finding]:
    return [replace(_finding("inplace_modified", e, mishap, innermost(mishap.chain)), variant="leaf")]


# -- not used -------------------------------------------------------------------------------------------------------


def _unused(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """``autograd.grad`` for a value that took no part: where it was handed over and left aside, else where asked."""
    first = next((call for call in e.trace.behind([mishap.asked]) if _took(e, call, set(mishap.inputs))), None)
    if first is not None:
        return _constant_slope(e, mishap, first)
    branch = _branched(e, mishap)
    if branch is not None:
        return [branch]
    severed = _severed(e, mishap)
    late = unflagged.too_late(e, mishap) if not severed else None
    if severed or late is not None:
        return severed or [late] if late is not None else severed
    last = next(reversed(e.trace.ahead(mishap.inputs)), None)
    spot = _ignoring(e, last) if last is not None else None
    notes = [Note("dropped", locations.locate(last.chain[0]), {"call": last.name})] if last and last.chain else []
    asked = innermost(mishap.chain)
    if spot is not None and asked is not None:
        notes.append(Note("asked_here", asked, {}))
    proof, variant = (LIKELY, "") if spot else (OBSERVED, "asked")
    found = _finding("unused_input", e, mishap, spot or asked, proof=proof)
    return [replace(found, notes=tuple(notes), variant=variant)]


def _severed(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """Where a value takes part in what its gradient is asked of, and what stands between cuts it off."""
    inputs = {f"#{number}": number for number in mishap.inputs}
    if mishap.asked < 0 or not inputs or any(call.name == GRAD_KEPT for call in e.trace.behind([mishap.asked])):
        return []
    trace = replace(e.trace, loss=mishap.asked, parameters=inputs)
    asked, found = innermost(mishap.chain), []
    for call in (trace.calls[cut.calls[0]] for cut in cuts.find(trace, inputs).cuts if cut.calls and cut.region < 0):
        notes = [*called_by(call.chain), *([Note("asked_here", asked, {})] if asked is not None else [])]
        one = _finding("unused_input", e, mishap, innermost(call.chain), call=call.name, chain=call.chain)
        found.append(replace(one, notes=tuple(notes), variant="cut"))
    return found


def _branched(e: Evidence, mishap: AutogradError) -> Finding | None:
    """What a helper was to ask for was itself made of a value that took part: beside the way, not on it.

    Where the function that made it asks itself, the line that asks is the one to change.
    """
    part = {number for call in e.trace.behind([mishap.asked]) for number in (*call.inputs, *call.outputs)}
    part = {number for number in part if e.trace.values[number].requires_grad}
    makers = [e.trace.values[number].maker for number in mishap.inputs]
    sides = [e.trace.calls[maker] for maker in makers if maker >= 0]
    beside = [call for call in sides if part.intersection(call.inputs) and not part.intersection(call.outputs)]
    if not beside or len(beside) < len(makers) or not beside[0].chain:
        return None
    again = _computed_again(e, mishap, beside[0])
    if again is not None:
        return again
    if mishap.chain and mishap.chain[0][0] is beside[0].chain[0][0]:
        return _asked_for_at(e, mishap, beside[0])
    asked = innermost(mishap.chain)
    notes = [*called_by(beside[0].chain), *([Note("asked_here", asked, {})] if asked is not None else [])]
    spot, name = locations.locate(beside[0].chain[0]), beside[0].name
    found = _finding("unused_input", e, mishap, spot, call=name, proof=LIKELY)
    return replace(found, notes=tuple(notes), variant="branch")


def _asked_for_at(e: Evidence, mishap: AutogradError, made: Call) -> Finding | None:
    """What was to be asked for is made inside of the call that asks: its own line, where that spans several."""
    asked, spot = innermost(mishap.chain), innermost(made.chain)
    if asked is None or spot is None or _same_line(asked, spot) or not locations.holds(mishap.chain[0], made.chain[0]):
        return None
    found = _finding("unused_input", e, mishap, spot, call=made.name)
    return replace(found, variant="branch")


def _computed_again(e: Evidence, mishap: AutogradError, made: Call) -> Finding | None:
    """What was to be asked for was computed once more, by a helper or property that made what took part as well.

    The line is the one that calls the helper again, where the frames of both part.
    """
    alike = (one for one in e.trace.behind([mishap.asked]) if one.key == made.key and one.index != made.index)
    first = next((one for one in alike if one.chain != made.chain and set(one.inputs) & set(made.inputs)), None)
    if first is None:
        return None
    both = zip(made.chain, first.chain, strict=False)
    depth = next((at for at, (mine, its) in enumerate(both) if mine != its), 0)
    chain, asked = made.chain[depth:], innermost(mishap.chain)
    spot = locations.locate(chain[0], whole=True)
    notes = [Note("first_computed", locations.locate(first.chain[depth]), {}) if depth < len(first.chain) else None]
    notes += [Note("asked_here", asked, {})] if asked is not None and not _same_line(asked, spot) else []
    found = _finding("unused_input", e, mishap, spot, call=made.name, chain=chain)
    return replace(found, notes=tuple(note for note in notes if note is not None), variant="again")


def _ignoring(e: Evidence, last: Call) -> Location | None:
    """The function that was handed what ``last`` made: the first line that runs in it, if it does not use it."""
    for call in e.trace.calls[last.index + 1 :]:
        for depth, point in enumerate(call.chain):
            if last.chain and point[0] is last.chain[0][0] and depth > 0 and locations.holds(point, last.chain[0]):
                return locations.locate(call.chain[depth - 1])
    return None


# -- the others -----------------------------------------------------------------------------------------------------


def _recomputed(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The line in the backward of a custom Function which computes what has no history, and would need one."""
    ran = {code for code, _ in mishap.chain}
    points = [point for point in gradients.unrecorded(e) if point[0] in ran]
    name = locations.qualified_name(points[0][0]).rpartition(".")[0].rpartition(".")[2] if points else ""
    found = (_finding("custom_function", e, mishap, locations.locate(p), call=name, chain=(p,)) for p in points)
    return [replace(one, variant=gradients.RECOMPUTED) for one in found]


def _in_function(mishap: AutogradError) -> Location | None:
    """The line in a custom Function; where it asks for a gradient of what has no history, the line that made that."""
    if mishap.kind == autograd_errors.NO_HISTORY and mishap.chain:
        line = dataflow.defined_at(mishap.chain[0])
        code = mishap.chain[0][0]
        if line is not None:
            return locations.whole_line(code, line, locations.qualified_name(code))
    return innermost(mishap.chain)


def _no_history(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A derivative that was kept for a second one, and has none, because it is a constant: nothing is cut.

    Where it is asked for inside the forward of a custom Function, of what that was handed, it is made without a history
    there. If it starts from a leaf of its own, all that lacks is what the Function switched off.
    """
    asked = e.trace.values[mishap.asked].maker if mishap.asked >= 0 else -1
    inside = [e.trace.regions[at] for at in (e.trace.calls[asked].regions if asked >= 0 and mishap.in_step else ())]
    around = next((one for one in inside if one.kind == FUNCTION and _is_inside(mishap.chain, one.chain)), None)
    sources = e.trace.sources([mishap.asked]) if around is not None else ()
    if around is not None and not any(e.trace.values[n].leaf and not e.trace.values[n].parameter for n in sources):
        found = _finding("custom_function", e, mishap, _in_function(mishap), call=around.via)
        return [replace(found, variant="inside")]
    kept = (call for call in e.trace.behind([mishap.asked]) if call.name == GRAD_KEPT and call.grad_on)
    first = next((c for c in kept if not any(e.trace.values[made].requires_grad for made in c.outputs)), None)
    return _constant_slope(e, mishap, first) if first is not None else unflagged.findings(e, mishap)


def _is_inside(chain: Chain, outer: Chain) -> bool:
    """Whether some frames run further in than others do."""
    codes = [code for code, _ in outer]
    return len(chain) > len(codes) and [code for code, _ in chain[len(chain) - len(codes) :]] == codes


def _took(e: Evidence, call: Call, values: set[int]) -> bool:
    """Whether a call asked for a gradient by these values, with a graph, of something that they flow into."""
    if call.name != GRAD_KEPT or not call.grad_on or not values or not values.issubset(call.inputs):
        return False
    return values.issubset(number for before in e.trace.behind(call.inputs) for number in before.inputs)


def _constant_slope(e: Evidence, mishap: AutogradError, first: Call) -> list[Finding]:
    """The line that asks for the second derivative: where the frames part from those that asked for the first."""
    both = zip(reversed(mishap.chain), reversed(first.chain), strict=False)
    depth = next((depth for depth, (asked, made) in enumerate(both, 1) if asked != made), len(mishap.chain))
    chain = mishap.chain[len(mishap.chain) - depth :]
    return [_finding("library_bug", e, mishap, innermost(chain), call=first.name, chain=chain)]


def _bad_gradient(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A backward that returns the wrong thing raises outside of any line: the class is named in the message."""
    match = re.search(r"[Ff]unction (\w+?)Backward", mishap.message)
    spot = return_lines.return_of_method(e.files, match[1], "backward") if match else None
    return [_finding("custom_function" if match else "hook_misuse", e, mishap, spot or innermost(mishap.chain))]


def _old_style(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """An instance of a Function is called: the line that does, and a note of its forward."""
    node = locations.node_at(mishap.chain[0]) if mishap.chain else None
    made = node.func if isinstance(node, ast.Call) else None
    name = ast.unparse(made.func if isinstance(made, ast.Call) else made).rpartition(".")[2] if made else ""
    found = _finding("custom_function", e, mishap, innermost(mishap.chain), call=name)
    forward = functions.method(e.files, name, "forward")
    notes = (*found.notes, *([Note("defined", forward, {"attribute": "forward"})] if forward is not None else []))
    return [replace(found, notes=notes, variant="style")]


def _no_method(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A Function without a backward, or with one by another name: it is sought in the source."""
    method = "forward" if "the forward function" in mishap.message else "backward"
    ran = {node.label.removesuffix("Backward") for node in e.first.graph.nodes if not node.leaf}
    found = functions.lacking(e.files, method)
    found = [one for one in found if one[0] in ran] or found
    return by_line(
        replace(_finding("custom_function", e, mishap, spot, call=name, method=method, chain=()), variant="missing")
        for name, spot in found
    )


def _hook_result(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A hook returns what is no gradient: torch says so from outside of any line of the user's."""
    found = []
    for one in e.shown.silencers:
        blamed = _refused(e, mishap, gradients.location(one))

        found.append(replace(blamed, proof=PROVEN, revived=one.parameters, reruns=1) if one.parameters else blamed)
    return by_line(found) or [_refused(e, mishap, None)]


def _refused(e: Evidence, mishap: AutogradError, spot: Location | None) -> Finding:
    return replace(_finding("hook_misuse", e, mishap, spot, chain=()), variant="refused")


def _scaler(e: Evidence, mishap: AutogradError) -> list[Finding]:
    deed = e.seen.halved_by() if "FP16" in mishap.message else None
    if deed is not None and deed.chain:
        return [_finding("amp_misuse", e, mishap, innermost(deed.chain), chain=deed.chain, proof=OBSERVED)]
    halved = setup.half_precision_line(e.files) if "FP16" in mishap.message else None
    out_of_order = scaler_findings(e)
    if out_of_order and halved is None:
        return out_of_order
    return [_finding("amp_misuse", e, mishap, halved or innermost(mishap.chain), proof=LIKELY if halved else OBSERVED)]


def scaler_findings(e: Evidence) -> list[Finding]:
    """What was done with a gradient scaler out of order, whether or not it raised."""
    return [
        Finding("amp_misuse", innermost(one.chain), tuple(called_by(one.chain)), proof=OBSERVED, variant=one.kind)
        for one in e.first.misuses
    ]


def _reduction(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """DistributedDataParallel waits for parameters that took no part: it tells their positions."""
    match = re.search(r"did not receive grad for rank \d+: ([\d ]+)", mishap.message)
    trainable = [row.name for row in e.rows if row.requires_grad]
    names = [trainable[int(i)] for i in match[1].split() if int(i) < len(trainable)] if match else []
    groups: dict[object, tuple[Location | None, list[str]]] = {}
    for one in names:
        deed = e.seen.first([one])
        made = locations.locate(deed.chain[0], whole=True) if deed is not None and deed.chain else None
        spot = made or attributes.definition(e.way_to(one), e.files, e.built_on(one))[0]
        groups.setdefault((spot.file, spot.line) if spot else None, (spot, []))[1].append(one)
    return [_finding("ddp_unused", e, mishap, spot, names=group) for spot, group in groups.values()] or [
        _finding("ddp_unused", e, mishap, innermost(mishap.chain))
    ]


def _ready_twice(e: Evidence, mishap: AutogradError) -> list[Finding]:
    regions = [region for region in e.trace.regions if region.kind == CHECKPOINT and region.chain]
    places = dict.fromkeys(region.chain for region in regions)
    return [_finding("checkpoint_reentrant", e, mishap, innermost(c), chain=c, proof=LIKELY) for c in list(places)[:1]]


def _inference(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A tensor born under inference_mode: in this step, or before it by a line that is sought in the source."""
    region = next((region for region in e.trace.regions if region.kind == INFERENCE), None)
    if region is not None:
        spot = region.place or innermost(region.chain)
    else:
        spot = setup.inference_mode_line(e.files, locations.qualified_name(mishap.chain[0][0]) if mishap.chain else "")
    notes = [Note("lost_here", innermost(mishap.chain), {"call": "inference_mode"})] if spot and mishap.chain else []
    found = _finding("inference_mode", e, mishap, spot or innermost(mishap.chain), proof=LIKELY)
    return [replace(found, notes=tuple(notes))]


def _many_elements(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """``autograd.grad`` or a backward in the step, of something that is no scalar."""
    if mishap.asked < 0:
        return []
    shape = e.trace.values[mishap.asked].shape
    spot = innermost(mishap.chain)
    return [_finding("non_scalar", e, mishap, spot, shape=str(shape), elements=str(math.prod(shape)))]


def _no_leaf(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """What an optimizer was handed is no leaf: the line that computed it, where that is plain; else the optimizer's."""
    asked = innermost(mishap.chain)
    made = non_leaves.computed_at(mishap.chain[0], e.files) if "optimize" in mishap.message and mishap.chain else None
    found = _finding("grad_on_non_leaf", e, mishap, made or asked, proof=LIKELY if made else OBSERVED)
    if made is None or asked is None or _same_line(made, asked):
        return [found]
    return [replace(found, notes=(Note("handed_over", asked, {}),))]


def _at(cause: str) -> Callable[[Evidence, AutogradError], list[Finding]]:
    """The cause is plain from the message, and the line from where it was raised."""
    return lambda e, mishap: [_finding(cause, e, mishap, innermost(mishap.chain))]


def _at_maker(cause: str) -> Callable[[Evidence, AutogradError], list[Finding]]:
    """A finding as ``_at`` makes it, for an error of the backward of a call in the step."""

    def rule(e: Evidence, mishap: AutogradError) -> list[Finding]:
        chain = next((c.chain for c in reversed(e.trace.calls) if c.name in mishap.message and c.chain), mishap.chain)
        return [_finding(cause, e, mishap, innermost(chain), chain=chain)]

    return rule


def _nan_returned(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The line of the operation whose derivative anomaly mode found to be nan: by the name of its node."""
    named = re.search(r"Function '(\w+?)Backward\d*'", mishap.message)
    wanted = named[1].lower() if named is not None else ""
    places = by_line(
        _finding("nan_gradient", e, mishap, innermost(call.chain), call=call.name, chain=call.chain)
        for call in reversed(e.trace.calls)
        if call.chain and call.grad_on and call.name.replace("_", "").lower() == wanted
    )
    return [replace(places[0], proof=LIKELY, doubt=SEVERAL)] if len(places) > 1 else places


_RULES: dict[str, Callable[[Evidence, AutogradError], list[Finding]]] = {
    autograd_errors.TWICE: _twice,
    autograd_errors.NO_HISTORY: _no_history,
    autograd_errors.OVERWRITTEN: _overwritten,
    autograd_errors.LEAF_WRITTEN: _written,
    autograd_errors.VIEW_WRITTEN: _written,
    autograd_errors.UNUSED: _unused,
    autograd_errors.NOT_ASKED: unflagged.findings,
    autograd_errors.MANY_ELEMENTS: _many_elements,
    autograd_errors.BAD_GRADIENT: _bad_gradient,
    autograd_errors.OLD_STYLE: _old_style,
    autograd_errors.NO_METHOD: _no_method,
    autograd_errors.HOOK_RESULT: _hook_result,
    autograd_errors.SCALER: _scaler,
    autograd_errors.REDUCTION: _reduction,
    autograd_errors.READY_TWICE: _ready_twice,
    autograd_errors.INFERENCE: _inference,
    autograd_errors.NAN_RETURNED: _nan_returned,
    autograd_errors.NOT_A_LEAF: _no_leaf,
    autograd_errors.NUMPY_REFUSED: _at("numpy_roundtrip"),
    autograd_errors.INTEGER_FLAG: _at("integer_cast"),
    autograd_errors.HOOK_REFUSED: _at("hook_misuse"),
    autograd_errors.NO_DERIVATIVE: _at_maker("non_differentiable_op"),
    autograd_errors.EVAL_ONLY: _at_maker("library_bug"),
}
