"""The parameter table: one row each, filtered and in pages, so that thousands of them freeze nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import ipywidgets

from gradkit.i18n import words
from gradkit.records import Parameter
from gradkit.widgets.parts import Column, Press, Row

PAGE = 15
_COLUMNS = ("name", "shape", "trainable", "mode", "gradient", "norm")


class Table(Column):
    """What became of every parameter: those that should train and do not come first.

    Example:
        >>> table = Table()
        >>> row = Parameter("fc.weight", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> table.show((row,)); table.speak("en")
        >>> "fc.<wbr>weight" in table.body.value
        True
    """

    def __init__(self) -> None:
        self._language = "en"
        self._rows: tuple[Parameter, ...] = ()
        self._page = 0
        self.search = ipywidgets.Text(continuous_update=True)
        self.only = ipywidgets.Checkbox(indent=False)
        self.body, self.count = ipywidgets.HTML(), ipywidgets.HTML()
        self.back = Press("panel.table.back", lambda: self._turn(-1), look="gkp-small gkp-table-back")
        self.next = Press("panel.table.next", lambda: self._turn(1), look="gkp-small gkp-table-next")
        super().__init__(
            Row(self.search, self.only, look="gkp-filter"),
            self.body,
            Row(self.count, self.back, self.next, look="gkp-pager"),
            look="gkp-table",
        )
        for control in (self.search, self.only):
            control.observe(lambda _: self._first_page(), "value")

    def show(self, rows: Sequence[Parameter]) -> None:
        """Show other parameters. Filters that were set stay."""
        self._rows = tuple(sorted(rows, key=_rank))
        self._first_page()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self.search.placeholder = words("panel.table.search", language)
        self.only.description = words("panel.table.only", language)
        self._write()

    @property
    def found(self) -> list[Parameter]:
        """The rows that pass the filters."""
        wanted = str(self.search.value).strip().lower()
        return [
            row
            for row in self._rows
            if wanted in f"{row.name} {row.module}".lower() and not (self.only.value and row.reached)
        ]

    def _first_page(self) -> None:
        self._page = 0
        self._write()

    def _turn(self, pages: int) -> None:
        self._page += pages
        self._write()

    def _write(self) -> None:
        found = self.found
        start = self._page * PAGE
        rows = found[start : start + PAGE]
        self.back.disabled, self.next.disabled = start == 0, start + PAGE >= len(found)
        facts = {"first": start + 1 if rows else 0, "last": start + len(rows), "found": f"{len(found):,}"}
        count = words("panel.table.count", self._language, **facts, all=f"{len(self._rows):,}")
        self.count.value = f'<div class="gkp-count" role="status">{escape(count)}</div>'
        head = "".join(f'<th scope="col">{self._say(f"panel.table.{name}")}</th>' for name in _COLUMNS)
        body = "".join(self._row(row) for row in rows) or (
            f'<tr><td colspan="{len(_COLUMNS)}" class="gkp-none">{self._say("panel.table.none")}</td></tr>'
        )
        table = f'<table class="gkp-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        self.body.value = f'<div class="gkp-scroll">{table}</div>'

    def _row(self, row: Parameter) -> str:
        state = _state(row)
        norm = "" if row.grad_norm is None else f"{row.grad_norm:.3g}"
        name = escape(row.name).replace(".", ".<wbr>")  # where a long one may break
        cells = (
            ("gkp-name", f'<span title="{escape(row.module)}, {escape(row.dtype)}">{name}</span>'),
            ("gkp-shape", escape(" × ".join(str(size) for size in row.shape)) or self._say("panel.table.scalar")),
            ("", self._say("panel.table.yes" if row.requires_grad else "panel.table.frozen")),
            ("", self._say("panel.table.train" if row.training else "panel.table.eval")),
            (f"gkp-state gkp-is-{state}", self._say(f"panel.table.state.{state}")),
            ("gkp-norm", norm or "–"),
        )
        return "<tr>" + "".join(f'<td class="{look}">{text}</td>' for look, text in cells) + "</tr>"

    def _say(self, key: str) -> str:
        return escape(words(key, self._language))


def _state(row: Parameter) -> str:
    if row.reached:
        return "reached"
    if row.should_train:
        return "starved" if row.used else "unused"
    return "frozen"


def _rank(row: Parameter) -> int:
    return {"starved": 0, "unused": 0, "reached": 1, "frozen": 2}[_state(row)]
