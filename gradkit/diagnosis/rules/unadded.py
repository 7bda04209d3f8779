"""An entry of a dictionary of losses that nobody adds, while the other terms reach every parameter.

It moves nothing, and no gradient is missing that would tell of it. Blamed is only what is computed for nothing: it
stands beside entries that are added, its key stands nowhere else in the source, and no line reads the dictionary as a
whole or the number itself. Of any other it is said that no loss takes it in: it may be for the log, or have its turn in
another step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import LIKELY, Finding, Location, Note, Unadded
from gradkit.core.trace import Call
from gradkit.diagnosis.facts import loss_terms
from gradkit.diagnosis.rules import left_out_terms
from gradkit.diagnosis.rules.evidence import Evidence, same_line
from gradkit.diagnosis.rules.left_out_terms import WORDS
from gradkit.source import closed_entries, dataflow, locations
from gradkit.source.closed_entries import Put

VARIANT, TERM = "unadded", "term"
_MOST = 8


@dataclass(frozen=True)
class _Entry:
    """An entry that no loss takes in.

    Attributes:
        call: what made it.
        put: where it is put into the dictionary.
        beside: the keys of those that a loss takes in.
        parameters: those that it would hand a gradient to.
        read: something reads its number, or a copy of it.
    """

    call: Call
    put: Put
    beside: tuple[str, ...]
    parameters: tuple[str, ...]
    read: bool


def are_any(e: Evidence) -> bool:
    """Whether there are entries that no loss takes in."""
    return next(_entries(e), None) is not None


def findings(e: Evidence, told: Iterable[Finding]) -> list[Finding]:
    """One for each entry that is computed for nothing.

    Args:
        told: the findings that there are: what they name is not said to be reached besides.
    """
    starved = {name for one in told for name in one.parameters}
    found = []
    for one in _entries(e):
        spot = _added_at(e, one)
        if spot is not None and _is_for_nothing(e, one) and starved.isdisjoint(one.parameters):
            made = locations.innermost(one.call.chain)
            notes = (Note("left_out_term", made, {"name": one.put.key}),) if made and not same_line(made, spot) else ()
            facts = {TERM: one.put.key, "name": one.put.key}
            found.append(
                Finding(
                    "trainable_unused", spot, notes, proof=LIKELY, parameters=one.parameters, variant=VARIANT,
                    facts=facts,
                )
            )  # fmt: skip
    return found


def left(e: Evidence, told: Iterable[Finding]) -> tuple[Unadded, ...]:
    """The entries that may be meant to stay out of the loss of this step, by their keys; not those that are told of."""
    named = {one.facts.get("name", "") for one in told}
    places = ((one.put.key, locations.innermost(one.call.chain)) for one in _entries(e) if one.put.key not in named)
    return tuple(dict.fromkeys(Unadded(key, spot) for key, spot in places if spot is not None))


def _entries(e: Evidence) -> Iterator[_Entry]:
    if e.mishap is not None or e.trace.loss < 0 or e.rivals:
        return
    taken = e.trace.sources(e.first.losses)
    made = [one for one in _numbers(e) if one[1] not in taken]
    if not made or len(made) > _MOST:
        return
    added = [(c, p) for c, n in _numbers(e) if n in taken and (p := closed_entries.put(c.chain))]
    for call, number in made:
        put, users = closed_entries.put(call.chain), e.trace.using([number])
        if put is None or any(not _is_read_out(e, one) or _is_put(call, one) for one in users):
            continue
        beside = {p.key for _, p in added if (p.code, p.held) == (put.code, put.held)} - {put.key}
        names = _reached_by(e, number)
        if beside and names and not set(names) & set(e.starved) and _is_a_loss(e, call, put, names):
            yield _Entry(call, put, tuple(beside), names, bool(users))


def _numbers(e: Evidence) -> Iterator[tuple[Call, int]]:
    """Every single number with a history, as the source of the user's own makes it, with its call."""
    for call in e.trace.calls:
        for number in call.outputs:
            value = e.trace.values[number]
            if value.requires_grad and value.floating and not value.leaf and call.chain and _size(value.shape) == 1:
                yield call, number


def _size(shape: Iterable[int]) -> int:
    size = 1
    for one in shape:
        size *= one
    return size


def _is_read_out(e: Evidence, call: Call) -> bool:
    """Whether a call only takes the number out, or a copy without its history."""
    return not any(e.trace.values[n].requires_grad for n in call.outputs)


def _is_put(call: Call, user: Call) -> bool:
    """Whether it is what is made of a number in the same statement that is put into the dictionary."""
    points = [one.chain[0] for one in (call, user) if one.chain]
    found = [dataflow.statement_at(code, locations.line_of((code, at))) for code, at in points]
    return len(found) > 1 and found[0] is found[1]


def _reached_by(e: Evidence, number: int) -> tuple[str, ...]:
    behind = (e.trace.values[n].parameter for n in loss_terms.leaves_behind(e.trace, [number])[0])
    return tuple(name for name in dict.fromkeys(behind) if name in e.wanted)


def _is_a_loss(e: Evidence, call: Call, put: Put, names: tuple[str, ...]) -> bool:
    """Whether the source calls it a loss, by its key or the name of the dictionary, or a loss function has made it."""
    if any(WORDS.search(word) for word in (put.key, put.held.rpartition(".")[2])):
        return True
    return left_out_terms.is_for_a_loss(e, e.flow_from(names), call)


def _is_for_nothing(e: Evidence, one: _Entry) -> bool:
    """Whether nothing reads it, and nobody can: its key is named nowhere else, where keys of those beside it are."""
    if one.read or closed_entries.named(e.files, one.put.key) or closed_entries.goes_through(one.call.chain):
        return False
    chosen = any(closed_entries.named(e.files, key) for key in one.beside)
    return chosen and closed_entries.is_closed(one.call.chain, one.put)


def _added_at(e: Evidence, one: _Entry) -> Location | None:
    """The line that adds up the others, or picks one of them."""
    return left_out_terms.without(e, one.call, one.beside)
