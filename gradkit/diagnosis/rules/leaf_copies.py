"""Flags that make leaves of what has no history: ``x.detach().requires_grad_()``, ``loss.requires_grad = True``.

What cuts and what makes a leaf of it are one thing to change, as in ``torch.tensor(x, requires_grad=True)``: with the
cut alone undone, the flag would have nothing to do. Where the flag is set on a line of its own, the cut is the fault.
"""

from __future__ import annotations

import ast
import math

from gradkit.core.operations import COPIES, NEW
from gradkit.core.records import OBSERVED, Finding
from gradkit.core.trace import Call, Chain
from gradkit.diagnosis.facts.cuts import DATA, DETACH, Cut
from gradkit.diagnosis.rules.evidence import Evidence, at_one_place, called_by
from gradkit.source import locations

_SAME = COPIES | {"contiguous", "cuda", "view_as"}


def flagged(e: Evidence) -> list[Finding]:
    """A single number without a history that was told to require grad: the error that would come is gone by that."""
    found = []
    for number, chain in e.trace.flagged.items():
        if number not in e.verdict.reaching or math.prod(e.trace.values[number].shape) != 1 or not chain:
            continue
        made = e.trace.calls[e.trace.values[number].maker]
        behind = e.behind([made])
        names = tuple(name for name in e.starved if name in behind)
        if names and made.name not in NEW and not any(is_of(e, number, cut) for cut in e.verdict.cuts):
            notes = tuple(called_by(chain))
            spot = locations.locate(chain[0], whole=True)
            found.append(Finding("new_leaf", spot, notes, proof=OBSERVED, parameters=names, variant="flag"))
    return found


def is_made(e: Evidence, cut: Cut) -> bool:
    """Whether all that a cut hands out becomes leaves that require grad, by a word that stands where it does."""
    if cut.kind not in (DETACH, DATA) or not e.trace.flagged:
        return False
    made = {index for number in e.trace.flagged for index in _cut_by(e, number, cut)}
    return bool(cut.calls) and made.issuperset(cut.calls)


def is_of(e: Evidence, number: int, cut: Cut) -> bool:
    """Whether a value that was told to require grad is such a copy, made by a cut."""
    return is_made(e, cut) and bool(_cut_by(e, number, cut))


def _cut_by(e: Evidence, number: int, cut: Cut) -> set[int]:
    """The calls of a cut, on the line where a value was told to require grad, that it is a copy from."""
    chain, found = e.trace.flagged[number], set()
    call = _maker(e, number) if _is_written(chain) else None
    while call is not None and call.name in _SAME and call.inputs and at_one_place(call.chain, chain):
        if call.index in cut.calls:
            found.add(call.index)
        call = _maker(e, call.inputs[0])
    return found


def _is_written(chain: Chain) -> bool:
    """Whether the flag is set by the line itself, and not within what it calls."""
    node = locations.node_at(chain[0]) if chain else None
    return node is None or "requires_grad" in ast.unparse(node)


def _maker(e: Evidence, number: int) -> Call | None:
    maker = e.trace.values[number].maker
    return e.trace.calls[maker] if maker >= 0 else None
