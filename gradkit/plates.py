"""The plate on a cut: what was lost, the source line with carets under the very call, and how sure that is."""

from __future__ import annotations

from gradkit.lettering import frame, html, line, place_name, points, wide
from gradkit.looks import AMBER, DARK_RED, GREY, INK, RED, SOFT
from gradkit.phrases import Phrases
from gradkit.records import Finding, Location
from gradkit.text import columns

_NEAR = 3
_ACROSS, _LEAST = 66, 40


def plate(finding: Finding, head: str, words: Phrases, *, in_flow: bool, again: bool = False) -> str:
    """The HTML-like label of a plate.

    Args:
        finding: what it tells.
        head: its headline.
        words: the language.
        in_flow: red for a cut in the flow of the data, amber for what stands beside it.
        again: a further place of a finding that already has a plate: its headline names the line, and that is all.

    Example:
        >>> from gradkit.records import Picture
        >>> finding = Finding("detach", Location("a.py", 7, 5, 15, text="y = x.detach()"))
        >>> label = plate(finding, "cut", Phrases(Picture((), (), (), (finding,)), "en"), in_flow=True)
        >>> "a.py:7" in label, "^^^^^^^^^^" in label
        (True, True)
    """
    color = DARK_RED if in_flow else AMBER
    if again:
        head = words.say("again", cause=finding.cause, place=words.place(finding.location))
    headline = f'<font color="white" point-size="12"><b>{html(head)}</b></font>'
    return (
        f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="6" bgcolor="{color}">'
        f'<tr><td align="left" width="{points(head, 12, bold=True)}">{headline}</td></tr>'
        f"{'' if again else _evidence(finding, words, color)}</table>>"
    )


def _evidence(finding: Finding, words: Phrases, color: str) -> str:
    rows = "".join(_source(place, place == finding.location, words.language) for place in _lines(finding))
    if not rows:
        rows = line(words.place(None), 10, color=GREY, left=True)
    rows += line(words.proof(finding), 10, color=SOFT, left=True)
    return (
        f'<tr><td align="left" bgcolor="#FFFBFA" border="1" color="{color}" cellpadding="4">'
        f'<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table></td></tr>'
    )


def _source(place: Location, main: bool, language: str) -> str:
    start = f"{place_name(place, language)}  "
    code, marks = frame(place, max(_LEAST, _ACROSS - columns(start)))
    row = line(start + code, 10, color=INK if main else GREY, code=True)
    if not (main and marks):
        return row
    pad = "".join("\N{IDEOGRAPHIC SPACE}" if wide(char) else " " for char in start)
    return row + line(pad + marks, 10, color=RED, code=True)


def _lines(finding: Finding) -> list[Location]:
    """The line of a finding, and those of its notes that stand right beside it; a mere caller is none of them."""
    main = finding.location
    if main is None:
        return []
    beside = [note.location for note in finding.notes if note.kind != "called_by" and note.location is not None]
    near = {
        place.line: place
        for place in beside
        if place.file == main.file and place.text and 0 < abs(place.line - main.line) <= _NEAR
    }
    return [place for _, place in sorted({**near, main.line: main}.items())]
