"""How far a diagnosis has come: the stages, the one that is running, and for how long."""

from __future__ import annotations

import ipywidgets

from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.widgets.parts import Column, show

STAGES = ("load", "trace", "reach", "cuts", "replay", "causes", "draw")


class Progress(Column):
    """A line of stages and the seconds so far; not there at all while nothing runs.

    Example:
        >>> progress = Progress()
        >>> progress.at("reach", 1.25); progress.speak("en")
        >>> "1.2 s" in progress.clock.value
        True
    """

    def __init__(self) -> None:
        self._language, self._stage, self._seconds, self._cancelling = "en", "", 0.0, False
        self.line, self.clock = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__(self.line, self.clock, look="gkp-progress")
        self.stop()

    def at(self, stage: str, seconds: float, *, cancelling: bool = False) -> None:
        """Show a stage as running, those before it as done."""
        fresh = (stage, cancelling) != (self._stage, self._cancelling)
        self._stage, self._seconds, self._cancelling = stage, seconds, cancelling
        if fresh:
            self._write_line()
        self._write_clock()
        show(self, True)

    def stop(self) -> None:
        """Nothing runs any more."""
        self._stage = ""
        show(self, False)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        self._write_line()
        self._write_clock()

    def _write_line(self) -> None:
        now = STAGES.index(self._stage) if self._stage in STAGES else 0
        looks = ["gkp-past"] * now + ["gkp-current"] + [""] * (len(STAGES) - now - 1)
        items = "".join(
            f'<li class="{look}">{escape(words(f"panel.stage.{stage}", self._language))}</li>'
            for stage, look in zip(STAGES, looks, strict=True)
        )
        self.line.value = f'<ol class="gkp-stages">{items}</ol>'

    def _write_clock(self) -> None:
        key = "panel.cancelling" if self._cancelling else "panel.elapsed"
        text = words(key, self._language, seconds=f"{self._seconds:.1f}")
        self.clock.value = f'<p class="gkp-quiet">{escape(text)}</p>'
