"""What strangers named and wrote, made fit to be shown: no character that acts, no endless line, no command to a CI,
nothing that the encoding of a terminal cannot say. What is kept is never changed: only what is shown.
"""

from __future__ import annotations

import codecs
import re
import sys
import unicodedata
from html import escape as _entities
from json import dumps
from typing import Any

NAME, LINE, FACT = 200, 300, 1000
"""How many letters are shown at most: of a name, of a line of source, of anything else."""

_SHOWS_NOTHING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
)
_EMOJI = r"\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
_ACTS = re.compile(rf"[{_SHOWS_NOTHING}]|(?<![{_EMOJI}])\u200d|\u200d(?![{_EMOJI}])")
_COMMAND = re.compile(r"^(\s*):(?=:)|(#)#(?=\w*\[)", re.MULTILINE)
_SIGNS = {
    "\N{CHECK MARK}": "v", "\N{BALLOT X}": "x", "\N{MULTIPLICATION SIGN}": "x", "\N{WARNING SIGN}": "!",
    "\N{RIGHTWARDS ARROW}": "->", "\N{LEFTWARDS ARROW}": "<-", "\N{UPWARDS ARROW}": "^", "\N{DOWNWARDS ARROW}": "v",
    "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MINUS SIGN}": "-", "\N{MIDDLE DOT}": "-", "\N{BULLET}": "*",
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{NOT EQUAL TO}": "!=",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"', "\N{RIGHT DOUBLE QUOTATION MARK}": '"', "\N{ALMOST EQUAL TO}": "~",
    "\N{LESS-THAN OR EQUAL TO}": "<=", "\N{GREATER-THAN OR EQUAL TO}": ">=", "\N{BLACK SCISSORS}": "x",
    "\N{IDEOGRAPHIC COMMA}": ",", "\N{IDEOGRAPHIC FULL STOP}": ".", "\N{BLACK SQUARE}": "[]",
}  # fmt: skip
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BOXES = str.maketrans({chr(code): "-" for code in range(0x2500, 0x2580)} | {"\u2502": "|", "\u2503": "|"})


def escaped(text: str) -> str:
    """The text with every character that acts on a terminal or a page, or shows nothing, written as Python writes it:
    control characters, marks of direction, zero-width ones, lone surrogates. Tabs and line breaks stay, and so do all
    letters, accents and emoji.

    Example:
        >>> print(escaped("a\\x1b[31m" + chr(0x202E) + "b"))
        a\\x1b[31m\\u202eb
    """
    return _ACTS.sub(lambda found: _code(found[0]), text)


def _code(char: str) -> str:
    number = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shortened(text: str, most: int = FACT) -> str:
    """The text with its middle left out where it is longer than ``most``, and how many letters those were.

    Example:
        >>> shortened("abcdefghij" * 100, 8)
        'abcd…(+992)…ghij'
    """
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…(+{len(text) - 2 * half:,})…{text[-half:]}"


def name(text: str, most: int = NAME) -> str:
    """A name, a path or a message on one line, escaped and shortened.

    Example:
        >>> print(name("fc\\n::error::"))
        fc\\n::error::
    """
    return re.sub(r"[\n\t]", lambda found: _code(found[0]), escaped(shortened(text, most)))


def line(text: str, start: int = 0, end: int = 0, most: int = LINE) -> tuple[str, int, int]:
    """A line of source, escaped, and cut to what stands around the columns that matter; tabs stay.

    Args:
        text: the line.
        start: the first column of an expression in it, counted from 1; 0 for none.
        end: the first column behind it.

    Returns:
        The line as it is shown, and where the two columns are in it.

    Example:
        >>> line("a = '\\x07' + x.detach()", 11, 21)
        ("a = '\\\\x07' + x.detach()", 14, 24)
    """
    lead, tail = "", ""
    if len(text) > most:
        first = max(0, min(start - 1 - most // 3, len(text) - most))
        lead = f"…(+{first:,})…" if first else ""
        tail = f"…(+{len(text) - first - most:,})…" if len(text) > first + most else ""
        text, start, end = text[first : first + most], start and start - first, end and min(end - first, most + 1)
    shown = [len(lead + escaped(text[: max(at - 1, 0)])) + 1 if at else 0 for at in (start, end)]
    return lead + escaped(text).replace("\n", "\\n") + tail, shown[0], shown[1]


def entities(text: str, quote: bool = True) -> str:
    """The text for HTML: escaped, then with entities for markup.

    Example:
        >>> entities("<b>\\x1b")
        '&lt;b&gt;\\\\x1b'
    """
    return _entities(escaped(text), quote=quote)


def inert(text: str) -> str:
    """The text without anything that a CI would obey: a line that begins with ``::``, or ``##[`` anywhere.

    Example:
        >>> print(inert("  ::error::x\\nsee ##[group]"))
          \\x3a:error::x
        see #\\x23[group]
    """
    return _COMMAND.sub(lambda found: f"{found[1]}\\x3a" if found[1] is not None else "#\\x23", text)


def as_json(data: Any, *, ascii_only: bool = False) -> str:
    """The data as JSON in which nothing acts: it is escaped JSON's own way, so that whoever reads it gets it exactly.

    Example:
        >>> print(as_json({"name": chr(0x202E)}))
        {
         "name": "\\u202e"
        }
    """
    text = _ACTS.sub(_json_code, dumps(data, indent=1, ensure_ascii=ascii_only, allow_nan=False))
    return _COMMAND.sub(lambda found: found[0] if found[1] is not None else "#\\u0023", text)


def _json_code(found: re.Match[str]) -> str:
    return dumps(found[0])[1:-1] if ord(found[0]) > 0x7F else f"\\u{ord(found[0]):04x}"


# -- encodings ------------------------------------------------------------------------------------------------------

PLAINLY = "gradkit.plainly"
"""The name under which :func:`plainly` is known to ``open(..., errors=...)`` and ``str.encode``."""


def plainly(error: UnicodeError) -> tuple[str, int]:
    """For ``codecs``: what cannot be encoded as a sign that looks like it, else as Python would write it.

    Example:
        >>> "✓ 梯度 →".encode("cp1252", PLAINLY)
        b'v \\\\u68af\\\\u5ea6 ->'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(char: str) -> str:
    sign = _SIGNS.get(char) or unicodedata.normalize("NFKC", char).translate(_BOXES)
    return sign if sign.isascii() else _code(char)


codecs.register_error(PLAINLY, plainly)


def can_say(text: str) -> bool:
    """Whether ``print`` could write the text to this program's output."""
    return fitted(text) == text


def fitted(text: str) -> str:
    """The text as the encoding of this program's output can say it, so that ``print`` never raises for it.

    Example:
        >>> fitted("plain")
        'plain'
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding, PLAINLY).decode(encoding)
    except (LookupError, UnicodeError):  # a stream with an encoding of its own making
        return text
