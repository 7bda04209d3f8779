"""Draws that nothing learns through, where all that else would teach what they are drawn from is weighed by 0.

``torch.normal(mu, std)`` hands on zeros, ``dist.sample()`` nothing at all. A term that reaches the mean by another way
keeps the graph whole: while its weight is 0 the mean stays where it is, and no error tells.

And draws that are scored as they are: with the history of ``rsample()``, the derivative of ``log_prob`` by the mean is
exactly zero, as both shift alike. A policy gradient takes ``sample()``, or detaches what was drawn.
Source: the score function estimator of https://pytorch.org/docs/stable/distributions.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from gradkit.core.operations import RANDOM
from gradkit.core.records import OBSERVED, Finding, Note
from gradkit.core.trace import SAMPLE, Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import locations

DRAWN, SCORED = "sampled", "scored"


def findings(e: Evidence, flats: Iterable[Flat]) -> Iterator[Finding]:
    """A finding for each draw behind which parameters wait whose other ways to the loss are weighed by 0.

    A draw that goes into what is weighed by 0 itself is scored there (``log_prob``), and may be meant as it is.

    Args:
        flats: why gradients are zero, of parameters that should train.
    """
    flats = list(flats)
    yield from _scored(e, [one for one in flats if one.kind == asked.CANCELS])
    for flat in flats:
        weighed = {one.call.index for one in flats if one.kind == asked.WEIGHT and one.parameters == flat.parameters}
        if flat.kind == asked.SAMPLED and not _is_scored(e, flat.call.outputs, weighed):
            yield Finding(
                "zero_gradient", locations.innermost(flat.call.chain), tuple(called_by(flat.call.chain)),
                proof=OBSERVED, parameters=flat.parameters, call=flat.call.name, variant=DRAWN,
            )  # fmt: skip
        elif flat.kind == asked.WEIGHT:
            yield from _sampled(e, flat, weighed)


def _scored(e: Evidence, flats: Sequence[Flat]) -> Iterator[Finding]:
    """Draws whose path to the loss cancels another, which scores the draw by what it was drawn from."""
    for flat in flats:
        made = (flat.call, *e.trace.ahead(flat.call.outputs))
        drawn = {number for call in made for number in call.outputs}
        scoring = next((o.call for o in flats if o.call is not flat.call and drawn.intersection(o.call.inputs)), None)
        spot = locations.innermost(flat.call.chain)
        if scoring is None or spot is None or not _is_random(e, made, scoring):
            continue
        notes = (Note("scored", locations.innermost(scoring.chain)), *called_by(flat.call.chain))
        yield Finding(
            "zero_gradient", spot, notes, proof=OBSERVED, parameters=flat.parameters, call=flat.call.name,
            variant=SCORED,
        )  # fmt: skip


def _is_random(e: Evidence, made: Sequence[Call], scoring: Call) -> bool:
    """Whether random numbers take part in a draw, or in what becomes of it before it is scored."""
    drawing = {call.index for call in made}
    given = {number for call in e.trace.behind(scoring.inputs) if call.index in drawing for number in call.inputs}
    return any(call.name in RANDOM for call in e.trace.behind(given))


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
