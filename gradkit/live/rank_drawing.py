"""Ranks that differ, side by side, as one SVG: a square for each rank, and the table of what they say.

Source: https://www.w3.org/TR/SVG11/text.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gradkit.core.i18n import columns as wide_as
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape
from gradkit.live import rank_page
from gradkit.live.rank_records import Comparison
from gradkit.live.rank_table import Row, Table, table_of, wrapped
from gradkit.report.picture.style import MONO

_CHARACTER, _LINE, _PAD, _COLUMN = 7.3, 17, 12, 40
_INK, _RED, _GREY, _TINT = "#263238", "#c62828", "#607d8b", "#fdecea"


def drawing(comparison: Comparison) -> tuple[str, int, int]:
    """The SVG, its width and its height in pixels.

    Example:
        >>> from gradkit.live.rank_records import RankRecord
        >>> one = RankRecord(0, 2, "stuck", "train.py:9")
        >>> svg, width, height = drawing(Comparison((one,), (1,), (1,), "gone"))
        >>> svg.startswith("<svg"), svg.count("<rect"), width > 0 < height
        (True, 3, True)
    """
    table, squares = table_of(comparison), rank_page.squares(comparison)
    head = _PAD + _LINE + rank_page.height_of(comparison) + _PAD
    wide = [_wide(table, at) for at in range(len(table.columns))]
    labels = max(wide_as(row.label) for row in table.rows) + 3
    parts, y = list[str](), head
    for row in (Row(words("ranks.column.ranks"), table.columns), *table.rows):
        part, y = _row(table, row, y, [labels, *wide])
        parts.append(part)
    across = round((labels + sum(wide) + 2 * len(wide)) * _CHARACTER)
    width = max(across, round(wide_as(table.title) * _CHARACTER), rank_page.A_LINE * rank_page.SIDE) + 2 * _PAD
    title = _said(_PAD, _PAD + 11, table.title, weight="bold")
    inner = f'{title}<g transform="translate({_PAD} {_PAD + _LINE})">{squares}</g>{"".join(parts)}'
    face = f'font-family="{escape(MONO)}" font-size="12"'
    paper = f'<rect width="{width}" height="{y + _PAD}" fill="#ffffff"/>'
    size = f'width="{width}" height="{y + _PAD}" viewBox="0 0 {width} {y + _PAD}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {face}>{paper}{inner}</svg>', width, y + _PAD


def _wide(table: Table, at: int) -> int:
    cells = [table.columns[at], *(row.cells[at] for row in table.rows)]
    return min(_COLUMN, max(map(wide_as, cells)))


def _row(table: Table, row: Row, y: int, wide: list[int]) -> tuple[str, int]:
    """A row of the table, which is tinted where the columns differ, and where the next one begins."""
    cells = [list(wrapped(cell, width)) for cell, width in zip(row.cells, wide[1:], strict=True)]
    tall = max(len(lines) for lines in cells) * _LINE + 4
    across = round((sum(wide) + 2 * len(cells)) * _CHARACTER)
    tint = (
        f'<rect x="{_PAD}" y="{y}" width="{across}" height="{tall}" fill="{_TINT}"/>'
        if row in table.rows and row.differs
        else ""
    )
    said = [_said(_PAD + 4, y + 13, row.label, fill=_GREY), *_columns(table, row, cells, y, wide)]
    return tint + "".join(said), y + tall


def _columns(table: Table, row: Row, cells: list[list[str]], y: int, wide: list[int]) -> Iterator[str]:
    x = _PAD + wide[0] * _CHARACTER
    heads = row not in table.rows
    for lines, width, odd in zip(cells, wide[1:], table.odd, strict=True):
        for at, line in enumerate(lines):
            yield _said(x, y + 13 + at * _LINE, line, _RED if heads and odd else _INK, "bold" if heads else "normal")
        x += (width + 2) * _CHARACTER


def _said(x: float, y: float, text: str, fill: str = _INK, weight: str = "normal") -> str:
    bold = f' font-weight="{weight}"' if weight != "normal" else ""
    return f'<text x="{x:.0f}" y="{y}" fill="{fill}"{bold} xml:space="preserve">{escape(text)}</text>'
