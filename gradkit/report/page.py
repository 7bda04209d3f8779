"""A report as one page that needs nothing else: no kernel, no network, no other file.

Its words stand in it in both languages, with the guides; its drawings as data for the viewer, whose script it holds.
Without a script it shows the still picture. Its policy lets nothing run but that script, and nothing load.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit.core import package, printable
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import in_each, language, speaking, words
from gradkit.core.printable import entities as escape
from gradkit.core.records import Finding
from gradkit.report import html, markup
from gradkit.report.layout import Section
from gradkit.report.picture import viewer
from gradkit.report.picture.held import Held

HEIGHT = 620
"""Of the viewer, in pixels at most."""

_STATIC = package.FOLDER / "report" / "static"
_MARGIN = re.compile(r"^[ \t]+(?://.*)?|^//.*", re.MULTILINE)
_COLOURS = ("auto", "light", "dark")


@dataclass(frozen=True)
class Told:
    """What a page says in one language.

    Attributes:
        verdict: the whole diagnosis in one sentence.
        sections: the findings, laid out.
        foot: HTML below the picture.
        healthy: whether there are none.
    """

    verdict: str
    sections: tuple[Section, ...]
    foot: str
    healthy: bool


def write(
    told: dict[str, Told], findings: Sequence[Finding], drawings: Sequence[Held], first: str, view: str, *, framed: bool
) -> str:
    """The page.

    Args:
        told: what it says, by language.
        findings: those that the sections are about.
        drawings: what it shows.
        first: the language that it is opened in.
        view: the view that it is opened in.
        framed: it lies in a frame of another page: without margins, and with the still picture in one language only.

    Example:
        >>> one = in_each(lambda: Told("Sound.", (), "", True))
        >>> page = write(one, (), [Held(code, "map", (), None, "no picture") for code in one], "en", "map",
        ...              framed=False)
        >>> page.count("Sound."), "script-src 'sha256-" in page
        (5, True)
    """
    styles, script = (html.style(), _style()), _script()
    first_drawn = (one.shown.info for one in drawings if one.shown and one.view == view and not one.opened)
    placed = {card["finding"] for info in first_drawn for card in info.values()}
    above = functools.partial(_above, findings=findings, placed=placed)
    with speaking(first):
        head, bar = html.opening(escape(told[first].verdict), styles, [script]), _bar(first)
        label = escape(words("page.picture"))
    return (
        f'{head}<body class="gkr{" gkr-in" if framed else ""}">{bar}\n<main>{"".join(_each(told, above))}\n'
        f'<section class="gkr-picture" aria-label="{label}">{"".join(_stills(drawings, view, first if framed else ""))}'
        f'<div class="gkr-viewer" id="gkr-viewer"></div></section>\n'
        f"{''.join(_each(told, _below))}</main>\n"
        f'<script type="application/json" id="gkr-data">{_data(told, drawings, view)}</script>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


@functools.cache
def _style() -> str:
    return _lean(f"{viewer.style()}\n{(_STATIC / 'page.css').read_text(encoding='utf-8')}")


@functools.cache
def _script() -> str:
    return _lean(f"{viewer.script()}\n{html.places_script()}\n{(_STATIC / 'page.js').read_text(encoding='utf-8')}")


def _lean(text: str) -> str:
    """Without indentation, empty lines, and lines that are all comment."""
    return re.sub(r"\n{2,}", "\n", _MARGIN.sub("", text)).strip()


def _bar(first: str) -> str:
    tongues = "".join(
        f'<label lang="{code}"><input type="radio" name="gkr-language" id="gkr-{one}" value="{one}"'
        f"{' checked' if one == first else ''}>"
        f'<span class="gkr-pick">{words(f"panel.language.{one}", one)}</span></label>'
        for one, code in in_each(html.language_code).items()
    )
    colours = "".join(
        f'<label><input type="radio" name="gkr-colours" id="gkr-{one}" value="{one}"'
        f'{" checked" if one == "auto" else ""}><span class="gkr-pick">{_both(f"page.{one}")}</span></label>'
        for one in _COLOURS
    )
    groups = (("page.language", tongues), ("page.colours", colours))
    fields = "".join(f"<fieldset><legend>{_both(key)}</legend>{inputs}</fieldset>" for key, inputs in groups)
    return f'<header class="gkr-bar"><h1>gradkit</h1>{fields}</header>'


def _both(key: str) -> str:
    """A word in both languages, of which a page shows one."""
    return "".join(
        f'<span class="gkr-{one}" lang="{code}">{escape(words(key, one))}</span>'
        for one, code in in_each(html.language_code).items()
    )


def _each(told: dict[str, Told], part: Callable[[Told], str]) -> Iterable[str]:
    """A part of the page in every language."""

    def said() -> str:
        one = language()
        return f'<div class="gk gkr-{one}" lang="{html.language_code()}">{part(told[one])}</div>'

    return in_each(said).values()


def _above(told: Told, findings: Sequence[Finding], placed: Collection[int | None]) -> str:
    """Verdict and findings; those that have a plate in the first drawing have a button that leads there."""
    guided: set[str] = set()
    cards = []
    for index, (section, finding) in enumerate(zip(told.sections, findings, strict=True)):
        said = escape(words("page.look"))
        look = (
            f'<button type="button" class="gkr-look" value="{index}" hidden>{said}</button>' if index in placed else ""
        )
        guide = "" if finding.cause in guided else _guide(finding.cause)
        guided.add(finding.cause)
        cards.append(html.card(section, more=not guide, below=look + guide))
    return html.head(told.verdict, healthy=told.healthy) + "".join(cards)


def _below(told: Told) -> str:
    return told.foot


def _guide(cause: str) -> str:
    """The guide to a cause, folded, in the language in use; ``""`` where there is none to be read."""
    with contextlib.suppress(GradkitError):
        if package.read_guide is not None:
            text = package.read_guide(cause, language())
            title = escape(words("page.guide", title="\0")).replace(escape("\0"), markup.phrase(text.title))
            steps = "".join(
                f"<h3>{number}. {markup.phrase(step.title)}</h3>{markup.markdown(step.markdown)}"
                for number, step in enumerate(text.steps, 1)
            )
            return (
                f'<details class="gkr-guide"><summary>{title}</summary>'
                f"<p>{markup.phrase(text.summary)}</p>{steps}</details>"
            )
    return ""


def _stills(drawings: Sequence[Held], view: str, alone: str) -> Iterable[str]:
    """The picture for a page without its script; where it cannot be drawn, the sentence that says why.

    In both languages, or in one ``alone``, which is then shown beside the words of either.
    """
    for one in drawings:
        if one.view == view and not one.opened and alone in ("", one.language):
            alt = escape(words("picture.title", one.language))
            if one.shown is not None:
                coded = base64.b64encode(one.shown.svg.encode()).decode()
                inside = f'<img alt="{alt}" src="data:image/svg+xml;base64,{coded}">'
            else:
                inside = f"<p>{escape(one.message)}</p>"
            look = "gkr-still" if alone else f"gkr-still gkr-{one.language}"
            yield f'<figure class="{look}">{inside}</figure>'


def _data(told: dict[str, Told], drawings: Sequence[Held], view: str) -> str:
    """What the script reads, as JSON in which nothing ends a script element."""
    data = {
        "view": view,
        "height": HEIGHT,
        "titles": {code: one.verdict for code, one in told.items()},
        "labels": in_each(viewer.labels),
        "drawings": [_as_data(one) for one in drawings],
    }
    compact = json.dumps(json.loads(printable.as_json(data)), separators=(",", ":"))
    return compact.replace("<", "\\u003c").replace("&", "\\u0026")


def _as_data(one: Held) -> dict[str, Any]:
    shown = one.shown or viewer.Shown("")
    return {
        "language": one.language, "view": one.view, "opened": list(one.opened), "message": one.message,
        "packed": base64.b64encode(shown.packed()).decode(), "limit": shown.limit, "name": shown.name,
    }  # fmt: skip
