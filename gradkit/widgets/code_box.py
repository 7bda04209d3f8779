"""Code that a reader can change and run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from gradkit.i18n import words


class CodeBox(anywidget.AnyWidget):
    """A box of code.

    Args:
        key: the key of what screen readers call it.
        run: called when Shift+Enter or Ctrl+Enter is pressed in it.

    Attributes:
        value: the code.

    Example:
        >>> box = CodeBox("quiz.code", lambda: None)
        >>> box.value = "1 + 1"; box.value
        '1 + 1'
    """

    _esm = Path(__file__).parent / "static" / "code_box.js"

    value = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)

    def __init__(self, key: str, run: Callable[[], None]) -> None:
        super().__init__()
        self._key, self._run = key, run
        self.on_msg(self._heard)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self.label = words(self._key, language)

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and content.get("run"):
            code = content.get("code")
            if isinstance(code, str):
                self.value = code
            self._run()
