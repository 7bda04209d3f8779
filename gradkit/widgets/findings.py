"""The verdict, and one card for every finding: the cause, the line, the evidence, the change."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ipywidgets

from gradkit import html
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.report import Report
from gradkit.widgets.parts import Column, Press, Row, show

FIRST = 4
"""How many findings are shown before a person asks for the others."""


class Findings(Column):
    """What is wrong, in the order in which to change it.

    Args:
        walk: called with the index of the finding whose guide a person wants to walk through.
        look: called with the index of the finding that they want to see in the picture.
    """

    def __init__(self, walk: Callable[[int], None], look: Callable[[int], None]) -> None:
        self._report: Report | None = None
        self._language, self._all = "en", False
        self._walk, self._look = walk, look
        self.verdict, self.order = ipywidgets.HTML(), ipywidgets.HTML()
        self.cards = Column(look="gkp-cards")
        self.more = Press("panel.findings.more", self._show_all, look="gkp-small", n=0)
        super().__init__(self.verdict, self.order, self.cards, self.more, look="gkp-findings")

    def show(self, report: Report) -> None:
        """Show another report."""
        self._report, self._all = report, False
        self._write()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        self._write()
        self.more.speak(language)

    def _show_all(self) -> None:
        self._all = True
        self._write()

    def _write(self) -> None:
        report = self._report
        if report is None:
            return
        look, mark = ("gkp-good", "✓") if report.healthy else ("gkp-bad", "✗")
        self.verdict.value = (
            f'<div class="gkp-verdict {look}" tabindex="-1"><span class="gkp-mark">{mark}</span>'
            f"<div><p>{escape(report.verdict(self._language))}</p>"
            f'<p class="gkp-quiet">{escape(report.summary(self._language))}</p></div></div>'
        )
        count = len(report.findings)
        order = escape(words("panel.findings.order", self._language, n=count)) if count > 1 else ""
        self.order.value = f'<p class="gkp-order">{order}</p>'
        show(self.order, count > 1)
        shown = count if self._all else FIRST
        self.cards.children = tuple(self._card(report, index) for index in range(min(count, shown)))
        show(self.cards, bool(count))
        self.more.facts = {"n": count}
        show(self.more, count > shown)

    def _card(self, report: Report, index: int) -> Column:
        section = report.sections(self._language)[index]
        body = ipywidgets.HTML(f'<div class="gk">{html.card(section, self._language, more=False)}</div>')
        walk = Press("panel.findings.walk", functools.partial(self._walk, index), look="gkp-accent")
        look = Press("panel.findings.look", functools.partial(self._look, index))
        row = Row(walk, look, look="gkp-buttons")
        row.speak(self._language)
        return Column(body, row, look="gkp-finding")
