"""A piece of HTML with buttons in it: what ipywidgets' own HTML cannot have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets


class Sheet(anywidget.AnyWidget):
    """Shows HTML; a click on a ``<button data-press="name">`` in it is told to Python.

    Attributes:
        html: what to show. A button that had the focus has it again when the HTML has changed.

    Args:
        act: called with the name of the button that was pressed.

    Example:
        >>> heard = []
        >>> sheet = Sheet(heard.append)
        >>> sheet.press("sort:name"); heard
        ['sort:name']
    """

    _esm = Path(__file__).parent / "static" / "sheet.js"

    html = traitlets.Unicode("").tag(sync=True)

    def __init__(self, act: Callable[[str], None]) -> None:
        super().__init__()
        self._act = act
        self.on_msg(self._heard)

    def press(self, name: str) -> None:
        """Press a button from Python."""
        self._act(name)

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and "press" in content:
            self.press(str(content["press"]))
