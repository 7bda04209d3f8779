"""The parameter table: one row each, filtered, sorted and in pages, so that thousands of them freeze nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

from gradkit import printable
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.records import Parameter
from gradkit.widgets import order
from gradkit.widgets.parts import Column, Press, Row
from gradkit.widgets.sheet import Sheet

PAGE = 15
_STATES = ("", order.MISSING, *order.STATES)
_ANSWERS = {"": None, "yes": True, "frozen": False}


class Table(Column):
    """What became of every parameter: those that should train and do not come first.

    Example:
        >>> table = Table()
        >>> row = Parameter("fc.weight", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> table.show((row,)); table.speak("en")
        >>> "fc.<wbr>weight" in table.body.html
        True
    """

    def __init__(self) -> None:
        self._language = "en"
        self._rows: tuple[Parameter, ...] = ()
        self.found: list[Parameter] = []
        self.sorted_by, self.down = "gradient", False
        self._page, self._relabelling = 0, False
        self.search = ipywidgets.Text(continuous_update=True)
        self.search.style.description_width = "initial"
        self.state, self.trainable, self.module = (_choice(name) for name in ("state", "trainable", "module"))
        self._filters = {
            "name": self.search, "state": self.state, "trainable": self.trainable, "module": self.module
        }  # fmt: skip
        self.state.options = [(name, name) for name in _STATES]
        self.trainable.options = [(name, name) for name in _ANSWERS]
        self.body, self.count = Sheet(self._pressed), ipywidgets.HTML()
        self.back = Press("panel.table.back", lambda: self._turn(-1), look="gkp-small gkp-table-back")
        self.next = Press("panel.table.next", lambda: self._turn(1), look="gkp-small gkp-table-next")
        super().__init__(
            Row(*self._filters.values(), look="gkp-filter"),
            self.body,
            Row(self.count, self.back, self.next, look="gkp-pager"),
            look="gkp-table",
        )
        for control in self._filters.values():
            control.observe(lambda _: self._look(), "value")

    def show(self, rows: Sequence[Parameter]) -> None:
        """Show other parameters. Filters that were set stay, and so does the order."""
        self._rows = tuple(rows)
        self._offer_modules(self.module.value or "")
        self._look()

    def only(self, module: str) -> None:
        """Show what is in one module, ``""`` for all; no other filter is set."""
        with self.hold_trait_notifications():
            self.search.value = self.state.value = self.trainable.value = ""
        self._offer_modules(module)
        self.module.value = module

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self.search.placeholder = words("panel.table.search", language)
        for name, control in self._filters.items():
            control.description = words(f"panel.table.only.{name}", language)
        states = [words(f"panel.table.state.{name or 'any'}", language) for name in _STATES]
        self._relabel(self.state, list(zip(states, _STATES, strict=True)))
        answers = [words(f"panel.table.{name or 'state.any'}", language) for name in _ANSWERS]
        self._relabel(self.trainable, list(zip(answers, _ANSWERS, strict=True)))
        self._offer_modules(self.module.value or "")
        self._write()

    def _offer_modules(self, chosen: str) -> None:
        found = order.modules(self._rows)
        there = any(row.name.startswith(f"{chosen}.") for row in self._rows)
        extra = [chosen] if chosen and there and chosen not in found else []
        any_module = words("panel.table.state.any", self._language)
        self._relabel(self.module, [(any_module, ""), *((name, name) for name in [*found, *extra])])

    def _relabel(self, control: ipywidgets.Dropdown, options: list[tuple[str, Any]]) -> None:
        """Other words for what there is to choose from; what was chosen stays chosen if it is still there."""
        if options == list(control.options):
            return
        chosen, self._relabelling = control.value, True
        control.options = options
        control.value = chosen if any(value == chosen for _, value in options) else options[0][1]
        self._relabelling = False

    def _pressed(self, name: str) -> None:
        """A click on the head of a column sorts by it, another one the other way round."""
        column = name.removeprefix("sort:")
        if column in order.COLUMNS:
            self.down = not self.down if column == self.sorted_by else False
            self.sorted_by = column
            self._look()

    def _look(self) -> None:
        """Filter and sort anew; begin with the first page."""
        if self._relabelling:
            return
        text, module = str(self.search.value).strip().lower(), self.module.value or ""
        state, trainable = self.state.value or "", _ANSWERS[self.trainable.value or ""]
        found = [row for row in self._rows if order.passes(row, text, state, trainable, module)]
        self.found = order.ordered(found, self.sorted_by, down=self.down)
        self._page = 0
        self._write()

    def _turn(self, pages: int) -> None:
        self._page += pages
        self._write()

    def _write(self) -> None:
        start = self._page * PAGE
        rows = self.found[start : start + PAGE]
        self.back.disabled, self.next.disabled = start == 0, start + PAGE >= len(self.found)
        facts = {"first": start + 1 if rows else 0, "last": start + len(rows), "found": f"{len(self.found):,}"}
        count = words("panel.table.count", self._language, **facts, all=f"{len(self._rows):,}")
        self.count.value = f'<div class="gkp-count" role="status">{escape(count)}</div>'
        head = "".join(self._head(column) for column in order.COLUMNS)
        body = "".join(self._row(row) for row in rows) or (
            f'<tr><td colspan="{len(order.COLUMNS)}" class="gkp-none">{self._say("none")}</td></tr>'
        )
        table = f'<table class="gkp-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        self.body.html = (
            f'<div class="gkp-scroll" tabindex="0" role="group" aria-label="{self._say("rows")}">{table}</div>'
        )

    def _head(self, column: str) -> str:
        way = ("descending" if self.down else "ascending") if column == self.sorted_by else "none"
        mark = {"ascending": "▲", "descending": "▼", "none": "↕"}[way]
        return (
            f'<th scope="col" aria-sort="{way}"><button type="button" class="gkp-sort" data-press="sort:{column}" '
            f'title="{self._say("sort")}">{self._say(column)}<span class="gkp-way" aria-hidden="true">{mark}</span>'
            f"</button></th>"
        )

    def _row(self, row: Parameter) -> str:
        found = order.state(row)
        norm = "" if row.grad_norm is None else f"{row.grad_norm:.3g}"
        name = escape(printable.name(row.name)).replace(".", ".<wbr>")  # where a long one may break
        same = f'<div class="gkp-quiet">{self._say("same", name=row.same_as)}</div>' if row.same_as else ""
        cells = (
            ("gkp-name", f'<span title="{escape(row.module)}, {escape(row.dtype)}">{name}</span>{same}'),
            ("gkp-shape", escape(" × ".join(str(size) for size in row.shape)) or self._say("scalar")),
            ("", self._say("yes" if row.requires_grad else "frozen")),
            ("", self._say("train" if row.training else "eval")),
            (f"gkp-state gkp-is-{found}", self._say(f"state.{found}")),
            ("gkp-norm", norm or "–"),
        )
        return "<tr>" + "".join(f'<td class="{look}">{text}</td>' for look, text in cells) + "</tr>"

    def _say(self, key: str, **facts: object) -> str:
        return escape(words(f"panel.table.{key}", self._language, **facts))


def _choice(name: str) -> ipywidgets.Dropdown:
    control = ipywidgets.Dropdown(options=[("", "")], value="")
    control.style.description_width = "initial"
    control.add_class(f"gkp-only-{name}")
    return control
