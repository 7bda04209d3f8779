"""Errors that torch raised and that are no cut: a value overwritten, a graph used twice, something asked for unused.

Also what a step does out of order with a gradient scaler, whether or not that raised (``scaler_findings``).
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from gradkit.core.operations import ADDS, GRAD_KEPT, SCALES
from gradkit.core.records import LIKELY, OBSERVED, PROVEN, READ, SEVERAL, Finding, Location, Note
from gradkit.core.trace import CHECKPOINT, FUNCTION, INFERENCE, Call, Chain
from gradkit.diagnosis.rules import gradients, histories, no_loss, sparse, unflagged, unused_inputs
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, of_error, same_line
from gradkit.source import (
    attributes,
    dataflow,
    functions,
    inplace_layers,
    locations,
    non_leaves,
    returns,
    setup,
    stepping,
)
from gradkit.source.locations import innermost
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError, Freeing

KEPT, ONCE, CARRIED, RESET, AND_NOW, LAYER, HALF = "kept", "once", "carried", "reset", "and_now", "layer", "half"


def findings(e: Evidence) -> list[Finding]:
    """What the error that was raised means; ``[]`` if it means what the cuts say, or nothing that is known here."""
    mishap = e.mishap
    if mishap is None:
        return []
    if mishap.inside == autograd_errors.IN_FUNCTION:
        return _recomputed(e, mishap) or [of_error("custom_function", e, mishap, _in_function(mishap))]
    if mishap.inside == autograd_errors.IN_HOOK:
        return [of_error("hook_misuse", e, mishap, innermost(mishap.chain))]
    rule = _RULES.get(mishap.kind)
    return rule(e, mishap) if rule is not None else []


# -- a second time --------------------------------------------------------------------------------------------------


def _twice(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The graph of an earlier backward is used again: the line that should have let it go, or that uses it."""
    if e.first.no_loss is not None:
        return [no_loss.from_before(e, of_error("double_backward", e, mishap, None, chain=()))]
    proof = PROVEN if e.shown.mended.revived else LIKELY
    carried = by_line(_reset(e, mishap, proof)) or by_line(_taken_over(e, mishap, proof))
    carried = carried or by_line(_cached(e, mishap, proof))
    if carried:
        return carried
    freeing = next((one for one in reversed(mishap.freeing) if _frees(e, one.calls)), None)
    if freeing is not None and (
        _is_shared(e, mishap, freeing) or autograd_errors.has_terms_of_its_own(e.trace, mishap)
    ):
        chain = freeing.chain
        found = of_error("double_backward", e, mishap, innermost(chain), call="backward", chain=chain)
        again = Note("again", locations.locate(mishap.chain[0]), {}) if mishap.chain else None
        return [replace(found, notes=(*found.notes, *([again] if again else [])), variant="frees")]
    return (
        by_line(
            of_error("double_backward", e, mishap, spot, call=call.name, proof=proof, chain=call.chain)
            for spot, call in _dropped(e)
        )
        or by_line(_carried_over("double_backward", e, mishap, proof))
        or [of_error("double_backward", e, mishap, innermost(mishap.chain))]
    )


def _reset(e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines that give a value from an earlier pass new numbers in place, with which it keeps its history."""
    for call, _, reset in e.first.resets:
        used, spot = innermost(call.chain), innermost(reset.chain)
        found = of_error("double_backward", e, mishap, spot, call=reset.name, proof=proof, chain=reset.chain)
        again = _again(used, spot) if spot is not None else ()
        yield replace(found, notes=(*found.notes, *again), variant=RESET)


def _taken_over(e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines of a step that goes backward by itself which keep a value with its history past that."""
    for call, number, freeing in e.first.taken_over:
        used, kept = innermost(call.chain), histories.kept_past(e, call, number, freeing)
        if kept is not None:
            found = of_error("double_backward", e, mishap, kept, call=call.name, proof=proof, chain=call.chain)
            yield replace(found, notes=_again(used, kept), variant=CARRIED)


def _again(used: Location | None, kept: Location) -> tuple[Note, ...]:
    """Where a history is used once more, if that is another line than the one that keeps it."""
    return (Note("again", used, {}),) if used is not None and not same_line(used, kept) else ()


def _cached(e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines by which an earlier pass keeps a value with its history in an attribute that a later one reads."""
    for call, number in e.first.crossing:
        used = innermost(call.chain)
        for line in histories.kept_in_an_attribute(e, call, number, mishap):
            found = of_error("double_backward", e, mishap, line.location, call=call.name, proof=proof, chain=call.chain)
            yield replace(found, notes=_again(used, line.location), variant=_variant(e, call, number))


def _variant(e: Evidence, call: Call, number: int) -> str:
    return AND_NOW if histories.is_used_at_once(e, call, number) else KEPT


def _carried_over(cause: str, e: Evidence, mishap: AutogradError, proof: str) -> Iterator[Finding]:
    """The lines that keep a value with its history for a later step; where none is known, those that use it."""
    unsure: list[Finding] = []
    told = False
    for call, number in e.first.crossing:
        chain = histories.handed_over(e, call.chain)
        used = innermost(chain)
        found = of_error(cause, e, mishap, used, call=call.name, proof=proof, chain=chain)
        kept = histories.kept(e, call, number) or histories.kept_for_a_loop(e, call, number, mishap)
        if not kept and histories.is_let_go(e, number):
            unsure.append(found)
            continue
        for line in kept:
            variant = ONCE if line.before else _variant(e, call, number)
            yield replace(found, location=line.location, notes=_again(used, line.location), variant=variant)
        if not kept:
            yield found
        told = True
    yield from () if told else unsure


def _frees(e: Evidence, calls: frozenset[int]) -> bool:
    """Whether these calls are among what is needed again; where nothing else is known, they are."""
    needed = {e.trace.values[number].maker for _, number in e.first.crossing}
    return bool(needed & calls) or not needed


def _is_shared(e: Evidence, mishap: AutogradError, freeing: Freeing) -> bool:
    """Whether two losses of one pass need what was freed; where one of them was trained by, as terms of both."""
    crossing = e.first.crossing
    if mishap.stepped_on:
        trained = autograd_errors.trained_by(e.trace, mishap).issuperset(number for _, number in crossing)
        if not crossing or not trained or not all(_adds(e, call, number) for call, number in crossing):
            return False
    return mishap.in_step or _is_needed_from_before(e, freeing)


def _is_needed_from_before(e: Evidence, freeing: Freeing) -> bool:
    """Whether all that uses what a backward has freed had done so before: two losses of one pass, of which one is late.

    Then no line takes over anything from an earlier pass.
    """
    return bool(e.first.crossing) and all(
        max(call.outputs) < freeing.values or _is_a_term(e, call, number, freeing) for call, number in e.first.crossing
    )


def _is_a_term(e: Evidence, call: Call, number: int, freeing: Freeing) -> bool:
    """Whether what is added to the late loss is a number that the freed loss was made of, and not that loss itself."""
    return number != freeing.loss and _adds(e, call, number)


def _adds(e: Evidence, call: Call, number: int) -> bool:
    alone = sum(e.trace.values[n].requires_grad for n in call.inputs) == 1
    return math.prod(e.trace.values[number].shape) == 1 and (call.name in ADDS or (call.name in SCALES and alone))


def _dropped(e: Evidence) -> list[tuple[Location | None, Call]]:
    """Calls of ``detach()`` on what comes from the past, whose result nobody uses: a ``detach_()`` was meant."""
    past = {number for _, number in e.first.crossing}
    used = {number for call in e.trace.calls for number in call.inputs}
    return [
        (locations.locate(call.chain[0]), call)
        for call in e.trace.calls
        if call.name == "detach" and call.chain and past.intersection(call.inputs) and not used & set(call.outputs)
    ]


# -- overwritten ----------------------------------------------------------------------------------------------------


def _overwritten(e: Evidence, mishap: AutogradError) -> list[Finding]:
    proof = PROVEN if e.shown.mended.revived else LIKELY
    return (
        by_line(_overwriting(e, mishap, call, stepping.asked(chain), proof) for call, chain in e.shown.mended.calls)
        or by_line(_carried_over("inplace_modified", e, mishap, proof))
        or [of_error("inplace_modified", e, mishap, None, proof=LIKELY)]
    )


def _overwriting(e: Evidence, mishap: AutogradError, call: str, chain: Chain, proof: str) -> Finding:
    """The line that overwrites a value, or that builds the layer which does."""
    used, built = innermost(chain), _built_inplace(e, call, chain)
    found = of_error("inplace_modified", e, mishap, built or used, call=call, proof=proof, chain=chain)
    if built is None or used is None:
        return found
    return replace(found, notes=(Note("overwritten_here", used),), variant=LAYER)


def _built_inplace(e: Evidence, name: str, chain: Chain) -> Location | None:
    """Where the layer of torch's is built whose call overwrote a value, if no line of the user's says that it does."""
    at = next((one.module for one in e.trace.calls if one.name == name and one.chain == chain), -1)
    path = e.trace.modules[at] if at >= 0 else ""
    cls = e.facts.classes.get(path)
    if not path or cls is None or not cls.__module__.startswith("torch.nn."):
        return None
    return inplace_layers.built_at(cls, e.way_to(path)[::-1], e.files)


def _written(e: Evidence, mishap: AutogradError) -> list[Finding]:
    return [replace(of_error("inplace_modified", e, mishap, innermost(mishap.chain)), variant="leaf")]


# -- the others -----------------------------------------------------------------------------------------------------


def _recomputed(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The line in the backward of a custom Function which computes what has no history, and would need one."""
    ran = {code for code, _ in mishap.chain}
    points = [point for point in gradients.unrecorded(e) if point[0] in ran]
    name = gradients.function_at(points[0]) if points else ""
    found = (of_error("custom_function", e, mishap, locations.locate(p), call=name, chain=(p,)) for p in points)
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

    Of a value of the step's own, as a sampler's guidance asks for, whatever cuts it off is no cut of the loss. Where it
    is asked for inside the forward of a custom Function, of what that was handed, it is made without a history there.
    If it starts from a leaf of its own, all that lacks is what the Function switched off.
    """
    asked = e.trace.values[mishap.asked].maker if mishap.asked >= 0 else -1
    inside = [e.trace.regions[at] for at in (e.trace.calls[asked].regions if asked >= 0 and mishap.in_step else ())]
    around = next((one for one in inside if one.kind == FUNCTION and _is_inside(mishap.chain, one.chain)), None)
    sources = e.trace.sources([mishap.asked]) if around is not None else ()
    if around is not None and not any(e.trace.values[n].leaf and not e.trace.values[n].parameter for n in sources):
        found = of_error("custom_function", e, mishap, _in_function(mishap), call=around.via)
        return [replace(found, variant="inside")]
    kept = (call for call in e.trace.behind([mishap.asked]) if call.name == GRAD_KEPT and call.grad_on)
    first = next((c for c in kept if not any(e.trace.values[made].requires_grad for made in c.outputs)), None)
    if first is not None:
        return unused_inputs.constant_slope(e, mishap, first)
    own = all(e.trace.values[n].leaf and not e.trace.values[n].parameter for n in mishap.inputs)
    return unflagged.findings(e, mishap) or (unused_inputs.severed(e, mishap) if own and not e.verdict.cuts else [])


def _is_inside(chain: Chain, outer: Chain) -> bool:
    """Whether some frames run further in than others do."""
    codes = [code for code, _ in outer]
    return len(chain) > len(codes) and [code for code, _ in chain[len(chain) - len(codes) :]] == codes


def _bad_gradient(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A backward that returns the wrong thing raises outside of any line: the class is named in the message."""
    match = re.search(r"[Ff]unction (\w+?)Backward", mishap.message)
    hidden = _hidden(e, mishap, match[1]) if match and "different than None" in mishap.message else None
    if hidden is not None:
        return [hidden]
    if match is None:
        return [of_error("hook_misuse", e, mishap, innermost(mishap.chain))]
    counts = re.search(r"incorrect number of gradients \(expected (\d+), got (\d+)\)", mishap.message)
    spot = functions.returning(e.files, match[1], int(counts[2]) if counts else 1)
    found = of_error("custom_function", e, mishap, spot or innermost(mishap.chain), call=match[1])
    if counts is None:
        return [found]
    return [replace(found, variant="count", facts={**found.facts, "expected": counts[1], "got": counts[2]})]


def _hidden(e: Evidence, mishap: AutogradError, name: str) -> Finding | None:
    """A gradient is returned for a container: the line that hands a Function tensors inside of one."""
    for region in e.trace.regions:
        hidden = [e.trace.values[n] for n in region.hidden if e.trace.values[n].requires_grad]
        if region.kind == FUNCTION and region.via == name and hidden and region.chain:
            names = dict.fromkeys(one.parameter for one in hidden if one.parameter)
            found = of_error(
                "custom_function", e, mishap, innermost(region.chain), call=name, names=tuple(names), chain=region.chain
            )
            return replace(found, variant="hidden")
    return None


def _old_style(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """An instance of a Function is called: the line that does, and a note of its forward."""
    node = locations.node_at(mishap.chain[0]) if mishap.chain else None
    made = node.func if isinstance(node, ast.Call) else None
    name = ast.unparse(made.func if isinstance(made, ast.Call) else made).rpartition(".")[2] if made else ""
    found = of_error("custom_function", e, mishap, innermost(mishap.chain), call=name)
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
        replace(of_error("custom_function", e, mishap, spot, call=name, method=method, chain=()), variant="missing")
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
    return replace(of_error("hook_misuse", e, mishap, spot, chain=()), variant="refused")


def _scaler(e: Evidence, mishap: AutogradError) -> list[Finding]:
    if "FP16" in mishap.message:
        return [replace(_halved(e, mishap), variant=HALF)]
    out_of_order = scaler_findings(e)
    if out_of_order:
        return out_of_order
    skipped = _update_skipped(e, mishap)
    return [skipped if skipped is not None else of_error("amp_misuse", e, mishap, innermost(mishap.chain))]


def _halved(e: Evidence, mishap: AutogradError) -> Finding:
    """The line that made the weights half precision, as it was seen or as it is written; else the one that raised."""
    deed = e.seen.halved_by()
    if deed is not None and deed.chain:
        return of_error("amp_misuse", e, mishap, innermost(deed.chain), chain=deed.chain)
    read = setup.half_precision_line(e.files)
    found = of_error("amp_misuse", e, mishap, read or innermost(mishap.chain), proof=LIKELY if read else OBSERVED)
    return replace(found, doubt=READ) if read is not None else found


def _update_skipped(e: Evidence, mishap: AutogradError) -> Finding | None:
    """A scaler that was not updated since it last unscaled or stepped: the line of ``update()``, if there is one."""
    if not mishap.chain or not re.search(r"since the last update|called after step", mishap.message):
        return None
    updated, stepped = e.first.scaler.get("update", ()), e.first.scaler.get("step", ())
    seen = locations.locate(updated[0]) if updated else None
    read = (stepping.update_skipped(chain, e.files) for chain in (mishap.chain, stepped))
    spot = seen or next(filter(None, read), None)
    if spot is None:
        return None
    again = innermost(mishap.chain)
    notes = (Note("unscaled_again", again),) if again is not None and not same_line(again, spot) else ()
    found = of_error("amp_misuse", e, mishap, spot, proof=LIKELY, chain=())
    return replace(found, notes=(*found.notes, *notes), variant="skipped_update")


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
        deed = e.seen.first([one]) if not e.idle_part(one, names) else None
        chain = returns.past_factories(deed.chain) if deed is not None else ()
        made = locations.locate(chain[0], whole=True) if chain else None
        spot = made or e.defined_at(one, names)[0]
        groups.setdefault((spot.file, spot.line) if spot else None, (spot, []))[1].append(one)
    return [of_error("ddp_unused", e, mishap, spot, names=group) for spot, group in groups.values()] or [
        of_error("ddp_unused", e, mishap, innermost(mishap.chain))
    ]


def _ready_twice(e: Evidence, mishap: AutogradError) -> list[Finding]:
    regions = [region for region in e.trace.regions if region.kind == CHECKPOINT and region.chain]
    places = dict.fromkeys(region.chain for region in regions)
    return [of_error("checkpoint_reentrant", e, mishap, innermost(c), chain=c, proof=LIKELY) for c in list(places)[:1]]


def _inference(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """A tensor born under inference_mode: in this step, or before it by a line that is sought in the source."""
    region = next((region for region in e.trace.regions if region.kind == INFERENCE), None)
    if region is not None:
        spot = region.place or innermost(region.chain)
    else:
        spot = setup.inference_mode_line(e.files, locations.qualified_name(mishap.chain[0][0]) if mishap.chain else "")
    notes = [Note("lost_here", innermost(mishap.chain), {"call": "inference_mode"})] if spot and mishap.chain else []
    found = of_error("inference_mode", e, mishap, spot or innermost(mishap.chain), proof=LIKELY)
    return [replace(found, notes=tuple(notes))]


def _many_elements(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """``autograd.grad`` or a backward in the step, of something that is no scalar."""
    if mishap.asked < 0:
        return []
    shape = e.trace.values[mishap.asked].shape
    spot = innermost(mishap.chain)
    return [of_error("non_scalar", e, mishap, spot, shape=str(shape), elements=str(math.prod(shape)))]


def _no_leaf(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """What an optimizer was handed, or whose ``.grad`` was read, is no leaf: the line that computed it, where that is
    plain; else the line that raised."""
    asked, by_optimizer = innermost(mishap.chain), "optimize" in mishap.message
    seen = [_computed_at(e, number) for number in mishap.inputs]
    read = non_leaves.computed_at(mishap.chain[0], e.files) if by_optimizer and mishap.chain else None
    made, proof = (seen, OBSERVED) if seen and None not in seen else ([read], LIKELY if read else OBSERVED)
    found = []
    for spot in made:
        one = of_error("grad_on_non_leaf", e, mishap, spot or asked, proof=proof)
        note = Note("handed_over" if by_optimizer else "asked_here", asked, {})
        beside = spot is not None and asked is not None and not same_line(asked, spot)
        found.append(replace(one, notes=(note,)) if beside else one)
    return by_line(found)


def _computed_at(e: Evidence, number: int) -> Location | None:
    """The line of the step that computed a value, outside of what the model itself computes."""
    maker = e.trace.values[number].maker
    chain = e.trace.calls[maker].chain if maker >= 0 else ()
    own = set(attributes.codes(e.facts.classes.values()))
    return innermost(tuple(itertools.dropwhile(lambda point: point[0] in own, chain)))


def _at(cause: str) -> Callable[[Evidence, AutogradError], list[Finding]]:
    """The cause is plain from the message, and the line from where it was raised."""
    return lambda e, mishap: [of_error(cause, e, mishap, innermost(mishap.chain))]


def _at_maker(cause: str) -> Callable[[Evidence, AutogradError], list[Finding]]:
    """A finding as ``_at`` makes it, for an error of the backward of a call in the step."""

    def rule(e: Evidence, mishap: AutogradError) -> list[Finding]:
        chain = next((c.chain for c in reversed(e.trace.calls) if c.name in mishap.message and c.chain), mishap.chain)
        return [of_error(cause, e, mishap, innermost(chain), chain=chain)]

    return rule


def _nan_returned(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The line of the operation whose derivative anomaly mode found to be nan: by the name of its node."""
    named = re.search(r"Function '(\w+?)Backward\d*'", mishap.message)
    wanted = named[1].lower() if named is not None else ""
    places = by_line(
        of_error("nan_gradient", e, mishap, innermost(call.chain), call=call.name, chain=call.chain)
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
    autograd_errors.UNUSED: unused_inputs.findings,
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
    autograd_errors.NOT_TAKEN: sparse.findings,
    autograd_errors.NUMPY_REFUSED: _at("numpy_roundtrip"),
    autograd_errors.INTEGER_FLAG: _at("integer_cast"),
    autograd_errors.HOOK_REFUSED: _at("hook_misuse"),
    autograd_errors.NO_DERIVATIVE: _at_maker("non_differentiable_op"),
    autograd_errors.EVAL_ONLY: _at_maker("library_bug"),
}
