"""What stays of a panel in its cell when the notebook is closed: its last report, as a page that needs no kernel.

A panel is a widget, and of a widget a saved notebook holds a number that means nothing later. So the panel's cell has a
second output. While the panel is alive it is not seen; where the panel is not, it stands in its place.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from gradkit.source import frames

WIDGET = "application/vnd.jupyter.widget-view+json"
# JupyterLab and Notebook put the outputs of a cell into one area; VS Code puts those of all cells into one page.
_STYLE = (
    ".jp-OutputArea:has(.gkp) .jp-OutputArea-child:has(.gk-kept),"
    'body:is([class*="vscode-"]):has(.gkp) .gk-kept,'
    f'.jp-OutputArea:has(.gk-kept):not(:has(.gkp)) .jp-OutputArea-child:has([data-mime-type="{WIDGET}"])'
    "{display:none}"
)


class Kept:
    """The second output of a panel's cell. Outside of a notebook there is none, and nothing happens.

    Attributes:
        there: whether a cell shows the panel, so that there is something to keep.

    Example:
        >>> kept = Kept()
        >>> kept.put({"text/plain": "a report", "text/html": "<p>a report</p>"}); kept.there
        False
    """

    def __init__(self) -> None:
        self.there = False
        self._id = f"gradkit-{secrets.token_hex(8)}"

    def open(self, page: Mapping[str, str]) -> None:
        """Make the output, below the code of the cell that is running."""
        shell = frames.notebook_shell()
        if hasattr(shell, "kernel"):
            self.there = True
            self._publish(page, update=False)

    def put(self, page: Mapping[str, str]) -> None:
        """Let the output say something else, wherever it is; the cell need not run any more."""
        if self.there:
            with contextlib.suppress(Exception):  # a page that is gone keeps nothing
                self._publish(page, update=True)

    def _publish(self, page: Mapping[str, str], *, update: bool) -> None:
        data: dict[str, Any] = {
            "text/plain": page["text/plain"],
            "text/html": f'<div class="gk-kept"><style>{_STYLE}</style>{page["text/html"]}</div>',
        }
        publisher = frames.notebook_shell().display_pub
        publisher.publish(data, transient={"display_id": self._id}, update=update)
