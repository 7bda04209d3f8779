"""Weights that are made of what was chosen, where the scores were to weigh it: the router of a mixture of experts.

The indices of ``topk`` and ``argmax`` never carry a gradient, and are right so. If ones are put in their places, and
experts are multiplied by these, the line that makes the ones is to take the scores instead.
"""

from __future__ import annotations

from dataclasses import replace

from gradkit.core.operations import NEW
from gradkit.core.records import Finding, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.facts.cuts import OPERATION, Cut
from gradkit.diagnosis.rules.evidence import Evidence, line_of
from gradkit.source import locations

WEIGHTS = "weights"
_PICKS = frozenset("topk argmax argsort sort max".split())
_MARKS = frozenset("one_hot eq __eq__".split())
_SCATTERS = frozenset("scatter scatter_ index_fill index_fill_".split())
_LOOKS_UP = frozenset("__getitem__ index_select gather take embedding where masked_select masked_fill".split())
_PRODUCTS = frozenset("mul mul_ multiply einsum".split())
_OF_BATCHES = frozenset("matmul bmm __matmul__".split())
_BATCHED = 3  # dimensions of what each row of a batch has its own of: a table that all rows share has two


def told(e: Evidence, cut: Cut, found: Finding) -> Finding:
    """A finding about indices, at the line that makes weights of them, if one does and something is weighed by it."""
    calls = [e.trace.calls[index] for index in cut.calls]
    if cut.kind != OPERATION or not calls or any(call.name not in _PICKS for call in calls):
        return found
    made = {line_of(call): call for call in _weighing(e, calls)}
    spot = locations.innermost(next(iter(made.values())).chain) if len(made) == 1 else None
    if spot is None or found.location is None or (spot.file, spot.line) == (found.location.file, found.location.line):
        return found
    chosen = Note("chosen", found.location, {"call": found.call})
    return replace(found, location=spot, notes=(chosen,), variant=WEIGHTS)


def _weighing(e: Evidence, picks: list[Call]) -> list[Call]:
    """The calls that put ones in the places of chosen indices, if something alive is multiplied by these."""
    values = e.trace.values
    indices = {n for call in picks for n in call.outputs if not values[n].floating}
    made: dict[int, Call] = {}  # by the number of what was made of it
    found: dict[int, Call] = {}
    for call in e.trace.calls:
        hot = next((made[n] for n in call.inputs if n in made), None)
        if hot is None and indices.intersection(call.inputs):
            hot = call if _marks(e, call) else None
            if hot is None and not any(values[n].floating for n in call.outputs):
                indices.update(call.outputs)
        if hot is None or (hot is not call and call.name in _LOOKS_UP and not _is_part(call, made)):
            continue
        if not any(values[n].requires_grad for n in call.outputs):
            made.update(dict.fromkeys(call.outputs, hot))
        elif _multiplies(e, call, made) and hot.chain:
            found[hot.index] = hot
    return list(found.values())


def _marks(e: Evidence, call: Call) -> bool:
    """Whether a call makes of indices what holds ones in their places, and nothing of any other value."""
    if call.name in _MARKS:
        return True
    bases = [e.trace.calls[e.trace.values[n].maker] for n in call.inputs if e.trace.values[n].maker >= 0]
    if call.name in _SCATTERS:
        alive = any(e.trace.values[n].requires_grad for n in (*call.inputs, *call.outputs))
        return not alive and any(one.name in NEW or one.name.startswith("zeros") for one in bases)
    return call.name == "__getitem__" and any(one.name == "eye" for one in bases)


def _is_part(call: Call, made: dict[int, Call]) -> bool:
    """Whether a call takes a part of the ones, rather than of something else by them."""
    return any(n in made for n in call.inputs[:1])


def _multiplies(e: Evidence, call: Call, made: dict[int, Call]) -> bool:
    """Whether a call multiplies what modules have computed."""
    others = [e.trace.values[n] for n in call.inputs if n not in made]
    alive = [one for one in others if one.requires_grad and not one.parameter and not one.leaf]
    if call.name in _OF_BATCHES:
        alive = [one for one in alive if len(one.shape) >= _BATCHED]
    return bool(alive) and call.name in _PRODUCTS | _OF_BATCHES
