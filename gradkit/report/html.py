"""The report as HTML: the same sections as the text, with the picture, readable on light and dark pages."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from gradkit.core import i18n, printable
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape
from gradkit.core.records import Location
from gradkit.report import layout
from gradkit.report.layout import CodeLine, Section
from gradkit.source import frames


@functools.cache
def style() -> str:
    """The style sheet of the report."""
    return resources.files("gradkit").joinpath("report/static/report.css").read_text(encoding="utf-8")


def language_code() -> str:
    """The language in use, as pages call it.

    Example:
        >>> with i18n.speaking("zh"): language_code()
        'zh-CN'
    """
    return "zh-CN" if i18n.language() == "zh" else "en"


def write(
    sections: Iterable[Section],
    verdict: str,
    summary: str,
    *,
    healthy: bool,
    drawing: str = "",
    asides: Sequence[tuple[str, str]] = (),
    breakdown: Sequence[Sequence[str]] = (),
    terms: Sequence[Sequence[str]] = (),
) -> str:
    """A fragment that stands on its own: style, verdict, a card for each finding, and the picture (SVG) if given.

    What was looked at and found harmless (``asides``: place and sentence) is folded away, and so are the tables of
    ``breakdown`` and of the ``terms`` of the loss: their heads, then their rows.

    Example:
        >>> "gk-verdict ok" in write((), "Sound.", "4 of 4", healthy=True)
        True
    """
    parts = [
        f'<div class="gk" lang="{language_code()}"><style>{style()}</style>',
        head(verdict, healthy=healthy),
        *(card(section) for section in sections),
    ]
    if drawing:
        name = escape(words("picture.title"))
        parts.append(f'<div class="gk-paper" role="group" aria-label="{name}">{drawing}</div>')
    parts.append(f"{foot(summary, asides, breakdown, terms)}</div>")
    return "\n".join(parts)


def head(verdict: str, *, healthy: bool) -> str:
    """The verdict."""
    return f'<p class="gk-verdict{" ok" if healthy else ""}">{"✓" if healthy else "✗"} {escape(verdict)}</p>'


def foot(
    summary: str,
    asides: Sequence[tuple[str, str]] = (),
    breakdown: Sequence[Sequence[str]] = (),
    terms: Sequence[Sequence[str]] = (),
) -> str:
    """What stands below the picture; the arguments are those of ``write``."""
    said = "<br>".join(map(escape, summary.splitlines()))
    tables = _table(terms, "terms.title") + _table(breakdown, "breakdown.title")
    return f'<p class="gk-summary">{said}</p>{_folded(asides)}{tables}'


def _folded(asides: Sequence[tuple[str, str]]) -> str:
    if not asides:
        return ""
    rows = "".join(f'<li><span class="gk-place">{escape(a)}</span> {escape(b)}</li>' for a, b in asides)
    return f'<details class="gk-more"><summary>{escape(words("report.harmless"))}</summary><ul>{rows}</ul></details>'


def _table(told: Sequence[Sequence[str]], name: str) -> str:
    if not told:
        return ""
    head, *rows = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(told))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    title = escape(words(name))
    within = f'<div class="gk-table" role="group" aria-label="{title}" tabindex="0">{table}</div>'
    return f'<details class="gk-more"><summary>{title}</summary>{within}</details>'


def _tagged(told: Sequence[Sequence[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    yield "th", told[0]
    yield from (("td", row) for row in told[1:])


def page(fragment: str, title: str) -> str:
    """A whole document around a fragment, for a file. Nothing in it runs, and nothing is loaded."""
    return (
        f'<!doctype html><html lang="{language_code()}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(styles=[style()])}">'
        f"<title>{escape(title)}</title>"
        f'<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"></head>'
        f"<body>{fragment}</body></html>\n"
    )


def opening(title: str, styles: Sequence[str], scripts: Iterable[str] = ()) -> str:
    """The beginning of a document in the language in use, up to its body: it loads nothing, and runs these scripts.

    Args:
        title: as markup.
        styles: style sheets, which stand in it.
        scripts: what may run; the body has them.

    Example:
        >>> print(opening("Sound.", ["p{}"]).splitlines()[3])
        <title>Sound.</title><meta name="viewport" content="width=device-width">
    """
    return (
        f'<!doctype html>\n<html lang="{language_code()}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(styles=styles, scripts=scripts)}">\n'
        f'<title>{title}</title><meta name="viewport" content="width=device-width">\n'
        f"{''.join(f'<style>{one}</style>' for one in styles)}</head>\n"
    )


def policy(*, styles: Iterable[str], scripts: Iterable[str] = ()) -> str:
    """What a page may do: nothing but run these very scripts and follow these style sheets. It loads nothing.

    Example:
        >>> policy(styles=["p{}"]).split("; ")[-1]
        "style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y='"
    """
    rules = ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data: blob:"]
    for kind, texts in (("style", styles), ("script", scripts)):
        hashes = " ".join(f"'sha256-{_digest(text)}'" for text in texts)
        rules += [f"{kind}-src {hashes}"] if hashes else []
    return "; ".join(rules)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def card(section: Section, *, more: bool = True, below: str = "") -> str:
    """One finding; with ``more``, the command that prints its guide is named. ``below``: HTML at its end."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in section.facts)
    notes = "".join(
        f'<p><span class="gk-note">{escape(words("report.note"))}</span> {escape(text)} '
        f'<span class="gk-place">{place_link(place, spot)}</span></p>{code(lines)}'
        for (text, place, lines), spot in itertools.zip_longest(section.notes, section.notes_at)
    )
    command = words("report.more", command=f"gradkit guide {section.cause}") if more else ""
    return (
        f'<div class="gk-card"><p class="gk-title"><span class="gk-cause">{escape(section.cause)}</span> '
        f'{escape(section.title)}</p><p class="gk-place">{place_link(section.place, section.at)}</p>'
        f"{code(section.code)}"
        f'<dl class="gk-facts">{facts}</dl>{notes}'
        f'<p><span class="gk-help">{escape(words("report.help"))}</span> {escape(section.help)}</p>'
        f'{code(section.change)}<p class="gk-more">{escape(command)}</p>{below}</div>'
    )


def place_link(text: str, spot: Location | None) -> str:
    """A place, with what ``places.js`` opens it by; what stands behind a space says more of it."""
    if spot is None:
        return escape(text)
    shown = layout.shown_place(spot)
    rest = text[len(shown) :] if text.startswith(shown) else ""
    return f"<span{opens(spot)}>{escape(shown if rest else text)}</span>{escape(rest)}"


def opens(spot: Location) -> str:
    """The attributes of an element that leads to a line."""
    return "".join(f' data-{name}="{escape(value)}"' for name, value in opened_by(spot).items())


def opened_by(spot: Location) -> dict[str, str]:
    """What a line is opened by, as ``places.js`` reads it: its file and number, and the number of its cell if in one.

    Example:
        >>> opened_by(Location("/home/ann/train.py", 41, 9))
        {'file': '/home/ann/train.py', 'line': '41'}
    """
    cell = {"cell": frames.cell_number(spot.file)} if frames.is_cell(spot.file) else {}
    return {"file": printable.name(spot.file, printable.FACT), "line": str(spot.line), **cell}


@functools.cache
def places_script() -> str:
    """What makes links of places, as JavaScript that defines functions and does nothing else."""
    return resources.files("gradkit").joinpath("report/static/places.js").read_text(encoding="utf-8")


def code(lines: Iterable[CodeLine]) -> str:
    """Lines of code with their numbers; the expression in question is underlined, its label stands below it."""
    rows = [row for line in lines for row in _rows(line)]
    return f'<pre class="gk-code" tabindex="0">{chr(10).join(rows)}</pre>' if rows else ""


def _rows(line: CodeLine) -> Iterable[str]:
    number = f'<span class="gk-num">{line.number:>4} </span>'
    if line.sign in ("+", "-"):
        kind = "gk-plus" if line.sign == "+" else "gk-minus"
        return [f'{number}<span class="{kind}">{line.sign} {escape(line.text)}</span>']
    if not line.start:
        return [f"{number}{escape(line.text)}"]
    before, hit, after = (
        line.text[: line.start - 1],
        line.text[line.start - 1 : line.end - 1],
        line.text[line.end - 1 :],
    )
    rows = [f'{number}{escape(before)}<span class="gk-hit">{escape(hit)}</span>{escape(after)}']
    if line.label:
        indent = len(line.text) - len(line.text.lstrip())
        rows.append(
            f'<span class="gk-num">     </span>{line.text[:indent]}<span class="gk-caret">↑ {escape(line.label)}</span>'
        )
    return rows
