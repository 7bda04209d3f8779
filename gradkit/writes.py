"""Of a region without recording: whether all that comes out of it was written into tensors that stood there before."""

from __future__ import annotations

from gradkit import calls
from gradkit.evidence import Evidence
from gradkit.traces import BLOCK, DECORATOR, PRESET, SWITCH, Call


def out_of(e: Evidence, region: int, inside: tuple[int, ...]) -> list[Call]:
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
    last = [call for call in lost if _is_used(e, call, region)]
    if not last or not all(_stood_before(e, call, region) for call in last):
        return []
    return [call for call in lost if _target(call) and any(_flows(e, n, region) for n in _sources(call))]


def _is_used(e: Evidence, call: Call, region: int) -> bool:
    """Whether what a call hands out is used outside of a region."""
    users = e.trace.using(call.outputs)
    return e.trace.loss in call.outputs or any(region not in user.regions for user in users)


def _sources(call: Call) -> set[int]:
    return set(call.inputs) - set(_target(call))


def _flows(e: Evidence, number: int, region: int) -> bool:
    """Whether a value has a history, or lost it in this region."""
    value = e.trace.values[number]
    return value.requires_grad or (value.maker >= 0 and region in e.trace.calls[value.maker].regions)


def _target(call: Call) -> tuple[int, ...]:
    """The value that a call writes into, if it writes."""
    if call.name.endswith(calls.INTO):
        return call.inputs[-1:]
    return call.inputs[:1] if calls.writes(call.name) else ()


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
