"""Terms of the loss that teach nothing, though every parameter may be reached by the others.

Where a recorded cut takes a term's gradient, the finding is that cut's, and says which term it is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkit.core.records import (
    CONSTANT,
    CUT,
    LIKELY,
    LIVE,
    NOT_REVIVED,
    NOT_RUN,
    OBSERVED,
    PROVEN,
    STOPPED,
    WEIGHTLESS,
    Finding,
    Location,
    LossTerm,
    Note,
)  # fmt: skip
from gradkit.core.trace import Chain
from gradkit.diagnosis.experiments.undo_cuts import Rerun
from gradkit.diagnosis.facts.dead_terms import DeadTerm
from gradkit.diagnosis.facts.loss_terms import Term
from gradkit.diagnosis.rules import cut_lines, zeros
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import addends, locations, weights

TERM = "term"


def findings(e: Evidence, told: set[Location | None]) -> list[Finding]:
    """One finding for each line that cuts a term off, or that makes one of nothing that learns.

    Args:
        told: the places of the findings that there are.
    """
    found: dict[object, Finding] = {}
    for dead in e.dead:
        for one in _of_cuts(e, dead) if dead.verdict.cuts else _of_a_constant(e, dead):
            if one.location not in told:
                found.setdefault((one.cause, one.location), one)
    for one in _weightless(e):
        if one.location not in told:
            found.setdefault((one.cause, one.location), one)
    return list(found.values())


def _weightless(e: Evidence) -> Iterator[Finding]:
    """Terms with a weight of zero that nobody has written down: one step alone cannot tell it from a schedule."""
    for term in e.first.terms:
        call = term.weightless
        reason = weights.zero_weight(call.chain, _chain(term), e.files) if call is not None and term.alive else None
        if reason is not None and call is not None:
            spot = locations.innermost(call.chain)
            notes = (Note("weighed", spot),) if spot is not None and spot.line != reason.location.line else ()
            yield Finding(
                "zero_gradient", reason.location, notes, proof=LIKELY, parameters=term.parameters, call=call.name,
                variant=zeros.WEIGHTLESS, facts={TERM: _name(e, term)},
            )  # fmt: skip


def _of_cuts(e: Evidence, dead: DeadTerm) -> Iterator[Finding]:
    alive = e.shown.terms.parameters.get(dead.term.number)
    rerun = Rerun(alive, e.shown.terms.runs) if alive is not None else Rerun()
    shown = replace(e.shown, rerun=rerun)
    for one in cut_lines.findings(replace(e, verdict=dead.verdict, shown=shown)):
        yield _about(e, dead, one)


def _about(e: Evidence, dead: DeadTerm, one: Finding) -> Finding:
    """A finding of a cut, told as one about a term."""
    made, name = _made(dead.term), _name(e, dead.term)
    if dead.of_choices and made is not None and one.location is not None:
        chosen = Note("chosen", one.location, {"call": one.call})
        one = replace(one, location=made, notes=(chosen,), proof=OBSERVED, variant="choices", revived=(), module="")
    notes = one.notes
    spot = one.location
    if made is not None and spot is not None and (made.file, made.line) != (spot.file, spot.line):
        notes = (Note("term", made, {"term": name}), *notes)
    doubt = one.doubt if one.doubt not in (NOT_RUN, NOT_REVIVED) else ""
    proof = one.proof if one.proof == PROVEN or doubt else OBSERVED
    return replace(one, notes=notes, proof=proof, doubt=doubt, facts={**one.facts, TERM: name})


def _of_a_constant(e: Evidence, dead: DeadTerm) -> Iterator[Finding]:
    """A loss function that was asked of nothing that can learn."""
    call, name = dead.term.made, _name(e, dead.term)
    if call is not None:
        yield Finding(
            "constant_loss", _made(dead.term), tuple(called_by(call.chain)), proof=OBSERVED, call=call.name,
            variant=TERM, facts={TERM: name},
        )  # fmt: skip


def rows(e: Evidence) -> tuple[LossTerm, ...]:
    """All terms of the losses of the step, in the order in which they are added; those of one expression as one."""
    dead = {one.term.number: one for one in e.dead}
    found: dict[object, LossTerm] = {}
    for term in e.first.terms:
        one = _row(e, term, dead.get(term.number))
        place = (one.loss, one.state, _chain(term)[:1] or term.number)
        found[place] = _both(found[place], one) if place in found else one
    return tuple(found.values())


def _row(e: Evidence, term: Term, dead: DeadTerm | None) -> LossTerm:
    names = dead.parameters if dead is not None else term.parameters
    if dead is not None:
        state = CUT if dead.verdict.cuts else CONSTANT
    elif term.alive:
        state = WEIGHTLESS if term.weightless else LIVE
    else:
        names = _cut_off(e, term)
        behind = e.trace.sources([term.number])
        flows = any(e.trace.parameters.get(n, -1) in behind for n in e.wanted)
        state = CUT if names else STOPPED if flows else CONSTANT
    return LossTerm(_name(e, term), state, term.value, _made(term), names, term.loss)


def _cut_off(e: Evidence, term: Term) -> tuple[str, ...]:
    """The parameters that get no gradient because of cuts on the way into a term, in the order of the cuts."""
    behind = {call.index for call in e.trace.behind([term.number])}
    cut = (one for one in e.verdict.cuts if behind.intersection(one.calls))
    return tuple(dict.fromkeys(name for one in cut for name in one.parameters))


def _both(known: LossTerm, other: LossTerm) -> LossTerm:
    value = None if known.value is None or other.value is None else known.value + other.value
    names = tuple(dict.fromkeys((*known.parameters, *other.parameters)))
    return replace(known, value=value, parameters=names, count=known.count + 1)


def _chain(term: Term) -> Chain:
    return term.made.chain if term.made is not None else ()


def _made(term: Term) -> Location | None:
    return locations.innermost(term.made.chain) if term.made is not None else None


def _name(e: Evidence, term: Term) -> str:
    """What the source calls a term; of one that is computed in the sum itself its expression: the name is the sum's."""
    if term.made is None:
        return ""
    added = e.trace.calls[term.added].chain if term.added >= 0 else ()
    return addends.name_of(term.made.chain, added)
