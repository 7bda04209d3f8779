"""What differs between ranks, as a table for pages and as plain data: a row for each that differs, one for all others.

A page or file of one rank's finding, and this, come from two processes: who writes second keeps what the first has
written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

from gradkit.core import writing
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape
from gradkit.live import rank_heads
from gradkit.live.rank_records import Comparison, RankRecord, ranks_in_words
from gradkit.report import html

BEGIN, END = "<!-- ranks -->", "<!-- end of ranks -->"
"""Around what a file says of ranks."""
BLOCK = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
SIDE, A_LINE = 14, 32
"""Pixels of a square with its margin, and squares of a line."""
_MOST = 256
_LEFT_OUT = (
    "report",
    "apart",
    "computed",
    "batch_in",
    "trainable",
    "made",
    "scales",
    "head",
    "final",
    "echo",
    "passes",
)


def data(comparison: Comparison) -> dict[str, Any]:
    """As plain data for scripts.

    Returns:
        ``reason``, of ``REASONS``; ``world``; ``differ`` and ``gone``, numbers of ranks; ``text``, as it is told;
        ``rows``: one for all ranks that say the same, those that differ first.

    Example:
        >>> one = RankRecord(0, 2, "stuck", "train.py:9")
        >>> found = data(Comparison((one,), (1,), (1,), "gone"))
        >>> found["differ"], found["rows"][0]["ranks"], found["rows"][0]["place"]
        ([1], [0], 'train.py:9')
    """
    return {
        "reason": comparison.reason,
        "world": world_of(comparison),
        "differ": list(comparison.odd),
        "gone": list(comparison.gone),
        "text": comparison.text(),
        "rows": [
            {"ranks": ranks, "differs": ranks[0] in comparison.odd, "loss": rank_heads.of_head(one.head), **_plain(one)}
            for ranks, one in rows(comparison)
        ],
    }


def _plain(one: RankRecord) -> dict[str, Any]:
    told = {key: value for key, value in dataclasses.asdict(one).items() if key not in (*_LEFT_OUT, "rank", "world")}
    return {**told, "batch": dict(one.batch)}


def world_of(comparison: Comparison) -> int:
    """How many ranks there are."""
    return comparison.records[0].world if comparison.records else len(comparison.gone)


def rows(comparison: Comparison) -> list[tuple[list[int], RankRecord]]:
    """The ranks that say the same, with what they say; those that differ first."""
    crashed = [([one.rank], one) for one in comparison.crashed]
    return crashed + [([one.rank for one in group], group[0]) for group in comparison.groups()]


def fragment(comparison: Comparison) -> str:
    """As HTML: a square for each rank, a row for those that say the same, and what was told.

    Example:
        >>> one = RankRecord(0, 2, "stuck", "train.py:9")
        >>> fragment(Comparison((one,), (1,), (1,), "gone")).count("<rect")
        2
    """
    names = [words(f"ranks.column.{name}") for name in ("ranks", "stands", "batch", "loss", "step")]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(_row(ranks, one, ranks[0] in comparison.odd) for ranks, one in rows(comparison))
    title = escape(words("ranks.title"))
    first, *rest = comparison.text().splitlines()
    return (
        f'{BEGIN}<div class="gk"><style>{html.style()}</style><p class="gk-verdict">✗ {escape(first)}</p>'
        f"{squares(comparison)}"
        f'<div class="gk-table" role="group" aria-label="{title}" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div><pre class="gk-more">{escape(chr(10).join(rest))}</pre></div>{END}'
    )


def _row(ranks: list[int], one: RankRecord, differs: bool) -> str:
    batch = ", ".join(f"{name} {shape}" for name, shape in one.batch) or "-"
    cells = [batch, rank_heads.of_head(one.head) or "-", str(one.steps)]
    said = "".join(f"<td>{escape(one)}</td>" for one in [stands(one), *cells])
    return f'<tr><th scope="row">{marked(ranks, differs)}</th>{said}</tr>'


def stands(one: RankRecord) -> str:
    """Where a rank stands, and the error that it raised there.

    Example:
        >>> stands(RankRecord(0, 2, "stuck", "train.py:9", "loss.backward()")), stands(RankRecord(0, 2, "stuck"))
        ('train.py:9  loss.backward()', '-')
    """
    return (f"{one.place}: {one.error}" if one.error else f"{one.place}  {one.code}").strip() or "-"


def marked(ranks: list[int], differs: bool) -> str:
    """Ranks that say the same, with a mark for whether they differ from the others.

    Example:
        >>> marked([0, 2, 3], differs=False)
        '✓ 0, 2-3'
    """
    return f"{'✗' if differs else '✓'} {ranks_in_words(ranks)}"


def squares(comparison: Comparison) -> str:
    """As SVG: a square for each rank, filled where it differs."""
    world, odd = _shown(comparison), set(comparison.odd)
    made = "".join(
        f'<rect x="{at % A_LINE * SIDE + 1}" y="{at // A_LINE * SIDE + 1}" width="11" height="11" '
        f'fill="{"#c62828" if at in odd else "none"}" stroke="{"#c62828" if at in odd else "#78909c"}">'
        f"<title>rank {at}</title></rect>"
        for at in range(world)
    )
    width, height = min(world, A_LINE) * SIDE, height_of(comparison)
    label = escape(words("ranks.squares", ranks=ranks_in_words(comparison.odd), world=world_of(comparison)))
    return f'<svg width="{width}" height="{height}" role="img" aria-label="{label}">{made}</svg>'


def height_of(comparison: Comparison) -> int:
    """The height of the squares in pixels."""
    return -(-_shown(comparison) // A_LINE) * SIDE


def _shown(comparison: Comparison) -> int:
    return min(world_of(comparison), _MOST)


def write(comparison: Comparison, path: Path) -> None:
    """Write a page of what differs, or put it into the page of a finding that lies there.

    Raises:
        OSError: it cannot be written.
    """
    block = fragment(comparison)
    lies = text_in(path)
    whole = _with(lies, block) if "</body>" in lies else html.page(block, words("ranks.title"))
    writing.write(path, whole.encode())


def text_in(path: Path) -> str:
    """The text that lies in a file; ``""`` where there is none, or what is there is no text of ours.

    Example:
        >>> text_in(Path("no such file.html"))
        ''
    """
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""


def kept(path: Path) -> str:
    """The block about ranks of a page that is about to be written over; ``""`` if it has none."""
    found = BLOCK.search(text_in(path)) if path.suffix == ".html" else None
    return found[0] if found is not None else ""


def put_back(block: str, path: Path) -> None:
    """Put a block that was kept into the page that was written over it."""
    if block:
        writing.write(path, _with(path.read_text(encoding="utf-8"), block).encode())


def _with(page: str, block: str) -> str:
    """A page with a block at the end of its body, in place of one that it has."""
    head, body, tail = BLOCK.sub("", page).rpartition("</body>")
    return f"{head}{block}{body}{tail}"
