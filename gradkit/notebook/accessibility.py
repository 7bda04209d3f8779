"""What ipywidgets cannot say from Python: roles and names for screen readers, keys, where to look next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from gradkit.notebook.parts import Spoken
from gradkit.report import html

_STATIC = Path(__file__).parent / "static"


class Accessibility(Spoken, anywidget.AnyWidget):
    """An invisible part of the panel that looks after the element around it.

    Args:
        region: the key of what the panel is called.

    Attributes:
        language: ``"en"`` or ``"zh"``.
        label: what the panel is called.
        said: read aloud when it changes.
        goal: CSS class of the element to scroll to and to focus, with a number that changes each time.
    """

    _esm = f"{html.places_script()}\n{(_STATIC / 'panel.js').read_text(encoding='utf-8')}"

    language = traitlets.Unicode("en").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    said = traitlets.Unicode("").tag(sync=True)
    goal: traitlets.List[Any] = traitlets.List(default_value=["", 0]).tag(sync=True)
    _moves = 0

    def __init__(self, region: str = "panel.region") -> None:
        super().__init__()
        self._region = region

    def go(self, name: str) -> None:
        """Scroll to the first element of that CSS class, and focus it."""
        self._moves += 1
        self.goal = [name, self._moves]

    def _write(self) -> None:
        self.label = self.spoken(self._region)


def style() -> str:
    """The panel's style sheet, as an element."""
    return f"<style>{(_STATIC / 'panel.css').read_text(encoding='utf-8')}</style>"
