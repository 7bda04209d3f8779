"""What a sound program keeps frozen, line by line: by which line, and on which condition on a name.

That it is frozen is taken to be meant. Who reads which line does it sees when that line catches more than it should.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradkit.core.records import FrozenAt, Location
from gradkit.diagnosis.rules import setup
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import freezing

_MOST_LETTERS = 80


def lines(e: Evidence) -> tuple[FrozenAt, ...]:
    """The lines that froze what is not expected to learn, those that froze most first.

    They are what a witness has seen. Where nobody listened, it is the one line of the user's source that takes the flag
    away, if there is but one and it may be about them.

    Args:
        e: of a step in which nothing was found: where something was, its line is the finding.

    Returns:
        ``()`` where nothing is frozen, or where several lines may have done it.
    """
    names = [row.name for row in e.rows if not row.requires_grad and not row.should_train and not row.same_as]
    if not names:
        return ()
    seen = [(one.location, one.parameters) for one in setup.seen_to_freeze(e.seen, names) if one.location is not None]
    told = {name for _, mine in seen for name in mine}
    found = [*seen, *_read(e, [name for name in names if name not in told])]
    return tuple(
        FrozenAt(spot, mine, _shown(freezing.condition_at(spot)))
        for spot, mine in sorted(found, key=lambda one: -len(one[1]))
    )


def _read(e: Evidence, names: Sequence[str]) -> list[tuple[Location, tuple[str, ...]]]:
    """The only line of the source that may have frozen some parameters, with those that it is about."""
    spots = freezing.lines(e.files) if names else []
    if len(spots) != 1:
        return []
    flags = {row.name: row.requires_grad for row in e.rows}
    tied = {row.name: row.same_as for row in e.rows if row.same_as}
    matches = freezing.freezing(e.files, freezing.Flags(names, flags, e.facts.classes, tied))
    return [
        (one.location, tuple(name for name in names if name in one.names))
        for one in matches
        if one.location == spots[0] and one.names.issuperset(names)
    ]


def _shown(condition: str) -> str:
    """A condition, unless it is too long to be read in passing.

    Example:
        >>> _shown("'layers' in name"), _shown("x" * 100)
        ("'layers' in name", '')
    """
    return condition if len(condition) <= _MOST_LETTERS else ""
