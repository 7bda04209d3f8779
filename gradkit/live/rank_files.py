"""What differs between ranks, in the file of a finding: beside what one of them has found or will find.

A file of one rank's finding, and this, come from two processes: who writes second keeps what the first has written. A
page gets a table at its end, a text the same in words, a drawing the table below it, a graph (``.dot``, and as drawn in
a ``.png``) the table as one more node.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from gradkit.core import writing
from gradkit.live import rank_drawing, rank_graphs, rank_page, rank_store, rank_table
from gradkit.live.rank_page import BEGIN, BLOCK, END, text_in
from gradkit.live.rank_records import Comparison
from gradkit.report.report import Report

_SHEET = re.compile(r"<!-- finding -->(.*)<!-- end of finding -->", re.DOTALL)
_SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)(pt|px)?"[^>]*?\bheight="([\d.]+)(pt|px)?"', re.DOTALL)
_RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 72
_KINDS = (".html", ".svg", ".txt")
_GRAPHS = (".dot", ".png")


def write(comparison: Comparison, path: Path) -> None:
    """Write what differs, or put it into the file of a finding that lies there; files of other kinds are left alone.

    Raises:
        OSError: it cannot be written.
        GradkitError: a ``.png`` cannot be drawn.
    """
    if path.suffix == ".html":
        rank_page.write(comparison, path)
    elif path.suffix in _GRAPHS:
        _put(rank_graphs.node(comparison), path)
    elif path.suffix in _KINDS:
        _put(_block(comparison, path.suffix), path)


def _block(comparison: Comparison, kind: str) -> str:
    if kind == ".txt":
        return f"{_RULE}\n{comparison.text()}\n\n{rank_table.text(rank_table.table_of(comparison))}\n"
    return f"{BEGIN}{rank_drawing.drawing(comparison)[0]}{END}"


def save(report: Report, path: Path) -> None:
    """Write a report as ``Report.save`` does, with what the file says of ranks.

    Raises:
        OSError, GradkitError: it cannot be written.
    """
    block = kept(path)
    report.save(path)
    if path.suffix == ".png" and (block or rank_store.place()[1] > 1):
        writing.write(path, rank_graphs.bitmap(str(report.graph().source)))
    put_back(block, path)


def kept(path: Path) -> str:
    """What a file that is about to be written over says of ranks; ``""`` if it says nothing."""
    if path.suffix == ".html":
        return rank_page.kept(path)
    if path.suffix in _GRAPHS:
        return rank_graphs.block_in(_graph_in(path))
    lies = text_in(path) if path.suffix in _KINDS else ""
    if path.suffix == ".txt":
        return "".join(lies.partition(f"{_RULE}\n")[1:])
    found = BLOCK.search(lies)
    return found[0] if found is not None else ""


def put_back(block: str, path: Path) -> None:
    """Put what was kept into the file that was written over it.

    Args:
        block: of ``kept``.
    """
    if path.suffix == ".html":
        rank_page.put_back(block, path)
    elif block:
        _put(block, path)


def _graph_in(path: Path) -> str:
    """The graph in a file, or that which a bitmap carries; ``""`` if there is none."""
    if path.suffix == ".dot":
        return text_in(path)
    with contextlib.suppress(OSError):
        return rank_graphs.carried_by(path.read_bytes())
    return ""


def _put(block: str, path: Path) -> None:
    lies = text_in(path)
    if path.suffix in _GRAPHS:
        graph = rank_graphs.beside(_graph_in(path), block)
        writing.write(path, rank_graphs.bitmap(graph) if path.suffix == ".png" else graph.encode())
    elif path.suffix == ".txt":
        finding = lies.partition(f"{_RULE}\n")[0].rstrip("\n")
        writing.write(path, (f"{finding}\n\n{block}" if finding else block).encode())
    else:
        writing.write(path, below(_drawn(lies), block).encode())


def _drawn(lies: str) -> str:
    """The drawing of a finding in a file, without what was put beside it."""
    found = _SHEET.search(lies)
    return found[1] if found is not None else BLOCK.sub("", lies[lies.find("<svg") :]) if "<svg" in lies else ""


def below(picture: str, block: str) -> str:
    """One SVG of two: a finding's, and below it what differs between ranks.

    Example:
        >>> one = '<svg width="10pt" height="30px"></svg>'
        >>> below("", f"{BEGIN}{one}{END}") == one
        False
        >>> 'height="70"' in below(one, f"{BEGIN}{one}{END}")
        True
    """
    first, second = _size(picture), _size(block)
    width, height = max(first[0], second[0]), first[1] + second[1] + (10 if picture else 0)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    moved = f'<svg y="{height - second[1]}" overflow="visible">{block}</svg>'
    inner = f"<!-- finding -->{picture}<!-- end of finding -->" if picture else ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inner}{moved}</svg>'


def _size(svg: str) -> tuple[int, int]:
    """Width and height in pixels."""
    found = _SIZE.search(svg)
    if found is None:
        return 0, 0
    width, height = (float(found[at]) * (4 / 3 if found[at + 1] == "pt" else 1) for at in (1, 3))
    return round(width), round(height)
