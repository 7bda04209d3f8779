"""Stop-gradients that were seen in the run and starve nobody, and why: a log, a target network, a second way.

Never on the way of blaming: what is said here is worked out from the trace after the findings are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradkit.core.operations import ESCAPES, JOINS
from gradkit.core.records import BARREN, Finding, Harmless, Location
from gradkit.core.trace import BLOCK, DECORATOR, INFERENCE, SAMPLE, SWITCH, Call, Region
from gradkit.diagnosis.rules import gradients, zeros
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import frames, locations
from gradkit.tracing.run import is_of_gradients

RETURNED = "returned"
_JOINS_OR_PADS = JOINS | {"pad"}
_TOLD = ("no_label", "no_element")
_STOPS = frozenset(("detach", "detach_", "data", *ESCAPES))
_WORDS = {"__float__": "float", "__array__": "asarray", "__int__": "int", "__index__": "int"}
_REGIONS = {BLOCK: "no_grad", DECORATOR: "no_grad", SWITCH: "no_grad", INFERENCE: "inference_mode", SAMPLE: "sample"}


def harmless_stops(e: Evidence, findings: Iterable[Finding]) -> tuple[Harmless, ...]:
    """The stop-gradients on the user's own lines that starve nobody, one for each line, in the order of the run."""
    if e.trace.loss < 0 or e.mishap is not None or e.reached.error:
        return ()
    findings = list(findings)
    spots = [f.location for f in findings] + [one.location for f in findings for one in f.notes if one.kind in _TOLD]
    blamed = {(spot.file, spot.line) for spot in spots if spot is not None}
    found: dict[tuple[str, int], Harmless] = {}
    for one in (*_zero(e), *zeros.woken(e), *zeros.of_this_step(e), *gradients.intended_hooks(e), *_all(e)):
        place = (one.location.file, one.location.line)
        if place not in blamed and frames.is_user_file(one.location.file):
            found.setdefault(place, one)
    return tuple(found.values())


def _zero(e: Evidence) -> Iterator[Harmless]:
    for one in gradients.zero_loss_terms(e):
        if (spot := locations.innermost(one.call.chain)) is not None:
            yield Harmless("zero", spot, BARREN, one.call.name)


def _all(e: Evidence) -> Iterator[Harmless]:
    flows = _Flows(e)
    for key, calls in _places(e).items():
        region = e.trace.regions[key] if isinstance(key, int) else None
        if region is None and not frames.is_user_file(calls[0].chain[0][0].co_filename):
            continue
        spot = _entered(region) if region is not None else locations.locate(calls[0].chain[0])
        if spot is None:
            continue
        name = calls[0].name
        if region is None and name in _JOINS_OR_PADS:
            why, kind = "constant" if any(_joins_a_constant(e, call) for call in calls) else "", "join"
        else:
            why = RETURNED if region is not None and _makes_what_is_returned(e, calls) else _why(e, calls, flows)
            why = "left" if why == "log" and flows.leaves(calls) else why
            kind = _REGIONS[region.kind] if region is not None else "number" if name in ESCAPES else "detach"
        if why:
            yield Harmless(kind, spot, why, region.via if region is not None else _WORDS.get(name, name))


def _places(e: Evidence) -> dict[object, list[Call]]:
    """What may stop a gradient, in the order of the run: a region's index, or a place in the code, with its calls."""
    found: dict[object, list[Call]] = {}
    written: dict[object, bool] = {}
    first: dict[object, int] = {}
    for index, region in enumerate(e.trace.regions):
        first.setdefault(region.key, index)
    for call in e.trace.calls:
        for index in call.regions:
            found.setdefault(first[e.trace.regions[index].key], []).append(call)
        if not call.regions and call.chain and (call.name in _STOPS or call.name in _JOINS_OR_PADS):
            if call.key not in written:
                written[call.key] = _is_written(call)
            if written[call.key]:
                found.setdefault(call.key, []).append(call)
    return found


class _Flows:
    """What flows where, worked out once for all places.

    Attributes:
        wanted: the values that were computed from parameters that should train.
        starved: likewise from those that starve.
        zero: likewise from those whose gradient is zero.
    """

    def __init__(self, e: Evidence) -> None:
        self.wanted, self.starved = _flow(e, e.wanted), _flow(e, e.starved)
        names = (name for name, norm in e.reached.norms.items() if norm == 0)
        zero = {e.trace.parameters[name] for name in names if name in e.trace.parameters}
        self.zero = zero.union(*(call.outputs for call in e.trace.ahead(zero))) if zero else zero
        self._out = e.trace.sources(n for call in e.trace.calls if call.name in ESCAPES for n in call.inputs)

    def leaves(self, calls: list[Call]) -> bool:
        """Whether what some calls hand out leaves torch: then nobody sees where it goes."""
        return any(call.name in ESCAPES or self._out.intersection(call.outputs) for call in calls)


def _why(e: Evidence, calls: list[Call], flows: _Flows) -> str:
    """Why what these calls stop is not missed; ``""`` if it may be missed, or if there was nothing to stop."""
    inputs = {n for call in calls for n in call.inputs}
    values = e.trace.values
    outputs = {n for call in calls for n in call.outputs if values[n].leaf or not values[n].requires_grad}
    if not outputs:
        return ""
    if not e.verdict.reaching.intersection(outputs):
        if any(call.writes_state for call in calls):
            return "state"
        return "log" if flows.wanted.intersection(inputs) else ""
    if flows.starved.intersection(inputs) or flows.zero.intersection(inputs):
        return ""
    return "other_way" if flows.wanted.intersection(inputs) else "frozen" if _learned(e, inputs) else ""


def _makes_what_is_returned(e: Evidence, calls: list[Call]) -> bool:
    """Whether these calls compute what a step returns that has gone backward of another loss: all without a history.

    What is made of a value with a history, as a copy of the loss that it trained by, is another matter.
    """
    values, behind = e.trace.values, e.trace.sources([e.trace.loss])
    if e.first.trains or e.reached.runs or not e.reached.norms or is_of_gradients(e.trace):
        return False
    if any(values[n].requires_grad and not values[n].leaf for n in behind):
        return False
    return any(behind.intersection(call.outputs) for call in calls)


def _learned(e: Evidence, numbers: Iterable[int]) -> bool:
    """Whether parameters or tensors with a flag are among some values: a stop that stops mere data says nothing."""
    return any(e.trace.values[n].parameter or e.trace.values[n].requires_grad for n in numbers)


def _flow(e: Evidence, names: Iterable[str]) -> set[int]:
    """Every value that was computed from the named parameters, by whatever way."""
    numbers = {e.trace.parameters[name] for name in names if name in e.trace.parameters}
    shared = {e.trace.values[n].parameter for n in numbers}
    flowing = {n for n, value in enumerate(e.trace.values) if value.parameter and value.parameter in shared}
    return flowing.union(*(call.outputs for call in e.trace.ahead(flowing)))


def _entered(region: Region) -> Location | None:
    """Where the user's code entered a region; None if a library's code did."""
    if region.kind not in _REGIONS or (region.via and region.kind != SAMPLE):
        return None
    if region.place is not None:
        return region.place
    return locations.innermost(region.chain)


def _is_written(call: Call) -> bool:
    """Whether the call stands on the user's line as such, and was not made by a library in passing."""
    return locations.word_at(call.chain) in (call.name, _WORDS.get(call.name))


def _joins_a_constant(e: Evidence, call: Call) -> bool:
    """Whether what requires grad is joined with what was made in the step from nothing, as padding is."""
    values = [e.trace.values[n] for n in call.inputs]
    made = [e.trace.calls[v.maker] for v in values if v.maker >= 0 and not v.requires_grad]
    return any(v.requires_grad for v in values) and any(not maker.inputs for maker in made)
