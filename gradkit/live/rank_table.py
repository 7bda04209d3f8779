"""Ranks that differ, side by side: a column for those that say the same, a row for each thing that they say.

As lines of text for a terminal or a ``.txt``; :mod:`~gradkit.live.rank_drawing` draws the same table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from gradkit.core.i18n import columns as wide_as
from gradkit.core.i18n import words
from gradkit.live import rank_heads
from gradkit.live.rank_page import marked, rows, stands
from gradkit.live.rank_records import Comparison, RankRecord

_MOST_COLUMNS, _MOST_ROWS = 4, 24
_WIDTH, _GAP = 120, 2
NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """One thing that ranks say.

    Attributes:
        label: what it is.
        cells: what each column says of it.
    """

    label: str
    cells: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the columns say different things."""
        return len(set(self.cells)) > 1


@dataclass(frozen=True)
class Table:
    """What is said side by side.

    Attributes:
        title: over the whole.
        columns: their heads, as ``"✗ 1"`` and ``"✓ 0, 2-3"``; those that differ first.
        odd: which of them differ.
        rows: what they say.
    """

    title: str
    columns: tuple[str, ...]
    odd: tuple[bool, ...]
    rows: tuple[Row, ...]


def table_of(comparison: Comparison) -> Table:
    """The table of what differs between ranks.

    Example:
        >>> here = RankRecord(0, 2, "stuck", "train.py:9", batch=(("image", "4 x 3"),))
        >>> there = RankRecord(1, 2, "stuck", "train.py:9")
        >>> table = table_of(Comparison((here, there), (), (1,), "batch"))
        >>> table.columns, [(row.label, row.cells) for row in table.rows if row.differs]
        (('✗ 1', '✓ 0'), [('image', ('-', '4 x 3'))])
    """
    told = [(ranks, one, ranks[0] in comparison.odd) for ranks, one in rows(comparison)][:_MOST_COLUMNS]
    heads = tuple(marked(ranks, differs) for ranks, _, differs in told)
    records = [one for _, one, _ in told]
    made = tuple(itertools.islice(_rows(records), _MOST_ROWS))
    return Table(words("ranks.title"), heads, tuple(differs for *_, differs in told), made)


def _rows(records: list[RankRecord]) -> Iterator[Row]:
    names = {key: words(f"ranks.column.{key}") for key in ("stands", "branch", "loss", "step")}
    yield Row(names["stands"], tuple(map(stands, records)))
    yield from _unless_empty(names["branch"], [one.branch for one in records])
    yield Row(names["step"], tuple(str(one.steps) for one in records))
    yield from _unless_empty(names["loss"], [rank_heads.of_head(one.head) for one in records])
    for key in dict.fromkeys(name for one in records for name, _ in one.batch):
        yield Row(key, tuple(dict(one.batch).get(key, NOTHING) for one in records))


def _unless_empty(label: str, cells: list[str]) -> Iterator[Row]:
    if any(cells):
        yield Row(label, tuple(one or NOTHING for one in cells))


def text(table: Table) -> str:
    """As lines of at most 120 columns; ``≠`` stands before what differs.

    Example:
        >>> print(text(Table("Ranks", ("1", "0"), (True, False), (Row("image", ("-", "4 x 3")),))))
        Ranks
          rank     1  0
        ≠ image    -  4 x 3
    """
    labels = max(wide_as(row.label) for row in table.rows) + 4
    each = max(8, (_WIDTH - labels) // max(1, len(table.columns)) - _GAP)
    said = [Row(f"  {words('ranks.column.ranks')}", table.columns)]
    said += [Row(f"{'≠' if row.differs else ' '} {row.label}", row.cells) for row in table.rows]
    wide = [min(each, max(wide_as(row.cells[at]) for row in said)) for at in range(len(table.columns))]
    lines = [table.title]
    for row in said:
        parts = [list(wrapped(cell, width)) for cell, width in zip(row.cells, wide, strict=True)]
        for at, beside in enumerate(itertools.zip_longest(*parts, fillvalue="")):
            shown = [_padded(one, width + _GAP) for one, width in zip(beside, wide, strict=True)]
            lines.append((_padded("" if at else row.label, labels + 1) + "".join(shown)).rstrip())
    return "\n".join(lines)


def wrapped(cell: str, width: int) -> Iterator[str]:
    """A cell in lines of at most ``width`` columns.

    Example:
        >>> list(wrapped("loss.backward()", 8))
        ['loss.bac', 'kward()']
    """
    line = ""
    for char in cell:
        if wide_as(line + char) > width:
            yield line
            line = ""
        line += char
    yield line


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - wide_as(cell))
