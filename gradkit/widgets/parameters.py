"""The page of the parameters: one by one, or counted by module."""

from __future__ import annotations

from gradkit.report import Report
from gradkit.widgets.by_module import ByModule
from gradkit.widgets.parts import Column, Segments, show
from gradkit.widgets.table import Table

LIST, MODULES = WAYS = ("list", "modules")


class Parameters(Column):
    """Both ways to look at the parameters of a report."""

    def __init__(self) -> None:
        self.ways = Segments("panel.parameters.", WAYS, look="gkp-mode")
        self.table, self.by_module = Table(), ByModule(self._list)
        super().__init__(self.ways, self.table, self.by_module, look="gkp-parameters")
        self.ways.observe(lambda _: self._turn(), "value")
        self._turn()

    def show(self, report: Report) -> None:
        """Show another report."""
        self.table.show(report.parameters)
        self.by_module.show(report)

    def _turn(self) -> None:
        show(self.table, self.ways.value == LIST)
        show(self.by_module, self.ways.value == MODULES)

    def _list(self, module: str) -> None:
        self.table.only(module)
        self.ways.value = LIST
