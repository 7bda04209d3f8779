"""What a diagnosis found: verdict, findings, and below them the picture, what changed, the parameters and the guide."""

from __future__ import annotations

from collections.abc import Callable

from gradkit.report import Report
from gradkit.widgets.compare import Compare
from gradkit.widgets.findings import Findings
from gradkit.widgets.graph_view import PictureView
from gradkit.widgets.guide_walk import GuideWalk
from gradkit.widgets.parameters import Parameters
from gradkit.widgets.parts import Column, Segments, show

PICTURE, COMPARE, TABLE, GUIDE = TABS = ("picture", "compare", "table", "guide")
HEIGHT = 620


class Results(Column):
    """Everything about one report; not there at all before there is one.

    Args:
        again: called when a person wants to diagnose again.
        go: called with the name of the tab after a button has opened it.
    """

    def __init__(self, again: Callable[[], None], go: Callable[[str], None]) -> None:
        self._language = "en"
        self._go = go
        self.report: Report | None = None
        self.findings = Findings(self._open_guide, self._open_picture)
        self.tabs = Segments("panel.tab.", TABS, look="gkp-tabs")
        self.view = PictureView(None, height=HEIGHT)
        self.picture, self.guide = Column(self.view, look="gkp-picture"), GuideWalk(again)
        self.parameters = Parameters()
        self.compare = Compare()
        self.pages = {PICTURE: self.picture, COMPARE: self.compare, TABLE: self.parameters, GUIDE: self.guide}
        tabbed = Column(self.tabs, *self.pages.values(), look="gkp-card gkp-tabbed")
        super().__init__(self.findings, tabbed, look="gkp-results")
        self.tabs.observe(lambda _: self._turn(), "value")
        show(self, False)

    def show(self, report: Report, view: PictureView, *, same: bool = False, reloads: bool = True) -> None:
        """Show a report, with its picture drawn already.

        Args:
            report: the newest report.
            view: its picture.
            same: whether it is on the same program as the last, so that the two can be compared.
            reloads: whether another diagnosis would read the user's files anew.
        """
        before = self.report if same else None
        self.report = report
        old, self.view = self.view, view
        self.picture.children = (view,)
        old.close()
        self.findings.show(report)
        self.parameters.show(report)
        self.guide.show(report, same=same, reloads=reloads)
        self.compare.show(before, report)
        show(self.tabs.buttons[GUIDE], self.guide.stop is not None)
        show(self.tabs.buttons[COMPARE], self.compare.there)
        self.tabs.value = COMPARE if self.compare.differs else PICTURE
        self._turn()
        show(self, True)
        self.speak(self._language)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self._turn()

    def _turn(self) -> None:
        """Show one page. The picture changes its language when it is seen: hidden, it has no size to fit into."""
        for name, page in self.pages.items():
            show(page, name == self.tabs.value)
        if self.tabs.value == COMPARE:
            self.compare.look()
        if self.tabs.value == PICTURE:
            self.view.language = self._language

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
