"""DOT → SVG or PNG, in a child process: a layout that crashes or hangs never takes the kernel with it."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree as ET

from gradkit.core.errors import GradkitError

LARGEST_SVG = 24_000_000
"""The largest SVG that is handed out, in bytes: some 60,000 nodes. A browser can do nothing useful with more."""

LARGEST_SIDE, LARGEST_AREA = 16_000, 50_000_000
"""The longest side and the area of a PNG in pixels; larger drawings are made with fewer pixels for each point."""

_DPI, _LEAST_DPI = 144, 36
_FALLBACK = "'Noto Sans CJK SC', 'Microsoft YaHei', 'PingFang SC', sans-serif"
_MONO_FALLBACK = f"Menlo, Consolas, 'Noto Sans Mono CJK SC', {_FALLBACK.replace('sans-serif', 'monospace')}"
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_UNSAFE = {f"{{{_SVG}}}{tag}" for tag in ("script", "foreignObject", "image", "use", "style", "iframe")}
_NOISE = re.compile(r"^(Fontconfig warning|Warning: graph has \d+ nodes|\(process:).*$|^\s*$", re.MULTILINE)


class HasSource(Protocol):
    """A ``graphviz.Digraph`` or ``graphviz.Source``."""

    @property
    def source(self) -> str:
        """The DOT text."""


Dot = str | HasSource

_FEW = 2  # so many drawings in one go are kept, as a view asks for them again


def svg(dot: Dot, *, timeout: float = 30.0) -> str:
    """Lay a graph out as SVG.

    Nothing in the result can run or load: no scripts, no links, no references to elsewhere. Tooltips have become
    ``<title>`` elements, and every text names fonts that have Chinese glyphs.

    Args:
        dot: DOT text, or an object whose ``source`` holds it.
        timeout: seconds after which the layout is stopped.

    Returns:
        One ``<svg>`` element, without an XML prologue.

    Raises:
        GradkitError: no Graphviz (``no_layout``), too slow (``layout_timeout``), refused by Graphviz
            (``layout_failed``), or larger than ``LARGEST_SVG`` (``svg_too_large``).

    Example:
        >>> svg('digraph { n1 [label="x"] }').startswith("<svg")
        True
    """
    return _svg(_text(dot), timeout)


def svgs(dots: Sequence[Dot], *, timeout: float = 30.0) -> list[str]:
    """As ``svg``, of several graphs in one child process: to start one takes longer than most layouts.

    Raises:
        GradkitError: as for ``svg``, if any of them cannot be laid out.

    Example:
        >>> [drawn[:4] for drawn in svgs(['digraph { a }', 'digraph { b }'])]
        ['<svg', '<svg']
    """
    texts = tuple(map(_text, dots))
    return list((_svgs if len(texts) <= _FEW else _laid_out)(texts, timeout)) if texts else []


def _laid_out(dots: tuple[str, ...], timeout: float) -> tuple[str, ...]:
    command = _command("svg", 72)
    between = "\n" if command[0] != sys.executable else "\0"
    raw = _run(command, between.join(dots), timeout)
    made = tuple(_tidied(b"<?xml" + one) for one in raw.split(b"<?xml")[1:])
    if len(made) != len(dots):
        raise GradkitError("layout_failed", reason=f"{len(made)} of {len(dots)} drawings")
    return made


_svgs = functools.lru_cache(maxsize=16)(_laid_out)


def png(dot: Dot, *, timeout: float = 30.0, dpi: int = _DPI) -> bytes:
    """Lay a graph out as a PNG of ``dpi`` pixels an inch, fewer if it would be too large.

    Raises:
        GradkitError: as for ``svg``, and ``png_too_large`` if a readable bitmap would be too large.

    Example:
        >>> png('digraph { n1 [label="x"] }')[1:4]
        b'PNG'
    """
    text = _text(dot)
    width, height = size(_svg(text, timeout))
    fits = int(min(dpi, 72 * LARGEST_SIDE / max(width, height, 1), 72 * (LARGEST_AREA / max(width * height, 1)) ** 0.5))
    if fits < min(dpi, _LEAST_DPI):
        raise GradkitError("png_too_large", width=round(width), height=round(height))
    return _layout(text, "png", fits, timeout)


def size(drawing: str) -> tuple[float, float]:
    """Width and height of a drawing made by ``svg``, in points.

    Example:
        >>> size('<svg width="30pt" height="40pt"></svg>')
        (30.0, 40.0)
    """
    found = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"[^>]*\bheight="([\d.]+)pt"', drawing)
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


def _text(dot: Dot) -> str:
    return dot if isinstance(dot, str) else dot.source


@functools.lru_cache(maxsize=16)
def _svg(text: str, timeout: float) -> str:
    return _tidied(_layout(text, "svg", 72, timeout))


def _tidied(raw: bytes) -> str:
    if len(raw) > LARGEST_SVG:
        megabytes = f"{len(raw) / 1e6:.0f}"
        raise GradkitError("svg_too_large", size=megabytes, limit=f"{LARGEST_SVG / 1e6:.0f}")
    return _tidy(raw.decode("utf-8"))


def _layout(text: str, form: str, dpi: int, timeout: float) -> bytes:
    return _run(_command(form, dpi), text, timeout)


def _run(command: list[str], text: str, timeout: float) -> bytes:
    no_window = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=timeout, check=False, creationflags=no_window
        )
    except subprocess.TimeoutExpired:
        raise GradkitError("layout_timeout", seconds=f"{timeout:g}") from None
    except OSError as error:
        raise GradkitError("layout_failed", reason=error) from None
    if done.returncode or not done.stdout:
        complaint = _NOISE.sub("", done.stderr.decode("utf-8", "replace")).strip()
        raise GradkitError("layout_failed", reason=complaint or f"exit status {done.returncode}")
    return done.stdout


def _command(form: str, dpi: int) -> list[str]:
    """The program to run: ``dot`` where the system has it, else pygraphviz in a Python of its own."""
    program = shutil.which("dot")
    if program:
        return [program, f"-T{form}", f"-Gdpi={dpi}"]
    package = importlib.util.find_spec("pygraphviz")
    if package is None or not package.origin or not sys.executable:
        raise GradkitError("no_layout")
    folder = os.path.dirname(os.path.dirname(package.origin))
    return [sys.executable, str(Path(__file__).with_name("_dot_child.py")), form, str(dpi), folder]


def _tidy(raw: str) -> str:
    """Keep what a page needs of Graphviz's SVG: no prologue, no links, real tooltips, fonts that every system has."""
    ET.register_namespace("", _SVG)
    root = ET.fromstring(raw[raw.index("<svg") :])  # noqa: S314  (our own child wrote it, without a DOCTYPE)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in _UNSAFE:
                parent.remove(child)
    for group in root.iter(f"{{{_SVG}}}g"):
        _unlink(group)
    for element in root.iter():
        for name in [name for name in element.attrib if _forbidden(name)]:
            del element.attrib[name]
        if "font-family" in element.attrib:
            element.set("font-family", _fonts(element.attrib["font-family"]))
    return ET.tostring(root, encoding="unicode")


def _unlink(group: ET.Element) -> None:
    """Graphviz wraps what has a tooltip in a link: take the link out and put the tooltip where browsers look."""
    tip = ""
    for child in list(group):
        if child.tag == f"{{{_SVG}}}g" and (child.get("id") or "").startswith("a_"):
            link = child.find(f"{{{_SVG}}}a")
            if link is not None:
                tip = link.get(f"{{{_XLINK}}}title") or link.get("title") or ""
                at = list(group).index(child)
                group.remove(child)
                for offset, part in enumerate(list(link)):
                    group.insert(at + offset, part)
    title = group.find(f"{{{_SVG}}}title")
    if title is not None and tip:
        title.text = tip
    elif title is not None:
        group.remove(title)


def _forbidden(name: str) -> bool:
    return name.startswith((f"{{{_XLINK}}}", "on")) or name == "href"


def _fonts(named: str) -> str:
    families = [name.strip().strip("'\"") for name in named.split(",")]
    fallback = _MONO_FALLBACK if any("Mono" in name for name in families) else _FALLBACK
    first = [name for name in families if name not in fallback and name not in ("sans-serif", "monospace", "serif")]
    return ", ".join([*(f"'{name}'" if " " in name else name for name in first), fallback])
