"""Gradients that are exactly zero in this run and stay so: what they are multiplied by, and who set that to zero.

A zero from which the next steps lead away is meant, and told as harmless. One that hangs on the batch or on a weight
may pass with a later step (``causes.may_pass``): of a single step it is no fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from torch import nn

from gradkit.core import causes
from gradkit.core.operations import FROM_PLAIN
from gradkit.core.records import LIKELY, OBSERVED, Finding, Harmless, Location, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules import beyond_bounds, drawn, masked_labels, padding
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import attributes, frames, locations, weights, zeros
from gradkit.witness.deeds import CREATED, WRITTEN, Deed

DEADLOCK, HELD, INACTIVE, SILENCED, CLAMPED, EXTINCT, ITSELF, WEIGHTLESS, MASKED, NO_VARIANCE, BEYOND, OUTSIDE = (
    "deadlock", "held", "inactive", "silenced", "clamped", "extinct", "itself", "weightless", "masked", "no_variance",
    "beyond", "outside",
)  # fmt: skip
SATURATED, UNDERFLOW, PARKED = "saturated", "underflow", "parked"
WAKES = "wakes"
_DEEPEST = 6
Stuck = dict[str, list[str]]
_SLOPES = dict.fromkeys("relu relu_ threshold relu6 gelu silu mish elu celu selu softplus leaky_relu".split(), INACTIVE)
_BOUNDS = ("clamp", "clip", "hard", "maximum", "minimum", "sigmoid", "tanh", "softmax", "fake_quantize")
_LAYERS = frozenset("linear addmm mm matmul __matmul__ bmm baddbmm einsum conv1d conv2d conv3d".split())
_HANDS_ON = frozenset(  # no scale: a temperature that has been lowered to its end makes a choice hard on purpose
    "view reshape flatten squeeze unsqueeze transpose permute t chunk split unbind __getitem__ contiguous to float "
    "double neg __neg__".split()
)
_TESTS = frozenset(
    "eq ne gt lt ge le __eq__ __ne__ __gt__ __lt__ __ge__ __le__ isin isfinite isnan logical_and logical_or "
    "logical_not __and__ __or__ __invert__ bitwise_not bitwise_and bitwise_or equal".split()
)
_DIFFERENCES = frozenset("sub __sub__ __isub__ sub_ rsub __rsub__ std var diff".split())
_COMPARISONS = frozenset(
    "sub __sub__ __isub__ sub_ rsub __rsub__ mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits cross_entropy nll_loss poisson_nll_loss gaussian_nll_loss kl_div".split()
)
_CONSTANTS = frozenset("fill_ zero_ copy_".split())
_COPIES = frozenset("detach clone data contiguous float to".split())
_DRAWN = (nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
_SQUASHES = frozenset("sigmoid sigmoid_ tanh tanh_".split())


def findings(e: Evidence) -> list[Finding]:
    """One finding for each place that holds a gradient at zero, in the order of the run."""
    found: dict[object, Finding] = {}
    stuck = _stuck(e)
    flats = [
        replace(flat, parameters=wanted)
        for flat in sorted(e.shown.zeros.flat, key=lambda one: one.call.index)
        if (wanted := tuple(name for name in flat.parameters if name in e.wanted))
    ]
    made = [*drawn.findings(e, flats), *(_finding(e, flat, stuck) for flat in flats)]
    for one in filter(None, made):
        place = one.location or (one.variant, one.call)
        known = found.get(place)
        names = tuple(dict.fromkeys((*(known.parameters if known else ()), *one.parameters)))
        found[place] = replace(known or one, parameters=names)
    return list(found.values())


def woken(e: Evidence) -> Iterator[Harmless]:
    """What starts at zero on purpose, and hands gradients on after a step."""
    for name in e.shown.zeros.woken:
        spot, _ = attributes.definition(e.way_to(name), e.files, e.built_on(name))
        if spot is not None:
            yield Harmless("zero", spot, WAKES, name)


def of_this_step(e: Evidence) -> Iterator[Harmless]:
    """What holds a gradient at zero in this step, and may not do so in another."""
    for one in findings(e):
        passing = one.variant in causes.cause(one.cause).passing and one.variant != WEIGHTLESS
        if passing and one.location is not None:
            yield Harmless("zero", one.location, f"zero_{one.variant}", one.call)


def _finding(e: Evidence, flat: Flat, stuck: Stuck) -> Finding | None:
    if flat.kind == asked.WEIGHT:
        return _weightless(e, flat)
    if flat.kind == asked.PADDED or flat.padded:
        return padding.told(e, flat)
    if flat.kind in (asked.INACTIVE, asked.CLAMPED, asked.OUTSIDE):
        return _flat_slope(e, flat.kind, flat.call, flat)
    if flat.kind == asked.IGNORED:
        return _without_labels(e, flat)
    if flat.kind == asked.MASKED:
        return _plain(MASKED, flat.call, flat)
    if flat.kind == asked.ITSELF:
        return _plain(ITSELF, flat.call, flat) if _is_compared_with_itself(e, flat.call) else None
    return _of_a_factor(e, flat, stuck) if flat.origin >= 0 else None


def _weightless(e: Evidence, flat: Flat) -> Finding:
    """A number of Python's that is zero; where the source tells why it is, that is the place."""
    values, found = e.trace.values, _plain(WEIGHTLESS, flat.call, flat)
    makers = [values[n].maker for n in flat.call.inputs if values[n].requires_grad]
    weighed = e.trace.calls[makers[0]].chain if makers and makers[0] >= 0 else ()
    reason = weights.zero_weight(flat.call.chain, weighed, e.files)
    if reason is None:
        return found
    notes = (Note("weighed", found.location), *found.notes) if found.location != reason.location else found.notes
    return replace(found, location=reason.location, notes=notes, proof=LIKELY)


def _plain(variant: str, call: Call, flat: Flat, notes: Iterable[Note] = ()) -> Finding:
    return Finding(
        "zero_gradient", locations.innermost(call.chain), (*notes, *called_by(call.chain)), proof=OBSERVED,
        parameters=flat.parameters, call=call.name, variant=variant,
    )  # fmt: skip


def _without_labels(e: Evidence, flat: Flat) -> Finding:
    """No label counts: with the lines that take labels out, as far as they are found."""
    lines = masked_labels.lines(e, flat.call)
    return _plain(MASKED, flat.call, flat, [Note("ignored_here", line) for line in lines[:3]])


# -- a factor ---------------------------------------------------------------------------------------------------------


def _of_a_factor(e: Evidence, flat: Flat, stuck: Stuck) -> Finding | None:
    """What made the zero that something is multiplied by."""
    value = e.trace.values[flat.origin]
    if value.parameter:
        name = e.trace.named(value.parameter)
        if name in stuck and value.requires_grad:
            return _held_by_each_other(e, flat, stuck[name])
        return None if value.requires_grad else _held(e, flat, name)
    if value.buffer or value.attribute:
        return _held(e, flat, value.buffer or value.attribute)
    return _made(e, flat, e.trace.calls[value.maker]) if value.maker >= 0 else _plain(MASKED, flat.call, flat)


def _made(e: Evidence, flat: Flat, call: Call) -> Finding | None:
    kind = _SLOPES.get(call.name) or (CLAMPED if call.name.startswith(_BOUNDS) else "")
    if kind:
        return _flat_slope(e, kind, call, flat)
    if call.name in _TESTS:
        return _plain(MASKED, call, flat)
    if call.name in _DIFFERENCES or call.name in FROM_PLAIN:
        return _plain(NO_VARIANCE, call, flat)
    if not call.inputs:
        return _plain(HELD, call, flat)
    return _plain(MASKED, flat.call, flat)


def _held(e: Evidence, flat: Flat, name: str) -> Finding:
    """A factor that nothing trains."""
    spot, notes = _zeroed(e, name), _used(flat.call)
    found = _plain(HELD, flat.call, flat)
    if spot is not None:
        found = replace(found, location=spot, notes=tuple(notes))
    return replace(found, facts={"name": name})


def _held_by_each_other(e: Evidence, flat: Flat, stuck: Sequence[str]) -> Finding:
    """Factors that train, each of which waits for the other: the one that is applied first is to be changed."""
    name = min(stuck, key=lambda one: _applied(e, one))
    others = [other for other in stuck if other != name]
    spot = _zeroed(e, name)
    beside = (_zeroed(e, other) for other in others)
    notes = [Note("zero_too", one) for one in dict.fromkeys(beside) if one is not None and one != spot]
    found = _plain(DEADLOCK, flat.call, flat, notes[:3])
    if spot is not None:
        found = replace(found, location=spot, notes=tuple(notes[:3]))
    return replace(found, facts={"name": name, "other": others[0] if others else name})


def _applied(e: Evidence, name: str) -> int:
    """The index of the first call that computes with a parameter and something else: not that of its tanh or its t."""
    met = e.trace.meeting([e.trace.parameters[name]])
    return next((call.index for call, _ in met), len(e.trace.calls))


def _used(call: Call) -> list[Note]:
    spot = locations.innermost(call.chain)
    return [Note("multiplied", spot)] if spot is not None else []


def _stuck(e: Evidence) -> Stuck:
    """The trained factors that are zero and whose own gradient stays zero, each with those that it waits for."""
    held = [(_origin(e, flat), flat.parameters) for flat in e.shown.zeros.flat]
    still = {name for _, names in held for name in names}
    groups = {origin: {origin} for origin, _ in held if origin in still}
    for origin, names in held:
        for name in names:
            if origin in groups and name in groups:
                joined = groups[origin] | groups[name]
                groups.update(dict.fromkeys(joined, joined))
    return {name: sorted(group) for name, group in groups.items()}


def _origin(e: Evidence, flat: Flat) -> str:
    """The parameter that was the first zero on the way, ``""`` if it was none."""
    first = e.trace.values[flat.origin].parameter if flat.origin >= 0 else ""
    return e.trace.named(first) if first else ""


def _zeroed(e: Evidence, name: str) -> Location | None:
    """The line that was seen to fill something with zeros; else the one that defines it."""
    deeds = e.seen.parameters.get(name, ())
    zeroed = [d for d in deeds if d.kind == WRITTEN and d.facts.get("zero") and d.chain]
    spot = _innermost(zeroed[-1]) if zeroed else None
    spot = spot or zeros.filling_line(e.way_to(name), e.files)
    made = [d for d in deeds if d.kind == CREATED and d.chain] if spot is None else []
    spot = spot or (_innermost(made[0]) if made else None)
    owner = next((cls for cls, part in reversed(e.way_to(name)) if part == name.rpartition(".")[2]), None)
    spot = spot or (attributes.registered_buffer(owner, name.rpartition(".")[2]) if owner is not None else None)
    if spot is None and _is_drawn(owner, name):
        return zeros.only_filling(e.files)
    spot = spot or attributes.definition(e.way_to(name), e.files, ())[0]
    return (zeros.made_in_helper(spot, e.files) or spot) if spot is not None else None


def _is_drawn(owner: type | None, name: str) -> bool:
    """Whether a layer of torch's draws a parameter at random, so that the line that builds it has not made it zero."""
    return owner in _DRAWN and name.endswith("weight")


def _innermost(deed: Deed) -> Location | None:
    return locations.locate(deed.chain[0], whole=True)


# -- a slope ----------------------------------------------------------------------------------------------------------


def _flat_slope(e: Evidence, variant: str, call: Call, flat: Flat) -> Finding | None:
    """An activation or a bound that nothing gets past; what was seen to set the weights before it is named."""
    if _is_zero(e.first.value):
        return None  # a hinge that holds everywhere has nothing more to teach
    found = _plain(variant, call, flat)
    name = beyond_bounds.parameter_of(e, flat, call)
    if name:
        return replace(found, variant=BEYOND, facts={"name": name})
    deed = _set_before(e, call)
    if deed is None and flat.far and call.name in _SQUASHES and _is_of_parameters_alone(e, call):
        return replace(found, variant=PARKED)
    if deed is None and flat.pulled and _is_of_a_layer(e, call) and _nothing_before_moves(e, call):
        return replace(found, variant=SATURATED)
    if deed is None:
        ended = UNDERFLOW if variant == OUTSIDE else EXTINCT
        return replace(found, variant=ended) if flat.far and _ends_it_all(e, call) else found
    return replace(
        found, location=_innermost(deed), notes=(*_flat_here(call), *called_by(deed.chain)), proof=LIKELY,
        variant=SILENCED,
    )  # fmt: skip


def _is_of_parameters_alone(e: Evidence, call: Call) -> bool:
    """Whether no batch takes part in what a call is given: another one would change nothing."""
    values = [e.trace.values[n] for n in e.trace.sources(call.inputs)]
    begun = [one for one in values if one.maker < 0 and not one.python]
    return any(one.parameter for one in begun) and all(one.parameter or one.buffer for one in begun)


def _is_of_a_layer(e: Evidence, call: Call) -> bool:
    """Whether a call is given what a layer puts out as it is: no mask is added, and no temperature scales it."""
    values = e.trace.values
    for _ in range(_DEEPEST):
        makers = [
            e.trace.calls[values[n].maker] for n in call.inputs if values[n].requires_grad and values[n].maker >= 0
        ]
        if len(makers) != 1:
            return False
        call = makers[0]
        if call.name in _LAYERS:
            return any(values[n].parameter for one in (call, *e.trace.behind(call.inputs)) for n in one.inputs)
        if call.name not in _HANDS_ON:
            return False
    return False


def _nothing_before_moves(e: Evidence, call: Call) -> bool:
    """Whether every parameter before a call has a gradient of zero, or none: no other part of the loss moves them."""
    return not any(e.reached.norms.get(name) for name in e.behind([call]))


def _ends_it_all(e: Evidence, call: Call) -> bool:
    """Whether nothing that should train gets a gradient, though what comes out is compared with a target."""
    if not all(e.reached.norms.get(name) == 0 for name in e.wanted):
        return False
    values, flowing = e.trace.values, set(call.outputs)
    for after in e.trace.ahead(call.outputs):
        others = [values[n] for n in after.inputs if n not in flowing and not values[n].requires_grad]
        if after.name in _COMPARISONS and any(math.prod(one.shape) > 1 and not one.python for one in others):
            return True
        flowing.update(after.outputs)
    return False


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False


def _flat_here(call: Call) -> list[Note]:
    spot = locations.innermost(call.chain)
    return [Note("flat_here", spot, {"call": call.name})] if spot is not None else []


def _set_before(e: Evidence, call: Call) -> Deed | None:
    """What was seen to write constants into the parameters of the call right before."""
    names = set[str]()
    numbers, left = list(call.inputs), 4
    while numbers and not names and left:
        makers = {e.trace.values[n].maker for n in numbers} - {-1}
        numbers = [n for maker in makers for n in e.trace.calls[maker].inputs]
        names = {e.trace.named(e.trace.values[n].parameter) for n in numbers if e.trace.values[n].parameter}
        left -= 1
    deeds = [d for name in sorted(names) for d in e.seen.parameters.get(name, ()) if d.kind == WRITTEN and d.chain]
    mine = [d for d in deeds if d.facts.get("by") in _CONSTANTS and not d.facts.get("zero")]
    mine = [d for d in mine if frames.is_user_file(d.chain[0][0].co_filename)]
    return max(mine, key=lambda deed: deed.order, default=None)


def _is_compared_with_itself(e: Evidence, call: Call) -> bool:
    """Whether both sides of a difference are one value: itself, or a copy without its history."""
    seen = {_original(e, number) for number in call.inputs}
    if len(call.inputs) > 1:
        return len(seen) == 1
    before = e.trace.maker(call.inputs[0]) if call.inputs else None
    return before is not None and before.name in _DIFFERENCES and _is_compared_with_itself(e, before)


def _original(e: Evidence, number: int) -> int:
    return e.trace.forms(number, _COPIES)[-1]
