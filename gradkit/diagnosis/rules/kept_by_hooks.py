"""What a hook of backward keeps for the loss of a later step: it has no history, for hooks run where none is recorded.

Either the hook computes something of parameters, which a run of two steps shows; or it keeps a gradient as it is, and
the loss is made of that alone, which the source shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradkit.core.records import LIKELY, NOT_REVIVED, PROVEN, READ, Finding
from gradkit.diagnosis.experiments.caches import CachedValue
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by
from gradkit.source import in_hooks, locations

CAUSE = "create_graph_missing"
LATER, KEPT = "later", "kept"


def findings(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """One finding for each line in a hook by which some of these parameters are lost to the loss of a later step.

    Args:
        names: those from which nothing flows into the loss.
    """
    return by_line(_computed(e, names)) or by_line(_gradients(e, names))


def _computed(e: Evidence, names: Sequence[str]) -> Iterator[Finding]:
    for one in e.shown.later.of_hooks:
        mine = tuple(name for name in one.parameters if name in names)
        revived = tuple(name for name in mine if name in one.revived)
        proven = len(revived) == len(mine)
        if mine:
            yield Finding(
                CAUSE, locations.innermost(one.call.chain), tuple(called_by(one.call.chain)),
                proof=PROVEN if proven else LIKELY, doubt="" if proven else NOT_REVIVED, parameters=mine,
                call=one.call.name, revived=revived, reruns=e.reruns, variant=LATER,
            )  # fmt: skip


def _gradients(e: Evidence, names: Sequence[str]) -> Iterator[Finding]:
    """The loss is made of nothing but gradients that hooks have kept from before."""
    if e.trace.loss < 0 or any(e.trace.values[n].parameter for n in e.verdict.reaching):
        return
    for kept in e.shown.caches.kept:
        spots = in_hooks.stored(kept.name, e.files, kept.owner, kept.reader) if _makes_the_loss(e, kept) else []
        for spot in spots:
            yield Finding(CAUSE, spot, proof=LIKELY, doubt=READ, parameters=tuple(names), variant=KEPT)


def _makes_the_loss(e: Evidence, kept: CachedValue) -> bool:
    """Whether nothing made a loss without a value: it is no bare number that some other thing is scaled by."""
    values = e.trace.values
    others = {
        n for n in e.verdict.reaching
        if values[n].maker < 0 and values[n].floating and not values[n].python and n not in kept.numbers
    }  # fmt: skip
    return not kept.connected and (not others or any(math.prod(values[n].shape) > 1 for n in kept.numbers))
