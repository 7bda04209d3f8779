"""Parameters that are frozen by a condition on their names: the condition that lets them in, or was to spare them.

A text that is to spare some may be in no name at all, stand elsewhere in it, or be handed over by a caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradkit.core.records import LIKELY, Finding, Location, Note
from gradkit.diagnosis.rules.evidence import Evidence, same_line
from gradkit.source import freezing, setup


def by_condition(e: Evidence, found: Finding) -> Finding:
    """The same finding, with the condition on names that let the parameters in, or was to spare them and does not.

    Args:
        found: of parameters that are frozen, at the line that froze them.
    """
    spot, names = found.location, found.parameters
    chosen = choosing(e, spot) if spot is not None else None
    if spot is None or chosen != spot:
        return replace(found, location=chosen)
    spared = freezing.exception_missing(spot, names)
    if spared is not None and found.cause == "frozen_all":
        notes = (*found.notes, Note("frozen_there", spot))
        return replace(found, location=spared, notes=notes, variant="unspared", facts={"name": names[0]})
    told = freezing.letting_in(spot, names)
    notes = (Note("let_in", told[0], {"text": told[1]}),) if told is not None else ()
    return replace(found, notes=(*found.notes, *notes))


def spared_in_vain(e: Evidence, names: Sequence[str], others: Sequence[Location | None]) -> list[Finding]:
    """Where all is frozen, and one line was to let some of it learn by a text that no name holds: that line.

    Args:
        names: the parameters that are frozen.
        others: the lines that froze them.

    Returns:
        ``[]`` where something may learn, or where there is no such line, or more than one.
    """
    if any(row.requires_grad for row in e.rows) or not names:
        return []
    lines = freezing.sparing_nothing(e.files, [row.name for row in e.rows])
    if len(lines) != 1:
        return []
    spot, text = lines[0]
    if choosing(e, spot) != spot:
        return []  # a caller told it to look for what is not there
    notes = tuple(Note("frozen_there", one) for one in others[:3] if one is not None and not same_line(one, spot))
    return [
        Finding(
            "frozen_all", spot, notes, proof=LIKELY, parameters=tuple(names), variant="in_vain", facts={"name": text}
        )
    ]


def choosing(e: Evidence, spot: Location) -> Location:
    """Where a function freezes what it is not to spare, the call that told it to spare what no name in the model is."""
    if spot.function and not any(row.requires_grad for row in e.rows):
        told = [*e.facts.classes, *(row.name for row in e.rows)]
        return setup.matches_no_name(e.files, spot.function.rpartition(".")[2], told) or spot
    return spot
