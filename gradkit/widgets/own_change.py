"""The change on the user's own lines: shown, written into the file if they ask for it, and taken back."""

from __future__ import annotations

import os
from collections.abc import Callable

import ipywidgets

from gradkit import edits, html
from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.layout import CodeLine
from gradkit.printable import entities as escape
from gradkit.widgets.parts import Column, Press, Row, Say, show
from gradkit.widgets.problem import Problem
from gradkit.widgets.stops import Stop


class OwnChange(Column):
    """What to change in the user's file, for one stop.

    Args:
        again: called when a person wants to diagnose again after the change.

    Attributes:
        reloads: whether another diagnosis reads the file anew; objects of a notebook keep the code that made them.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._language = "en"
        self._stop: Stop | None = None
        self.reloads = True
        self.body, self.note, self.problem = ipywidgets.HTML(), Say(look="gkp-note", tag="p"), Problem()
        self.write = Press("panel.change_file.write", self._write, look="gkp-accent gkp-write", file="")
        self.undo = Press("panel.change_file.undo", self._undo, look="gkp-undo")
        self.again = Press("panel.guide.again", again, look="gkp-primary gkp-change-again")
        buttons = Row(self.write, self.undo, self.again, look="gkp-buttons")
        super().__init__(self.body, self.problem, self.note, buttons, look="gkp-own-change")
        self.show(None)

    def show(self, stop: Stop | None) -> None:
        """Show the change of another stop, or nothing."""
        self._stop = stop
        self.problem.tell(None)
        self._arrange()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        self._arrange()
        super().speak(language)

    def _arrange(self) -> None:
        stop = self._stop
        written = stop is not None and stop.edit is not None
        changes = stop.changes if stop is not None else ()
        show(self, bool(changes) or written)
        if stop is None or not (changes or written):
            return
        title = escape(words("panel.change_file.title", self._language, place=stop.place))
        shown = stop.edit.changes if stop.edit is not None else changes
        lines = html.code(CodeLine(c.number, c.text, sign=c.sign) for c in shown)
        self.body.value = f'<div class="gk gkp-own"><p class="gkp-own-title">{title}</p>{lines}</div>'
        spot = stop.finding.location
        file = spot.file if spot is not None else ""
        self.write.facts = {"file": os.path.basename(file)}
        self.write.speak(self._language)
        show(self.write, not written and edits.possible(file, changes))
        show(self.undo, written)
        show(self.again, written and self.reloads)
        if written:
            assert stop.edit is not None
            key = "written" if self.reloads else "written_restart"
            self.note.tell(f"panel.change_file.{key}", copy=stop.edit.copy.name, file=stop.edit.path.name)
        else:
            self.note.tell("" if edits.possible(file, changes) else "panel.change_file.by_hand")

    def _write(self) -> None:
        stop = self._stop
        if stop is None or stop.edit is not None or stop.finding.location is None:
            return
        try:
            spot = stop.finding.location
            stop.edit = edits.apply(spot.file, stop.changes, spot.digest)
            self.problem.tell(None)
        except GradkitError as error:
            self.problem.tell(error)
        self._arrange()

    def _undo(self) -> None:
        stop = self._stop
        if stop is None or stop.edit is None:
            return
        try:
            edits.undo(stop.edit)
            stop.edit = None
            self.problem.tell(None)
        except GradkitError as error:
            self.problem.tell(error)
        self._arrange()
