"""The parameters counted by module, to be opened step by step."""

from __future__ import annotations

from collections.abc import Callable

from gradkit import breakdown
from gradkit.breakdown import Share
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.report import Report
from gradkit.widgets.parts import Column
from gradkit.widgets.sheet import Sheet

MOST = 300
"""How many rows are shown; a table of thousands would freeze the page."""
_ALL_THE_WAY = 99


class ByModule(Column):
    """How much each module holds, should train, may train and is reached; a module opens in place.

    Args:
        list_rows: called with the path of a module whose parameters a person wants to see one by one.
    """

    def __init__(self, list_rows: Callable[[str], None]) -> None:
        self._language = "en"
        self._list_rows = list_rows
        self._shares: tuple[Share, ...] = ()
        self.opened: set[str] = set()
        self.body = Sheet(self._pressed)
        super().__init__(self.body, look="gkp-by-module")

    def show(self, report: Report) -> None:
        """Show another report. Modules that were opened stay open."""
        self._shares = breakdown.shares(report.parameters, report.picture.modules, _ALL_THE_WAY)
        self._write()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
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
        columns = ("module", *breakdown.COUNTS, "mode", "remark")
        look = dict.fromkeys(breakdown.COUNTS, ' class="gkp-number"')
        head = "".join(f'<th scope="col"{look.get(name, "")}>{self._say(name)}</th>' for name in columns)
        body = "".join(self._row(share) for share in seen[:MOST])
        if len(seen) > MOST:
            more = escape(words("panel.by_module.more", self._language, n=f"{len(seen) - MOST:,}"))
            body += f'<tr><td colspan="{len(columns)}" class="gkp-none">{more}</td></tr>'
        label = escape(words("panel.by_module.label", self._language))
        table = f'<table class="gkp-rows gkp-modules"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        self.body.html = f'<div class="gkp-scroll" tabindex="0" role="group" aria-label="{label}">{table}</div>'

    def _row(self, share: Share) -> str:
        counts = "".join(f'<td class="gkp-number">{getattr(share, name):,}</td>' for name in breakdown.COUNTS)
        look = next((name for name in ("starved", "partly", "loose", "good") if name in share.remarks), "none")
        remark = escape(breakdown.remarks(share, self._language))
        return (
            f'<tr><th scope="row" class="gkp-name" style="padding-left: {share.level * 18}px">{self._name(share)}</th>'
            f'{counts}<td>{self._say(share.mode)}</td><td class="gkp-remark gkp-is-{look}">{remark}</td></tr>'
        )

    def _name(self, share: Share) -> str:
        name, path = escape(breakdown.name(share, self._language)), escape(share.path, quote=True)
        kind = f' <span class="gkp-quiet">{escape(share.kind)}</span>' if share.kind else ""
        if not share.level or not share.deeper:
            return f"<span>{name}{kind}</span>"
        is_open = share.path in self.opened
        rows = escape(words("panel.by_module.list", self._language, name=share.path), quote=True)
        return (
            f'<button type="button" class="gkp-fold" data-press="open:{path}" aria-expanded="{str(is_open).lower()}">'
            f'<span aria-hidden="true">{"▾" if is_open else "▸"}</span> {name}</button>{kind} '
            f'<button type="button" class="gkp-list-rows" data-press="list:{path}" title="{rows}" aria-label="{rows}">'
            f"☰</button>"
        )

    def _say(self, name: str) -> str:
        return escape(words(f"breakdown.{name}", self._language))
