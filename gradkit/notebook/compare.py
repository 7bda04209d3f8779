"""What a change did: the reports before and after it beside each other, with the lines that were changed."""

from __future__ import annotations

import base64
from dataclasses import replace

import ipywidgets

from gradkit.core.errors import GradkitError
from gradkit.core.printable import entities as escape
from gradkit.notebook.parts import Column
from gradkit.report import fixed, html
from gradkit.report.fixed import Lines
from gradkit.report.report import Report


class Compare(Column):
    """Two reports beside each other: their pictures, how many parameters are reached, and what became of the findings.

    The lines that were changed are marked on either side. It is drawn when ``look`` is called, not before.
    """

    def __init__(self) -> None:
        self._pair: tuple[Report, Report] | None = None
        self._drawn: tuple[Report, Report, str] | None = None
        self._lines: tuple[Lines, Lines] = ((), ())
        self.words, self.before, self.after = (ipywidgets.HTML() for _ in range(3))
        pictures = ipywidgets.HBox((self.before, self.after))
        pictures.add_class("gkp-two")
        super().__init__(self.words, pictures, look="gkp-compare")

    @property
    def there(self) -> bool:
        """Whether there is something to compare."""
        return self._pair is not None

    @property
    def differs(self) -> bool:
        """Whether the two reports say different things."""
        if self._pair is None:
            return False
        before, after = self._pair
        return fixed.places(before.findings) != fixed.places(after.findings) or _alive(before) != _alive(after)

    def show(self, before: Report | None, after: Report) -> None:
        """Compare two other reports; nothing, if there is none before."""
        self._pair = None if before is None else (before, after)
        lines = fixed.changed_lines(before.findings, after.findings) if before is not None else ((), ())
        self._lines = _dedented(*lines)
        if self._pair is None:
            self._drawn = None
            self.words.value = self.before.value = self.after.value = ""

    def _write(self) -> None:
        if self._drawn is not None:
            self.look()

    def look(self) -> None:
        """Draw, unless it is drawn already."""
        if self._pair is None or self._drawn == (*self._pair, self.language):
            return
        before, after = self._pair
        self._drawn = (before, after, self.language)
        self.words.value = f'<ul class="gkp-changes">{"".join(self._changes(before, after))}</ul>'
        self.before.value = self._side("before", before, self._lines[0])
        self.after.value = self._side("after", after, self._lines[1])

    def _side(self, name: str, report: Report, lines: Lines) -> str:
        wanted = [row for row in report.parameters if row.should_train]
        facts = {"n": sum(row.reached for row in wanted), "all": len(wanted)}
        title, reached = self.spoken_html(f"panel.compare.{name}"), self.spoken_html("panel.compare.reached", **facts)
        head = f"<h4>{title}</h4><p>{reached}</p>"
        head += f'<div class="gk gkp-fixed">{html.code(lines)}</div>' if lines else ""
        try:
            drawn = base64.b64encode(report.svg("map", self.language).encode()).decode()
            picture = f'<img alt="{escape(report.verdict(self.language))}" src="data:image/svg+xml;base64,{drawn}">'
        except GradkitError as error:
            picture = f"<p>{escape(error.text(self.language))}</p>"
        return f'<div class="gkp-side">{head}<div class="gkp-paper">{picture}</div></div>'

    def _changes(self, before: Report, after: Report) -> list[str]:
        old, new = fixed.places(before.findings), fixed.places(after.findings)
        gained = len(_alive(after) - _alive(before))
        rows = [("good", "cured", place) for place in old if place not in new]
        rows += [("bad", "left", place) for place in new if place in old]
        rows += [("bad", "new", place) for place in new if place not in old]
        told = [(look, self.spoken_html(f"panel.compare.{key}", what=place)) for look, key, place in rows]
        if gained:
            told.insert(0, ("good", self.spoken_html("panel.compare.alive", n=gained)))
        if not told:
            return [f"<li>{self.spoken_html('panel.compare.same')}</li>"]
        return [f'<li class="gkp-{look}">{text}</li>' for look, text in told]


def _alive(report: Report) -> set[str]:
    return {row.name for row in report.parameters if row.reached}


def _dedented(before: Lines, after: Lines) -> tuple[Lines, Lines]:
    """The same lines without the indentation that all of them have: there is little room for two sides."""
    texts = [line.text for line in (*before, *after) if line.text.strip()]
    most = min((len(text) - len(text.lstrip()) for text in texts), default=0)
    return tuple(replace(line, text=line.text[most:]) for line in before), tuple(
        replace(line, text=line.text[most:]) for line in after
    )
