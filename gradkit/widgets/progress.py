"""How far a diagnosis has come: the stages, the one that is running, and for how long."""

from __future__ import annotations

import ipywidgets

from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.widgets.parts import Column, show

STAGES = ("load", "trace", "reach", "cuts", "replay", "causes", "draw")
WAITS = ("waiting", "cells")
"""Told before and between the stages: another diagnosis is running, a cell is."""


class Progress(Column):
    """A line of stages and the seconds so far; not there at all while nothing runs.

    Example:
        >>> progress = Progress()
        >>> progress.at("reach", 1.25); progress.speak("en")
        >>> "1.2 s" in progress.clock.value
        True
    """

    def __init__(self) -> None:
        self._language, self._stage, self._seconds, self._key = "en", "", 0.0, "elapsed"
        self.line, self.clock = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__(self.line, self.clock, look="gkp-progress")
        self.stop()

    def at(self, stage: str, seconds: float, *, cancelling: bool = False, held: bool = False) -> None:
        """Show a stage as running, those before it as done; or what is waited for, and who waits (``held``: a cell)."""
        waits = stage if stage in WAITS else "held" if held else "elapsed"
        self._key, self._seconds = "cancelling" if cancelling else waits, seconds
        if stage not in (self._stage, *WAITS):
            self._stage = stage
            self._write_line()
        self._write_clock()
        show(self, True)

    def stop(self) -> None:
        """Nothing runs any more."""
        self._stage = ""
        self._write_line()
        show(self, False)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        self._write_line()
        self._write_clock()

    def _write_line(self) -> None:
        now = STAGES.index(self._stage) if self._stage in STAGES else -1
        looks = ["gkp-past" if at < now else "gkp-current" if at == now else "" for at in range(len(STAGES))]
        items = "".join(
            f'<li class="{look}">{escape(words(f"panel.stage.{stage}", self._language))}</li>'
            for stage, look in zip(STAGES, looks, strict=True)
        )
        self.line.value = f'<ol class="gkp-stages">{items}</ol>'

    def _write_clock(self) -> None:
        text = words(f"panel.{self._key}", self._language, seconds=f"{self._seconds:.1f}")
        self.clock.value = f'<p class="gkp-quiet">{escape(text)}</p>'
