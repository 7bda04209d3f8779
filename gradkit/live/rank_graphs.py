"""Ranks that differ, side by side, as a node of a graph in DOT, and as a bitmap that carries such a graph with it.

A bitmap can't be added to; so one that a rank writes holds its graph as text, for the rank that comes second.
Sources: https://graphviz.org/doc/info/shapes.html#html, https://www.w3.org/TR/png-3/#11iTXt
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from gradkit.core.i18n import words
from gradkit.live.rank_records import Comparison
from gradkit.live.rank_table import Row, Table, table_of, wrapped
from gradkit.report.picture import render
from gradkit.report.picture.style import MONO, html_text, points

BEGIN, END = "/* ranks */", "/* end of ranks */"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_PNG, _CHUNK, _KEY = b"\x89PNG\r\n\x1a\n", b"iTXt", b"gradkit-dot"
_COLUMN, _SIZE = 40, 10
_INK, _RED, _GREY, _TINT = "#263238", "#c62828", "#607d8b", "#fdecea"


def node(comparison: Comparison) -> str:
    """The node, with marks around it.

    Example:
        >>> from gradkit.live.rank_records import RankRecord
        >>> one = RankRecord(0, 2, "stuck", "train.py:9")
        >>> node(Comparison((one,), (1,), (1,), "gone")).count("<td")
        7
    """
    table = table_of(comparison)
    width = len(table.columns) + 1
    title = f"<tr>{_cell(table.title, _INK, bold=True, across=width)}</tr>"
    heads = Row(words("ranks.column.ranks"), table.columns)
    rows = "".join(_row(table, row) for row in (heads, *table.rows))
    label = f'<<table border="1" color="{_GREY}" cellborder="0" cellspacing="0" cellpadding="3">{title}{rows}</table>>'
    return f'{BEGIN} {{ rank=sink; ranks [id="ranks", shape=plain, style="", label={label}] }} {END}'


def _row(table: Table, row: Row) -> str:
    heads = row not in table.rows
    tint = f' bgcolor="{_TINT}"' if not heads and row.differs else ""
    cells = [_cell(row.label, _GREY)]
    for cell, odd in zip(row.cells, table.odd, strict=True):
        cells.append(_cell(cell, _RED if heads and odd else _INK, bold=heads, tint=tint))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(text: str, color: str, *, bold: bool = False, tint: str = "", across: int = 1) -> str:
    """A cell that is wide enough for its lines, whatever fonts the one who draws it has."""
    lines = list(wrapped(text, _COLUMN))
    width = max(points(line, _SIZE, bold=bold, code=True) for line in lines)
    said = '<br align="left"/>'.join(map(html_text, lines))
    face = f'<font face="{MONO}" point-size="{_SIZE}" color="{color}">{f"<b>{said}</b>" if bold else said}</font>'
    return f'<td align="left" balign="left" colspan="{across}" width="{width}"{tint}>{face}</td>'


def block_in(dot: str) -> str:
    """What a graph says of ranks; ``""`` if it says nothing.

    Example:
        >>> block_in("digraph { a }")
        ''
    """
    found = _BLOCK.search(dot)
    return found[0] if found is not None else ""


def beside(dot: str, block: str) -> str:
    """A graph with what is said of ranks, in place of what it had of them; a graph of its own where there is none.

    Example:
        >>> beside(beside("digraph { a }", f"{BEGIN} b {END}"), f"{BEGIN} c {END}")
        'digraph { a /* ranks */ c /* end of ranks */\\n}'
    """
    head, brace, tail = _BLOCK.sub("", dot).rpartition("}")
    return f"{head.rstrip()} {block}\n{brace}{tail}" if brace else f"digraph ranks {{ {block}\n}}\n"


def bitmap(dot: str) -> bytes:
    """A PNG that carries its graph.

    Raises:
        GradkitError: as for ``render.png``.
    """
    drawn, text = render.png(dot), zlib.compress(dot.encode())
    held = _CHUNK + _KEY + b"\0\1\0\0\0" + text
    chunk = struct.pack(">I", len(held) - len(_CHUNK)) + held + struct.pack(">I", zlib.crc32(held))
    end = drawn.rfind(b"IEND") - 4
    return drawn[:end] + chunk + drawn[end:]


def carried_by(png: bytes) -> str:
    """The graph that a PNG carries; ``""`` where it is none of ``bitmap``'s.

    Example:
        >>> carried_by(bitmap("digraph { a }")), carried_by(b"no bitmap")
        ('digraph { a }', '')
    """
    held = (data for kind, data in _chunks(png) if kind == _CHUNK and data.startswith(_KEY + b"\0\1\0\0\0"))
    found = next(held, b"")
    try:
        return zlib.decompress(found[len(_KEY) + 5 :]).decode() if found else ""
    except (zlib.error, UnicodeDecodeError):
        return ""


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG) if png.startswith(_PNG) else len(png)
    while at + 8 <= len(png):
        size = struct.unpack(">I", png[at : at + 4])[0]
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12
