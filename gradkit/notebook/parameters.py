"""The page of the parameters: one by one, or counted by module.

The table is filtered, sorted and in pages, so that thousands of rows freeze nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from gradkit.core import printable
from gradkit.core.i18n import speaking
from gradkit.core.printable import entities as escape
from gradkit.core.records import Parameter
from gradkit.notebook.parts import Button, Choice, Column, Row, Sheet, show
from gradkit.report import breakdown
from gradkit.report.breakdown import Share
from gradkit.report.report import Report

MOST = 300
"""How many rows are shown; a table of thousands would freeze the page."""
_ALL_THE_WAY = 99


class ByModule(Column):
    """How much each module holds, should train, may train and is reached; a module opens in place.

    Args:
        list_rows: called with the path of a module whose parameters a person wants to see one by one.
    """

    def __init__(self, list_rows: Callable[[str], None]) -> None:
        self._list_rows = list_rows
        self._shares: tuple[Share, ...] = ()
        self.opened: set[str] = set()
        self.body = Sheet(self._pressed)
        super().__init__(self.body, look="gkp-by-module")

    def show(self, report: Report) -> None:
        """Show another report. Modules that were opened stay open."""
        self._shares = breakdown.shares(report.parameters, report.picture.modules, _ALL_THE_WAY)
        self._write()

    @property
    def seen(self) -> list[Share]:
        """The rows to be seen: the whole, what is right below it, and what is in an opened module."""
        found: list[Share] = []
        closed = _ALL_THE_WAY
        for share in self._shares:
            if share.level > closed:
                continue
            found.append(share)
            closed = _ALL_THE_WAY if not share.level or share.path in self.opened else share.level
        return found

    def _pressed(self, name: str) -> None:
        what, _, path = name.partition(":")
        if what == "open":
            self.opened ^= {path}
            self._write()
        elif what == "list":
            self._list_rows(path)

    def _write(self) -> None:
        seen = self.seen
        columns = ("module", "remark", *breakdown.COUNTS, "mode")  # where there is little room, the last ones scroll
        look = dict.fromkeys(breakdown.COUNTS, ' class="gkp-number"')
        heads = {name: self.spoken_html(f"breakdown.{name}").replace("_", "_<wbr>") for name in columns}
        head = "".join(f'<th scope="col"{look.get(name, "")}>{said}</th>' for name, said in heads.items())
        body = "".join(self._row(share) for share in seen[:MOST])
        if len(seen) > MOST:
            more = self.spoken_html("panel.by_module.more", n=f"{len(seen) - MOST:,}")
            body += f'<tr><td colspan="{len(columns)}" class="gkp-none">{more}</td></tr>'
        label = self.spoken_html("panel.by_module.label")
        table = f'<table class="gkp-rows gkp-modules"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        self.body.html = f'<div class="gkp-scroll" tabindex="0" role="group" aria-label="{label}">{table}</div>'

    def _row(self, share: Share) -> str:
        counts = "".join(f'<td class="gkp-number">{getattr(share, name):,}</td>' for name in breakdown.COUNTS)
        look = next((name for name in ("starved", "partly", "loose", "good") if name in share.remarks), "none")
        with speaking(self.language):
            remark, mode = escape(breakdown.remarks(share)), self.spoken_html(f"breakdown.{share.mode}")
        return (
            f'<tr><th scope="row" class="gkp-name" style="padding-left: {share.level * 18}px">{self._name(share)}</th>'
            f'<td class="gkp-remark gkp-is-{look}">{remark}</td>{counts}<td>{mode}</td></tr>'
        )

    def _name(self, share: Share) -> str:
        with speaking(self.language):
            name, path = escape(breakdown.name(share)), escape(share.path, quote=True)
        kind = f' <span class="gkp-quiet">{escape(share.kind)}</span>' if share.kind else ""
        if not share.level or not share.deeper:
            return f"<span>{name}{kind}</span>"
        is_open = share.path in self.opened
        rows = escape(self.spoken("panel.by_module.list", name=share.path), quote=True)
        return (
            f'<button type="button" class="gkp-fold" data-press="open:{path}" aria-expanded="{str(is_open).lower()}">'
            f'<span aria-hidden="true">{"▾" if is_open else "▸"}</span> {name}</button>{kind} '
            f'<button type="button" class="gkp-list-rows" data-press="list:{path}" title="{rows}" aria-label="{rows}">'
            f"☰</button>"
        )


STATES = ("starved", "unused", "reached", "frozen")
MISSING = "missing"
"""Of the state filter: whatever gets no gradient."""


def training_state(row: Parameter) -> str:
    """``"reached"``, ``"starved"`` or ``"unused"`` (should train, and does not), or ``"frozen"``."""
    if row.reached:
        return "reached"
    if row.should_train:
        return "starved" if row.used else "unused"
    return "frozen"


def passes_filter(row: Parameter, text: str, wanted: str, trainable: bool | None, module: str) -> bool:
    """Whether a row is to be shown.

    Args:
        row: the row.
        text: part of its name or of the class that holds it, in lower case; ``""`` for any.
        wanted: one of ``STATES``, ``MISSING``, or ``""`` for any.
        trainable: its ``requires_grad``; None for either.
        module: dotted path of a module that it is in; ``""`` for any.
    """
    return (
        text in f"{row.name} {row.module}".lower()
        and (not wanted or training_state(row) == wanted or (wanted == MISSING and not row.reached))
        and trainable in (None, row.requires_grad)
        and (not module or row.name.startswith(f"{module}."))
    )


def module_names(rows: Sequence[Parameter]) -> list[str]:
    """The modules that a filter offers: those right below the innermost one that holds everything.

    Example:
        >>> row = Parameter("base.fc.weight", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> from dataclasses import replace
        >>> module_names((row, replace(row, name="base.proj.weight")))
        ['base.fc', 'base.proj']
    """
    paths = [tuple(row.name.split(".")[:-1]) for row in rows]
    level = 0
    while paths and len({path[level] if len(path) > level else None for path in paths}) == 1 and len(paths[0]) > level:
        level += 1
    return list(dict.fromkeys(".".join(path[: level + 1]) for path in paths if len(path) > level))


def ordered(rows: Sequence[Parameter], column: str, *, down: bool) -> list[Parameter]:
    """The rows in the order of a column; rows that are alike stay in the order of the model, unknown norms come last.

    Example:
        >>> row = Parameter("h.10.w", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> from dataclasses import replace
        >>> [one.name for one in ordered((row, replace(row, name="h.9.w")), "name", down=False)]
        ['h.9.w', 'h.10.w']
    """
    known = [row for row in rows if column != "norm" or row.grad_norm is not None]
    unknown = [row for row in rows if column == "norm" and row.grad_norm is None]
    return sorted(known, key=_KEYS[column], reverse=down) + unknown


def _natural(row: Parameter) -> str:
    """Numbers in a name count as numbers: ``h.9`` comes before ``h.10``."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(9), row.name)


def _norm(row: Parameter) -> float:
    return math.inf if row.grad_norm is None or math.isnan(row.grad_norm) else row.grad_norm


_KEYS: dict[str, Callable[[Parameter], Any]] = {
    "name": _natural,
    "gradient": lambda row: {"starved": 0, "unused": 0, "reached": 1, "frozen": 2}[training_state(row)],
    "norm": _norm,
    "trainable": lambda row: not row.requires_grad,
    "mode": lambda row: not row.training,
    "shape": lambda row: row.numel,
}
COLUMNS = tuple(_KEYS)  # what decides comes first: on a narrow page the last are out of sight

PAGE = 15
_STATES = ("", MISSING, *STATES)
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
        self.back = Button("panel.table.back", lambda: self._turn(-1), look="gkp-small gkp-table-back")
        self.next = Button("panel.table.next", lambda: self._turn(1), look="gkp-small gkp-table-next")
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

    def _write(self) -> None:
        super()._write()
        self.search.placeholder = self.spoken("panel.table.search")
        for name, control in self._filters.items():
            control.description = self.spoken(f"panel.table.only.{name}")
        states = [self.spoken(f"panel.table.state.{name or 'any'}") for name in _STATES]
        self._relabel(self.state, list(zip(states, _STATES, strict=True)))
        answers = [self.spoken(f"panel.table.{name or 'state.any'}") for name in _ANSWERS]
        self._relabel(self.trainable, list(zip(answers, _ANSWERS, strict=True)))
        self._offer_modules(self.module.value or "")
        self._write_rows()

    def _offer_modules(self, chosen: str) -> None:
        found = module_names(self._rows)
        there = any(row.name.startswith(f"{chosen}.") for row in self._rows)
        extra = [chosen] if chosen and there and chosen not in found else []
        any_module = self.spoken("panel.table.state.any")
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
        if column in COLUMNS:
            self.down = not self.down if column == self.sorted_by else False
            self.sorted_by = column
            self._look()

    def _look(self) -> None:
        """Filter and sort anew; begin with the first page."""
        if self._relabelling:
            return
        text, module = str(self.search.value).strip().lower(), self.module.value or ""
        state, trainable = self.state.value or "", _ANSWERS[self.trainable.value or ""]
        found = [row for row in self._rows if passes_filter(row, text, state, trainable, module)]
        self.found = ordered(found, self.sorted_by, down=self.down)
        self._page = 0
        self._write_rows()

    def _turn(self, pages: int) -> None:
        self._page += pages
        self._write_rows()

    def _write_rows(self) -> None:
        start = self._page * PAGE
        rows = self.found[start : start + PAGE]
        self.back.disabled, self.next.disabled = start == 0, start + PAGE >= len(self.found)
        facts = {"first": start + 1 if rows else 0, "last": start + len(rows), "found": f"{len(self.found):,}"}
        count = self.spoken_html("panel.table.count", **facts, all=f"{len(self._rows):,}")
        self.count.value = f'<div class="gkp-count" role="status">{count}</div>'
        head = "".join(self._head(column) for column in COLUMNS)
        body = "".join(self._row(row) for row in rows) or (
            f'<tr><td colspan="{len(COLUMNS)}" class="gkp-none">{self.spoken_html("panel.table.none")}</td></tr>'
        )
        table = f'<table class="gkp-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        label = self.spoken_html("panel.table.rows")
        self.body.html = f'<div class="gkp-scroll" tabindex="0" role="group" aria-label="{label}">{table}</div>'

    def _head(self, column: str) -> str:
        way = ("descending" if self.down else "ascending") if column == self.sorted_by else "none"
        mark = {"ascending": "▲", "descending": "▼", "none": "↕"}[way]
        hint, said = self.spoken_html("panel.table.sort"), self.spoken_html(f"panel.table.{column}")
        said = said.replace("_", "_<wbr>")
        return (
            f'<th scope="col" aria-sort="{way}"><button type="button" class="gkp-sort" data-press="sort:{column}" '
            f'title="{hint}">{said}<span class="gkp-way" aria-hidden="true">{mark}</span>'
            f"</button></th>"
        )

    def _row(self, row: Parameter) -> str:
        found, say = training_state(row), self.spoken_html
        norm = "" if row.grad_norm is None else f"{row.grad_norm:.3g}"
        name = escape(printable.name(row.name)).replace(".", ".<wbr>")  # where a long one may break
        same = f'<div class="gkp-quiet">{say("panel.table.same", name=row.same_as)}</div>' if row.same_as else ""
        cells = (
            ("gkp-name", f'<span title="{escape(row.module)}, {escape(row.dtype)}">{name}</span>{same}'),
            (f"gkp-state gkp-is-{found}", say(f"panel.table.state.{found}")),
            ("gkp-norm", norm or "–"),
            ("", say("panel.table.yes" if row.requires_grad else "panel.table.frozen")),
            ("", say("panel.table.train" if row.training else "panel.table.eval")),
            ("gkp-shape", escape(" × ".join(str(size) for size in row.shape)) or say("panel.table.scalar")),
        )
        return "<tr>" + "".join(f'<td class="{look}">{text}</td>' for look, text in cells) + "</tr>"


def _choice(name: str) -> ipywidgets.Dropdown:
    control = ipywidgets.Dropdown(options=[("", "")], value="")
    control.style.description_width = "initial"
    control.add_class(f"gkp-only-{name}")
    return control


LIST, MODULES = WAYS = ("list", "modules")


class Parameters(Column):
    """Both ways to look at the parameters of a report."""

    def __init__(self) -> None:
        self.ways = Choice("panel.parameters.", WAYS, look="gkp-mode")
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
