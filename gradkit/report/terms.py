"""The terms of a loss as a table: what each adds, whom it hands a gradient, and the line that makes it.

A loss that is no sum has no table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradkit.core import printable
from gradkit.core.i18n import columns, words
from gradkit.core.records import LossTerm
from gradkit.report import layout

MOST_ROWS = 20
_NAME, _VALUE, _SAYS, _MADE = range(4)


def table(terms: Sequence[LossTerm]) -> list[list[str]]:
    """The head, then a row for each term: its name, its value, what becomes of its gradient, and its line.

    Returns:
        ``[]`` where there are fewer than two terms.

    Example:
        >>> from gradkit.core.i18n import speaking
        >>> with speaking("en"):
        ...     table([LossTerm("bce", "live", 0.25, parameters=("w",)), LossTerm("iou", "cut", 0.5)])[1]
        ['bce', '0.25', 'reaches 1 parameter', '']
    """
    if len(terms) < 2:
        return []
    several = len({one.loss for one in terms}) > 1
    head = [words(f"terms.{column}") for column in ("name", "value", "says", "made")]
    return [head, *(_row(one, several) for one in terms[:MOST_ROWS])]


def _row(term: LossTerm, several: bool) -> list[str]:
    name = printable.name(term.name) or words("terms.unnamed")
    if term.count > 1:
        name = words("terms.many", term=name, n=term.count)
    if several:
        name = words("terms.of_loss", term=name, loss=term.loss + 1)
    value = "–" if term.value is None else f"{term.value:.4g}"
    says = words(f"terms.{term.state}", n=len(term.parameters))
    place = layout.shown_place(term.location).rsplit(":", 1)[0] if term.location is not None else ""
    return [name, value, says, place]


def write(terms: Sequence[LossTerm], fit: Callable[[str], str] = printable.fitted) -> list[str]:
    """The lines of the table for a terminal, with its title; ``[]`` if there is none."""
    rows = [[fit(cell) for cell in row] for row in table(terms)]
    if not rows:
        return []
    widths = [max(columns(row[at]) for row in rows) for at in (_NAME, _VALUE, _SAYS)]
    lines = [fit(words("terms.title"))]
    for name, value, says, place in rows:
        cells = (
            name + " " * (widths[_NAME] - columns(name)),
            " " * (widths[_VALUE] - columns(value)) + value,
            says + " " * (widths[_SAYS] - columns(says)),
            place,
        )
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
