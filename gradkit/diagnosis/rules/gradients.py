"""A whole graph through which zero, nan or nothing comes back: because of a hook, or of an operation."""

from __future__ import annotations

import math

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.records import LIKELY, OBSERVED, PROVEN, Finding, Harmless, Location, Note
from gradkit.core.trace import SAMPLE, Call, Chain, Point, Value
from gradkit.diagnosis.experiments.hook_probe import HIDDEN
from gradkit.diagnosis.experiments.lost_gradients import EMPTY, IGNORED, TIMES_ZERO, ZeroGradient
from gradkit.diagnosis.experiments.without_hooks import SilencingHook
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.rules import handed_out, masked_labels
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, line_of
from gradkit.source import locations, return_lines, zero_returns
from gradkit.tracing.dropped import Dropped

RECOMPUTED, ZEROS, NONE, INTERMEDIATE, COPIED = "recomputed", "zeros", "none", "intermediate", "copied"


def hook_findings(e: Evidence) -> list[Finding]:
    """One finding for each hook that starves what should learn, in the order of the backward."""
    return [_hook_finding(e, one) for one in e.shown.silencers if not _is_meant(e, one)]


def intended_hooks(e: Evidence) -> list[Harmless]:
    """Hooks of a parameter that silence that parameter alone: a way to freeze it."""
    found = ((one, location(one)) for one in e.shown.silencers if _is_meant(e, one))
    return [Harmless("hook", spot, "own_hook") for _, spot in found if spot is not None]


def _is_meant(e: Evidence, hook: SilencingHook) -> bool:
    """Whether a hook may have been written to keep its own parameters as they are, wholly or in part.

    Not if nothing is left that learns, and not if the user has said that these should train.
    """
    if hook.kind == HIDDEN or not set(hook.parameters) <= hook.owners:
        return False
    if all(call.partial for call in hook.calls):
        return True
    silent = {name for other in e.shown.silencers for name in other.parameters}
    alive = [name for name in e.wanted if name not in silent and e.reached.norms.get(name)]
    return bool(alive) and not e.facts.explicit


def _hook_finding(e: Evidence, hook: SilencingHook) -> Finding:
    first, spot = hook.calls[0], location(hook)
    placed = {call.registered for call in hook.calls if call.registered}
    notes = []
    at = locations.innermost(next(iter(placed))) if len(placed) == 1 else None
    if at is not None and spot is not None and (at.file, at.line) != (spot.file, spot.line):
        notes.append(Note("registered", at))
    variant = "emptied" if first.emptied and hook.kind != HIDDEN else hook.kind
    if hook.kind == HIDDEN:
        call = e.trace.calls[hook.spoiler] if 0 <= hook.spoiler < len(e.trace.calls) else None
        source = locations.innermost(call.chain) if call is not None else None
        if call is not None and source is not None:
            notes.append(Note("nan_from", source, {"call": call.name}))
        return Finding("hook_misuse", spot, tuple(notes), proof=OBSERVED, parameters=hook.parameters, variant=variant)
    return Finding(
        "hook_misuse",
        spot,
        tuple(notes),
        proof=PROVEN,
        parameters=hook.parameters,
        revived=hook.parameters,
        reruns=1,
        variant=variant,
    )


def location(hook: SilencingHook) -> Location | None:
    """The one line of the hook where the gradient was lost; its only ``return``; or the line that it begins on."""
    code = hook.calls[0].code
    if code is None:
        return locations.innermost(hook.calls[0].registered)
    points = {locations.line_of(call.point): call.point for call in hook.calls if call.point is not None}
    if len(points) == 1 and all(call.point is not None for call in hook.calls):
        return locations.locate(next(iter(points.values())))
    head = return_lines.def_line(code)
    return return_lines.only_return(code) or locations.whole_line(code, head, locations.qualified_name(code))


def zero_findings(e: Evidence) -> list[Finding]:
    """The operations whose derivative is zero, one finding for each line, in the order of the run."""
    places: dict[tuple[str, int] | None, list[ZeroGradient]] = {}
    drawn = {call.key for call in e.trace.calls for r in call.regions if e.trace.regions[r].kind == SAMPLE}
    own = handed_out.within_marked(e) if e.vanishing else set()
    for one in e.vanishing:
        if one.call.key in own:
            continue
        if one.call.key in drawn:  # a Distribution.sample() is a cut, and in the rerun only what is drawn is left of it
            continue
        if one.kind in (IGNORED, EMPTY) and not e.open.nan_loss:
            continue
        if one.kind == TIMES_ZERO and (_is_one_number(e, one) or not _by_a_constant(e, one)):
            continue
        places.setdefault(line_of(one.call), []).append(one)
    return [_zero_finding(e, group) for group in places.values()]


def _zero_finding(e: Evidence, group: list[ZeroGradient]) -> Finding:
    first = group[0]
    names = tuple(dict.fromkeys(name for one in group for name in one.parameters))
    chain = first.call.chain
    spot = locations.innermost(chain)
    notes = called_by(chain)
    proof = OBSERVED
    if first.kind == IGNORED:
        written, notes = masked_labels.written(e, first.call, spot, notes)
        proof, spot = (LIKELY if written is not None else OBSERVED), written or spot
    elif first.kind == EMPTY and spot is not None:
        picked = masked_labels.picked_with(e, first.call)
        spot, notes = (picked, [Note("no_element", spot, {"call": first.call.name})]) if picked else (spot, notes)
    module = e.trace.modules[first.call.module] if first.call.module >= 0 else ""
    return Finding(
        "zero_gradient",
        spot,
        tuple(notes),
        proof=proof,
        parameters=names,
        module=module,
        call=first.call.name,
        variant=first.kind,
    )


def zero_loss_terms(e: Evidence) -> list[ZeroGradient]:
    """Where a single number is multiplied by zero, and the gradient of all that should train with it: a loss that is
    meant to be zero, as where a batch has nothing to learn from."""
    return [one for one in e.vanishing if one.kind == TIMES_ZERO and _is_one_number(e, one) and _by_a_constant(e, one)]


def _is_one_number(e: Evidence, one: ZeroGradient) -> bool:
    return all(math.prod(e.trace.values[n].shape) == 1 for n in one.call.outputs)


def _by_a_constant(e: Evidence, one: ZeroGradient) -> bool:
    """Whether the zero is a number, or a constant that the model holds: zeros in the data are often meant."""
    others = [e.trace.values[n] for n in one.call.inputs if not e.trace.values[n].requires_grad]
    return all(
        (value.buffer or value.attribute) and math.prod(value.shape) == 1 and not value.python for value in others
    )


def dropped_findings(e: Evidence) -> list[Finding]:
    """Custom Functions whose backward returns None, or zeros in any case, for what should learn."""
    groups: dict[tuple[str, Location | None, str], list[str]] = {}
    points = unrecorded(e)
    zero = [n for n in e.wanted if e.reached.norms.get(n) == 0 and n not in e.shown.zeros.woken]
    for one in e.shown.gradients.dropped:
        names = [n for n in (zero if one.zeros else e.verdict.unexplained) if n in one.parameters]
        point, variant = next((point for point in points if point[0] is one.code), None), NONE
        spot = _returned(one)
        if one.zeros:
            variant = ZEROS
        elif point is not None and not return_lines.gives_none(one.code, one.position):
            spot, variant = locations.locate(point), RECOMPUTED
        if names and (spot is not None or not one.zeros):
            groups.setdefault((one.name, spot, variant), []).extend(names)
    for point in () if e.shown.gradients.dropped else points:  # of a backward that the step made itself
        groups.setdefault((function_at(point), locations.locate(point), RECOMPUTED), []).extend(e.open.lost)
    return [
        Finding(
            "custom_function", spot, proof=OBSERVED, parameters=tuple(dict.fromkeys(names)), call=name, variant=variant
        )
        for (name, spot, variant), names in groups.items()
    ]


def intermediate_findings(e: Evidence) -> list[Finding]:
    """Custom Functions whose backward is differentiated, and takes what forward has computed on the way as constant."""
    kept = e.shown.intermediates
    names = tuple(name for name in kept.revived if name in e.verdict.unexplained)
    found = [
        Finding(
            "custom_function", locations.locate(_in_backward(chain)), proof=PROVEN, parameters=names, call=name,
            revived=names, reruns=kept.runs, variant=INTERMEDIATE,
        )
        for name, chain in kept.uses
    ]  # fmt: skip
    return by_line(found) if names else []


def copied_input(e: Evidence, region: int) -> Call | None:
    """Of a Function that was entered: the call which makes a leaf of its own, where a second derivative is asked for.

    A backward that asks for the gradient by such a copy hands the first derivative on; what lies before the copy is
    missing from the second.
    """
    if not any(c.name == GRAD_KEPT and e.verdict.reaching.intersection(c.outputs) for c in e.trace.calls):
        return None
    within = [call for call in e.trace.calls if region in call.regions]
    codes = {point[0] for call in within for point in cuts.inside(e.trace, call, region)}
    inside = (call for call in e.trace.calls if any(code in codes for code, _ in call.chain))
    return next((call for call in inside if any(_is_own_leaf(e.trace.values[n]) for n in call.outputs)), None)


def _is_own_leaf(value: Value) -> bool:
    return value.leaf and value.requires_grad and not value.parameter


def _in_backward(chain: Chain) -> Point:
    """The place in a Function's backward itself, of frames that end there."""
    return next((point for point in reversed(chain) if point[0].co_name in ("backward", "vjp")), chain[-1])


def _returned(one: Dropped) -> Location | None:
    if one.zeros:
        return zero_returns.return_of_zeros(one.code, one.position, one.inputs, untouched=one.untouched)
    return return_lines.return_without_gradient(one.code, one.position)


def function_at(point: Point) -> str:
    """The name of the custom Function whose backward a place stands in."""
    return locations.qualified_name(point[0]).rpartition(".")[0].rpartition(".")[2]


def unrecorded(e: Evidence) -> list[Point]:
    """In the backwards of custom Functions, where each first computes what has no history and is asked for one."""
    return [_in_backward(one) for one in e.shown.recomputed.chains if one]
