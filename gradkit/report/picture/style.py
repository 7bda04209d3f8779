"""Colours, outlines and lettering of a drawing.

Every state has its own colour and its own outline, for readers who see colours alike. Text is cleaned, escaped,
measured and shortened here; nothing here knows the graph.
"""

from __future__ import annotations

import functools
import math
import os
import re
import unicodedata
from html import escape as _entities

from gradkit.core import printable
from gradkit.core.i18n import columns
from gradkit.core.records import Location
from gradkit.source import frames

SANS = "Helvetica,Arial,Liberation Sans,Noto Sans CJK SC,Microsoft YaHei,PingFang SC,sans-serif"
MONO = "DejaVu Sans Mono,Menlo,Consolas,Noto Sans Mono CJK SC,Microsoft YaHei,PingFang SC,monospace"
CODE_COLUMNS = 64
"""How many columns of a source line a plate shows at most."""

_THIN, _ROOMY = set(" ijlI.,:;'`|!/()[]{}ftr-"), set("mwMWGOQ@%")
_CODE, _LEAD = 0.61, 12
_LOST = 24  # columns that a row may lose to a break between words
_NBSP, _WIDE_SPACE = "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}"


@functools.lru_cache(16_384)
def cleaned(text: str) -> str:
    """The text on one line, safe to draw: line breaks become spaces, what would act or show nothing is shown escaped.

    Example:
        >>> cleaned(" two\\n lines ")
        'two lines'
    """
    return printable.name(re.sub(r"\s+", " ", text).strip(), printable.FACT)


def html_text(text: str) -> str:
    """The text escaped for an HTML-like label, where a backslash would begin a command; no space is lost.

    Example:
        >>> html_text('a < b & "c"').replace(chr(160), "_")
        'a_&lt;_b_&amp;_&quot;c&quot;'
    """
    return _entities(text, quote=True).replace("\\", "&#92;" * 2).replace(" ", _NBSP)


def is_wide(char: str) -> bool:
    """Whether the character takes a full em, as Chinese ones do."""
    return unicodedata.east_asian_width(char) in "WF"


def points(text: str, size: int, *, bold: bool = False, code: bool = False) -> int:
    """Width in points at a font size, on the safe side: layout engines without font metrics guess too narrow.

    Example:
        >>> points("ab", 10), points("\N{CJK UNIFIED IDEOGRAPH-68AF}", 10)
        (12, 10)
    """
    if code:
        return round(size * math.fsum(1.0 if is_wide(char) else _CODE for char in text))
    return round(size * math.fsum(_em(char) for char in text) * (1.06 if bold else 1.0))


def _em(char: str) -> float:
    """How wide a character of a common sans-serif is, in em."""
    if is_wide(char):
        return 1.0
    if char in _THIN:
        return 0.36
    if char in _ROOMY:
        return 0.9
    return 0.72 if char.isupper() or not char.isascii() else 0.58


def shorten(text: str, most: int) -> str:
    """The text with its middle left out if it is longer than ``most`` characters; dotted names between their parts.

    Example:
        >>> shorten("base_model.model.layers.11.q_proj", 26), shorten("abcdefghij", 7)
        ('base_model…layers.11.q_proj', 'abc…hij')
    """
    if len(text) <= most:
        return text
    names = text.split(".")
    del names[1 : -most - 2]  # of a deep path: more could not fit, whatever they are
    while len(names) > 2:
        del names[1]
        short = f"{names[0]}…{'.'.join(names[1:])}"
        if len(short) <= most + 1:
            return short
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def text_line(
    text: str, size: int, *, color: str, bold: bool = False, code: bool = False, left: bool = False,
    beside: tuple[str, int, str, bool] | None = None,
) -> str:  # fmt: skip
    """One table row of an HTML-like label: the text, in a cell that is wide enough for it.

    Args:
        beside: a second text on the same line: text, size, colour, bold.
    """
    face = f' face="{MONO}"' if code else ""
    body = f"<b>{html_text(text)}</b>" if bold else html_text(text)
    align = ' align="left"' if code or left else ""
    width = points(text, size, bold=bold, code=code)
    body = f'<font{face} color="{color}" point-size="{size}">{body}</font>'
    if beside is not None:
        more, its_size, its_color, its_bold = beside
        width += points(more, its_size, bold=its_bold)
        said = f"<b>{html_text(more)}</b>" if its_bold else html_text(more)
        body += f'<font color="{its_color}" point-size="{its_size}">{said}</font>'
    return f'<tr><td{align} width="{width}">{body}</td></tr>'


def framed(place: Location, most: int = CODE_COLUMNS, rows: int = 1) -> tuple[str, str]:
    """The source line of a place and the carets under the very expression, cut to ``most`` columns around it.

    The second string is ``""`` if no expression is known. Both start at the same column. A line that takes several
    ``rows`` of so many columns is cut to those; ``broken`` breaks it.

    Example:
        >>> for row in framed(Location("a.py", 7, column=9, end_column=19, text="    y = x.detach()")):
        ...     print(row)
        y = x.detach()
            ^^^^^^^^^^
    """
    shown, column, end = printable.line(place.text.rstrip(), place.column, place.end_column, len(place.text))
    source = shown.replace("\t", " ")
    code = source.lstrip()
    first = column - 1 - (len(source) - len(code))
    last = end - 1 - (len(source) - len(code))
    if place.end_line > place.line:
        last = len(code)
    first, last = max(first, 0), min(last, len(code))
    comment = code.find("  #", last) if columns(code) > most else -1
    code = code[:comment].rstrip() if comment >= 0 else code
    start, stop = _window(code, first, last, most * rows - _LOST * (rows - 1))
    shown = ("…" if start else "") + code[start:stop] + ("…" if stop < len(code) else "")
    if last <= first:
        return shown, ""
    pad = (" " if start else "") + "".join(_WIDE_SPACE if is_wide(char) else " " for char in code[start:first])
    called = code[max(first, start) : min(last, stop)]
    marks = "".join("\N{FULLWIDTH CIRCUMFLEX ACCENT}" if is_wide(char) else "^" for char in called)
    return shown, pad + marks


def broken(code: str, marks: str, most: int) -> list[tuple[str, str]]:
    """A line of code and the marks below it in rows of at most ``most`` columns, broken where one would break it.

    Example:
        >>> broken("loss = first(x, y) + second(z)", "       " + "^" * 11, 20)
        [('loss = first(x, y) ', '       ^^^^^^^^^^^'), ('+ second(z)', '')]
    """
    rows = []
    while columns(code) > most:
        end = len(code)
        while columns(code[:end]) > most:
            end -= 1
        least = max(1, end - _LOST)
        end = next((at for at in range(end, least, -1) if code[at - 1] in " ,(["), end)
        rows.append((code[:end], marks[:end].rstrip(f" {_WIDE_SPACE}")))
        code, marks = code[end:], marks[end:]
    return [*rows, (code, marks)]


def _window(code: str, first: int, last: int, most: int) -> tuple[int, int]:
    """Which part of a line to show: all of it, or ``most`` columns around the expression."""
    if columns(code) <= most:
        return 0, len(code)
    room = most - 2
    lead = max(_LEAD, (room - columns(code[first:last])) * 2 // 3)
    start = max(0, min(first, len(code)) - lead)
    stop = start
    while stop < len(code) and columns(code[start : stop + 1]) <= room:
        stop += 1
    while start > 0 and columns(code[start - 1 : stop]) <= room:
        start -= 1
    return start, stop


@functools.lru_cache(16_384)
def operation_words(label: str) -> str:
    """What an operation is called in Python, from autograd's name for it.

    Example:
        >>> operation_words("UnsafeViewBackward0"), operation_words("log_softmax"), operation_words("__rsub__")
        ('unsafe_view', 'log_softmax', 'rsub')
    """
    bare = re.sub(r"Backward\d*$", "", label)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower() if bare[:1].isupper() else bare.strip("_") or bare


def place_name(place: Location) -> str:
    """``file.py:41``, without folders; a notebook cell by its number."""
    if frames.is_cell(place.file):
        return f"{frames.cell_name(place.file)}:{place.line}"
    return f"{cleaned(os.path.basename(place.file.replace(chr(92), '/'))) or '?'}:{place.line}"


def quantity_words(count: int) -> str:
    """A number of elements as people say it: ``512``, ``18.9 K``, ``86.0 M``, ``8.59 B``.

    Example:
        >>> quantity_words(18_882_560), quantity_words(512), quantity_words(8_590_000_000)
        ('18.9 M', '512', '8.59 B')
    """
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size * 0.9995:
            value = count / size
            return f"{value:.2f} {unit}" if value < 9.995 and unit == "B" else f"{value:.1f} {unit}"
    return str(count)


RED, DARK_RED, AMBER, GREEN, DARK_GREEN = "#D92D20", "#B42318", "#93370D", "#12A150", "#067647"
INK, SOFT, GREY, PALE, LINE = "#101828", "#475467", "#667085", "#98A2B3", "#D0D5DD"

BOXES = {
    "live": {"style": "rounded,filled", "fillcolor": "#ECFDF3", "color": GREEN, "penwidth": "1.4"},
    "starved": {"style": "filled", "fillcolor": "#FEF3F2", "color": RED, "penwidth": "2.2", "peripheries": "2"},
    "partly": {"style": "filled", "fillcolor": "#FEF3F2", "color": RED, "penwidth": "2.2"},
    "frozen": {"style": "rounded,filled", "fillcolor": "#F2F4F7", "color": PALE, "penwidth": "1.2"},
    "dead": {"style": "rounded,dashed", "color": PALE, "penwidth": "1.2"},
}
TEXT = {"live": (INK, "#067647"), "starved": (INK, DARK_RED), "partly": (INK, DARK_RED)}
ARROWS = {
    "live": {"dir": "back", "color": GREEN},
    "dead": {"color": PALE, "style": "dashed", "arrowhead": "vee"},
    "cut": {"color": RED, "style": "dashed", "penwidth": "2.4", "arrowhead": "vee"},
}
