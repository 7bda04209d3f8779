"""All causes, in their eight families, below the panel: a click on one opens its guide there."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets

from gradkit.core import causes
from gradkit.core.printable import entities as escape
from gradkit.notebook.parts import Button, Column, Sheet, show, shown
from gradkit.report.markup import markdown
from gradkit.teaching.guide import guide
from gradkit.teaching.guide import markdown as page

LOOK = (
    "<style>.gkp .gkf-cause { background: none; border: 0; color: var(--gkp-accent, #0b69c7); cursor: pointer; "
    "font: inherit; padding: 1px 0; text-align: left; text-decoration: underline; } "
    ".gkp .gkp-cause-page { border-top: 2px solid #0b69c7; margin-top: 12px; padding-top: 8px; }</style>"
)


class Families(Column):
    """The list, folded until it is asked for, and below it the guide that was chosen.

    Args:
        go: called with the name of the guide's place when it was opened, for the focus to go there.

    Attributes:
        cause: whose guide is open, ``""`` for none.

    Example:
        >>> families = Families()
        >>> families.toggle()
        >>> families.list.press("detach"); families.cause
        'detach'
    """

    def __init__(self, go: Callable[[str], None] = lambda _: None) -> None:
        self.cause, self._go = "", go
        self.button = Button("panel.causes.show", self.toggle, look="gkp-small gkf-toggle", n=len(causes.causes()))
        self.list, self.page = Sheet(self._choose), ipywidgets.HTML()
        super().__init__(self.button, self.list, self.page, look="gkp-families")
        for hidden in (self.list, self.page):
            show(hidden, False)

    def toggle(self) -> None:
        """Unfold the list, or fold it."""
        unfolded = not shown(self.list)
        show(self.list, unfolded)
        show(self.page, unfolded and self.cause != "")
        self.button.tell(f"panel.causes.{'hide' if unfolded else 'show'}", n=len(causes.causes()))
        self._write()

    def _choose(self, cause: str) -> None:
        if cause in causes.causes():
            self.cause = cause
            show(self.page, True)
            self._write()
            self._go("cause-page")

    def _write(self) -> None:
        super()._write()
        if not shown(self.list):
            return  # reading forty guides takes a moment
        self.list.html = f'{LOOK}<div class="gkp-prose">{"".join(map(self._family, causes.FAMILIES))}</div>'
        if self.cause:
            told = markdown(page(guide(self.cause, self.language)))
            self.page.value = f'<div class="gkp-prose gkp-cause-page" tabindex="-1">{told}</div>'

    def _family(self, family: str) -> str:
        title = self.spoken_html(f"guide.family.{family}")
        found = "".join(map(self._cause, causes.families()[family]))
        return f"<h4>{title}</h4><ul>{found}</ul>"

    def _cause(self, cause: str) -> str:
        title = escape(guide(cause, self.language).title)
        return f'<li><button type="button" class="gkf-cause" data-press="{cause}">{title}</button></li>'
