"""A straight-through value in a loss that is to pull what it was made from: ``F.mse_loss(z_q, z_e.detach())``.

``z_q = z_e + (z - z_e).detach()`` has the value of ``z`` and the gradient of ``z_e``. A term that detaches ``z_e``, so
that ``z`` is pulled to it, and takes ``z_q`` in the place of ``z``, hands its gradient to ``z_e`` alone. The
straight-through line is then as it should be, and the line of that term is to change: the codebook loss of van den Oord
et al., "Neural Discrete Representation Learning" (2017), is computed from the codes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradkit.core.operations import ADDS
from gradkit.core.records import OBSERVED, STRAIGHT_THROUGH, Finding, Note
from gradkit.core.trace import Call, Trace
from gradkit.diagnosis.facts.cuts import DATA, DETACH, Cut
from gradkit.diagnosis.rules.evidence import Evidence, called_by, line_of
from gradkit.source import locations

_STOPS = frozenset(("detach", "data"))
_VIEWS = frozenset(
    "view view_as reshape reshape_as flatten unflatten squeeze unsqueeze permute transpose movedim contiguous clone "
    "expand t T mT to float double".split()
)


def told(e: Evidence, found: Sequence[Finding]) -> list[Finding]:
    """The findings of cuts; those of a straight-through line as one at the line that takes its result instead.

    What else cuts the same parameters off is left out: it stands on ways that were not meant for them.

    Args:
        found: one finding for each line that cuts.
    """
    cuts = {cut.key: cut for cut in e.verdict.cuts}
    moved: dict[int, Finding] = {}
    for place, one in enumerate(found):
        own = [cuts[key] for key in one.cuts if key in cuts]
        taker = next((call for cut in own for call in _takers(e, cut)), None)
        spot = locations.innermost(taker.chain) if taker is not None else None
        if taker is not None and spot is not None and one.location is not None:
            notes = (Note("straight_through", one.location), *called_by(taker.chain))
            moved[place] = replace(
                one, location=spot, notes=notes, proof=OBSERVED, doubt="", revived=(), call=taker.name,
                variant=STRAIGHT_THROUGH, module="", facts={}, cuts=(),
            )  # fmt: skip
    names = {name for one in moved.values() for name in one.parameters}
    kept = ((place, one) for place, one in enumerate(found) if place in moved or not names.issuperset(one.parameters))
    return [moved.get(place, one) for place, one in kept]


def _takers(e: Evidence, cut: Cut) -> Iterator[Call]:
    """The calls that take the straight-through value whose other part a cut detaches, and its input, detached."""
    if cut.kind not in (DETACH, DATA):
        return
    trace = e.trace
    out = {n for index in cut.calls for n in trace.calls[index].outputs}
    lines = {line_of(trace.calls[index]) for index in cut.calls}
    for call in trace.ahead(out):
        if (
            len(call.inputs) > 1
            and call.grad_on
            and line_of(call) not in lines
            and e.verdict.reaching.intersection(call.outputs)
        ):
            stopped = {n for number in call.inputs for n in _detached(trace, number)}
            if stopped and any(stopped & _carriers(trace, number, out) for number in call.inputs):
                yield call


def _detached(trace: Trace, number: int) -> set[int]:
    """The values that this one is a detached copy of: the input of the ``detach()``, and what that is a view of."""
    seen = trace.forms(number, _VIEWS)
    call = trace.maker(seen[-1])
    if call is None or call.name not in _STOPS or trace.values[number].requires_grad or len(call.inputs) != 1:
        return set()
    return set(trace.forms(call.inputs[0], _VIEWS))


def _carriers(trace: Trace, number: int, out: set[int]) -> set[int]:
    """The value that a straight-through one hands its gradient to, with its views; ``set()`` if it is no such value.

    Args:
        out: what was detached; it must be among what is added up.
    """
    made, live = set[int](), [number]
    while live and trace.values[number].requires_grad and not trace.values[number].leaf:
        call = trace.maker(trace.forms(number, _VIEWS)[-1])
        if call is None or call.name not in ADDS:
            break
        made.update(n for one in call.inputs for n in _added(trace, one))
        live = [n for n in call.inputs if trace.values[n].requires_grad]
        if len(live) != 1:
            return set()
        number = live[0]
    return set(trace.forms(number, _VIEWS)) if made & out else set()


def _added(trace: Trace, number: int) -> set[int]:
    """A value without a history, and all that is added up to it."""
    found, waiting = set[int](), [] if trace.values[number].requires_grad else [number]
    while waiting:
        seen = trace.forms(waiting.pop(), _VIEWS)
        found.update(seen)
        call = trace.maker(seen[-1])
        waiting += [n for n in call.inputs if n not in found] if call is not None and call.name in ADDS else []
    return found
