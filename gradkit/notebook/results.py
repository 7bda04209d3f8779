"""The results of a diagnosis: what changed since the one before, one card for every finding, and the tabs of it all."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ipywidgets

from gradkit.core.i18n import speaking
from gradkit.core.printable import entities as escape
from gradkit.notebook.compare import Compare
from gradkit.notebook.graph_view import PictureView
from gradkit.notebook.guide_walk import GuideWalk
from gradkit.notebook.parameters import Parameters
from gradkit.notebook.parts import Button, Choice, Column, Row, show
from gradkit.report import html
from gradkit.report.report import Report

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
        self._all = False
        self._walk, self._look = walk, look
        self.verdict, self.order = ipywidgets.HTML(), ipywidgets.HTML()
        self.cards = Column(look="gkp-cards")
        self.more = Button("panel.findings.more", self._show_all, look="gkp-small", n=0)
        super().__init__(self.verdict, self.order, self.cards, self.more, look="gkp-findings")

    def show(self, report: Report) -> None:
        """Show another report."""
        self._report, self._all = report, False
        self._write()

    def _show_all(self) -> None:
        self._all = True
        self._write()

    def _write(self) -> None:
        super()._write()
        report = self._report
        if report is None:
            return
        look, mark = ("gkp-good", "✓") if report.healthy else ("gkp-bad", "✗")
        self.verdict.value = (
            f'<div class="gkp-verdict {look}" tabindex="-1"><span class="gkp-mark">{mark}</span>'
            f"<div><p>{escape(report.verdict(self.language))}</p>"
            f'<p class="gkp-quiet">{escape(report.summary(self.language))}</p></div></div>'
        )
        count = len(report.findings)
        order = self.spoken_html("panel.findings.order", n=count) if count > 1 else ""
        self.order.value = f'<p class="gkp-order">{order}</p>'
        show(self.order, count > 1)
        shown = count if self._all else FIRST
        self.cards.children = tuple(self._card(report, index) for index in range(min(count, shown)))
        show(self.cards, bool(count))
        self.more.tell("panel.findings.more", n=count)
        show(self.more, count > shown)

    def _card(self, report: Report, index: int) -> Column:
        with speaking(self.language):
            body = ipywidgets.HTML(f'<div class="gk">{html.card(report.sections()[index], more=False)}</div>')
        walk = Button("panel.findings.walk", functools.partial(self._walk, index), look="gkp-accent")
        look = Button("panel.findings.look", functools.partial(self._look, index))
        row = Row(walk, look, look="gkp-buttons")
        row.speak(self.language)
        return Column(body, row, look="gkp-finding")


PICTURE, COMPARE, TABLE, GUIDE = TABS = ("picture", "compare", "table", "guide")
HEIGHT = 620


class Results(Column):
    """Everything about one report; not there at all before there is one.

    Args:
        again: called when a person wants to diagnose again.
        go: called with the name of the tab after a button has opened it.
    """

    def __init__(self, again: Callable[[], None], go: Callable[[str], None]) -> None:
        self._go = go
        self.report: Report | None = None
        self.findings = Findings(self._open_guide, self._open_picture)
        self.tabs = Choice("panel.tab.", TABS, look="gkp-tabs")
        self.view = PictureView(None, height=HEIGHT)
        self.picture, self.guide = Column(self.view, look="gkp-picture"), GuideWalk(again)
        self.parameters = Parameters()
        self.compare = Compare()
        self.pages = {PICTURE: self.picture, COMPARE: self.compare, TABLE: self.parameters, GUIDE: self.guide}
        tabbed = Column(self.tabs, *self.pages.values(), look="gkp-card gkp-tabbed")
        super().__init__(self.findings, tabbed, look="gkp-results")
        self.tabs.observe(lambda _: self._turn(), "value")
        show(self, False)

    def show(
        self, report: Report, view: PictureView, *, same: bool = False, reloads: bool = True, repeats: bool = True
    ) -> None:
        """Show a report, with its picture drawn already.

        Args:
            report: the newest report.
            view: its picture.
            same: whether it is on the same program as the last, so that the two can be compared.
            reloads: whether another diagnosis would read the user's files anew.
            repeats: whether ``again`` diagnoses the program that the report is on.
        """
        before = self.report if same else None
        self.report = report
        old, self.view = self.view, view
        self.picture.children = (view,)
        old.close()
        self.findings.show(report)
        self.parameters.show(report)
        self.guide.show(report, same=same, reloads=reloads, repeats=repeats)
        self.compare.show(before, report)
        show(self.tabs.buttons[GUIDE], self.guide.stop is not None)
        show(self.tabs.buttons[COMPARE], self.compare.there)
        self.tabs.value = COMPARE if self.compare.differs else PICTURE
        self._turn()
        show(self, True)
        self._write()

    def _write(self) -> None:
        super()._write()
        self._turn()

    def _turn(self) -> None:
        """Show one page. The picture changes its language when it is seen: hidden, it has no size to fit into."""
        for name, page in self.pages.items():
            show(page, name == self.tabs.value)
        if self.tabs.value == COMPARE:
            self.compare.look()
        if self.tabs.value == PICTURE:
            self.view.language = self.language

    def _open_guide(self, index: int) -> None:
        stop = self.guide.at(index)
        if stop is not None:
            self.guide.choose(stop)
        self.tabs.value = GUIDE
        self._go(GUIDE)

    def _open_picture(self, index: int) -> None:
        assert self.report is not None
        self.tabs.value = PICTURE
        if self.view.view == "torchviz" and not self.view.svg:
            self.view.view = "map"  # torchviz cannot draw this one
        boxes = self.view.shown().boxes
        mine = [box.number for box in boxes if box.finding == index and box.kind in ("cut", "plate")]
        self.view.selected = mine[0] if mine else None
        self._go(PICTURE)
