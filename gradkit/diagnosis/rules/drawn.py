"""Draws that nothing learns through, where all that else would teach what they are drawn from is weighed by 0.

``torch.normal(mu, std)`` hands on zeros, ``dist.sample()`` nothing at all. A term that reaches the mean by another way
keeps the graph whole: while its weight is 0 the mean stays where it is, and no error tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gradkit.core.records import OBSERVED, Finding
from gradkit.core.trace import SAMPLE, Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import locations

DRAWN = "sampled"


def findings(e: Evidence, flats: Iterable[Flat]) -> Iterator[Finding]:
    """A finding for each draw behind which parameters wait whose other ways to the loss are weighed by 0.

    A draw that goes into what is weighed by 0 itself is scored there (``log_prob``), and may be meant as it is.

    Args:
        flats: why gradients are zero, of parameters that should train.
    """
    flats = list(flats)
    for flat in flats:
        weighed = {one.call.index for one in flats if one.kind == asked.WEIGHT and one.parameters == flat.parameters}
        if flat.kind == asked.SAMPLED and not _is_scored(e, flat.call.outputs, weighed):
            yield Finding(
                "zero_gradient", locations.innermost(flat.call.chain), tuple(called_by(flat.call.chain)),
                proof=OBSERVED, parameters=flat.parameters, call=flat.call.name, variant=DRAWN,
            )  # fmt: skip
        elif flat.kind == asked.WEIGHT:
            yield from _sampled(e, flat, weighed)


def _sampled(e: Evidence, flat: Flat, weighed: Collection[int]) -> Iterator[Finding]:
    """The calls of ``sample()`` that parameters flow into, and that go on to the loss past what is weighed by 0."""
    for index, calls in _draws(e).items():
        behind = e.behind(calls)
        names = tuple(name for name in flat.parameters if name in behind)
        outputs = [n for call in calls for n in call.outputs if e.trace.values[n].floating]
        if names and outputs and not _is_scored(e, outputs, weighed) and _reaches(e, outputs):
            chain = e.trace.regions[index].chain
            spot = locations.innermost(chain)
            if spot is not None:
                notes = tuple(called_by(chain))
                yield Finding("non_differentiable_op", spot, notes, proof=OBSERVED, parameters=names, call="sample")


def _draws(e: Evidence) -> dict[int, list[Call]]:
    """The calls inside of each ``Distribution.sample()``, by the index of its region."""
    found: dict[int, list[Call]] = {}
    for call in e.trace.calls:
        for index in call.regions:
            if e.trace.regions[index].kind == SAMPLE:
                found.setdefault(index, []).append(call)
    return found


def _is_scored(e: Evidence, drawn: Iterable[int], weighed: Collection[int]) -> bool:
    return any(call.index in weighed for call in e.trace.ahead(drawn))


def _reaches(e: Evidence, drawn: Iterable[int]) -> bool:
    return bool(e.verdict.reaching.intersection(drawn))
