"""Before and after: what another diagnosis of the same program shows that the one before it did not."""

from __future__ import annotations

import base64

import ipywidgets

from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.records import Finding
from gradkit.report import Report
from gradkit.widgets.parts import Column


class Compare(Column):
    """Two reports beside each other: their pictures, how many parameters are reached, and what became of the findings.

    It is drawn when ``look`` is called, not before.
    """

    def __init__(self) -> None:
        self._language = "en"
        self._pair: tuple[Report, Report] | None = None
        self._drawn: tuple[Report, Report, str] | None = None
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
        return _places(before) != _places(after) or _alive(before) != _alive(after)

    def show(self, before: Report | None, after: Report) -> None:
        """Compare two other reports; nothing, if there is none before."""
        self._pair = None if before is None else (before, after)
        if self._pair is None:
            self._drawn = None
            self.words.value = self.before.value = self.after.value = ""

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        if self._drawn is not None:
            self.look()

    def look(self) -> None:
        """Draw, unless it is drawn already."""
        if self._pair is None or self._drawn == (*self._pair, self._language):
            return
        before, after = self._pair
        self._drawn = (before, after, self._language)
        self.words.value = f'<ul class="gkp-changes">{"".join(self._changes(before, after))}</ul>'
        self.before.value = self._side("before", before)
        self.after.value = self._side("after", after)

    def _side(self, name: str, report: Report) -> str:
        wanted = [row for row in report.parameters if row.should_train]
        facts = {"n": sum(row.reached for row in wanted), "all": len(wanted)}
        head = f"<h4>{self._say(name)}</h4><p>{self._say('reached', **facts)}</p>"
        try:
            drawn = base64.b64encode(report.svg("map", self._language).encode()).decode()
            picture = f'<img alt="{escape(report.verdict(self._language))}" src="data:image/svg+xml;base64,{drawn}">'
        except GradkitError as error:
            picture = f"<p>{escape(error.text(self._language))}</p>"
        return f'<div class="gkp-side">{head}<div class="gkp-paper">{picture}</div></div>'

    def _changes(self, before: Report, after: Report) -> list[str]:
        old, new = _places(before), _places(after)
        gained = len(_alive(after) - _alive(before))
        rows = [("good", "cured", place) for place in old if place not in new]
        rows += [("bad", "left", place) for place in new if place in old]
        rows += [("bad", "new", place) for place in new if place not in old]
        said = [f'<li class="gkp-{look}">{self._say(key, what=place)}</li>' for look, key, place in rows]
        if gained:
            said.insert(0, f'<li class="gkp-good">{self._say("alive", n=gained)}</li>')
        return said or [f"<li>{self._say('same')}</li>"]

    def _say(self, key: str, **facts: object) -> str:
        return escape(words(f"panel.compare.{key}", self._language, **facts))


def _alive(report: Report) -> set[str]:
    return {row.name for row in report.parameters if row.reached}


def _places(report: Report) -> list[str]:
    """Cause and code of each finding: line numbers move when a file is changed."""
    return list(dict.fromkeys(map(_place, report.findings)))


def _place(finding: Finding) -> str:
    code = finding.location.text.strip() if finding.location is not None else ""
    return f"{finding.cause}  {code}".strip()
