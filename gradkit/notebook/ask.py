"""The question of an exercise with its four answers to click; what is clicked is kept before anything runs."""

from __future__ import annotations

import functools
from typing import Any

import ipywidgets

from gradkit.core import i18n
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape
from gradkit.notebook.accessibility import Accessibility, style
from gradkit.notebook.parts import Button, Column, Label, show
from gradkit.teaching import predictions
from gradkit.teaching.predictions import LETTERS, Prediction

LOOK = """<style>
.gka-answer { height: auto; text-align: left; white-space: normal; width: auto; }
.gka-mine { box-shadow: inset 5px 0 0 #0b69c7 !important; font-weight: 600; }
</style>"""


class Ask(Column):
    """One question. Until what happened was shown, another answer may be clicked.

    Args:
        name: the exercise.
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Raises:
        GradkitError: ``no_such_exercise``.

    Example:
        >>> Ask("two_cuts", language="en").buttons["d"].description
        'd) it raises'
    """

    def __init__(self, name: str, language: str | None = None) -> None:
        self.exercise, self.language = name, language or i18n.language()
        self.known: Prediction = predictions.predict(name)
        self.manners = Accessibility("ask.region")
        self.question = Label(f"ask.{name}", tag="p", look="gka-question")
        self.buttons = {
            letter: Button("ask.answer", functools.partial(self.choose, letter), look="gka-answer", letter=letter)
            for letter in LETTERS
        }
        self.note = Label(look="gkp-quiet", tag="p")
        look = ipywidgets.HTML(style() + LOOK)
        for unseen in (look, self.manners):
            show(unseen, False)
        super().__init__(look, self.manners, self.question, *self.buttons.values(), self.note, look="gka")
        self.add_class("gkp")
        self.speak(self.language)

    def choose(self, letter: str) -> None:
        """Keep an answer."""
        self.known = predictions.predict(self.exercise, letter)
        self._show()
        self.manners.said = self.spoken("ask.kept", letter=letter)

    def speak(self, language: str) -> None:
        """Show every word in ``language``."""
        for letter, button in self.buttons.items():
            button.facts = {"letter": letter, "text": words(f"ask.{self.exercise}_{letter}", language)}
        super().speak(language)
        self._show()

    def _show(self) -> None:
        for letter, button in self.buttons.items():
            (button.add_class if letter == self.known.predicted else button.remove_class)("gka-mine")
            button.disabled = self.known.happened != ""
        is_kept = self.known.predicted and not self.known.happened
        self.note.tell("ask.kept" if is_kept else "", letter=self.known.predicted)

    def __repr__(self) -> str:
        return f"<gradkit.Ask: {self.exercise}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget; where it cannot be shown, the question as text."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *metadata = bundle if isinstance(bundle, tuple) else (bundle,)
        text = self.known.text(self.language)
        data = {**(data or {}), "text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        return (data, *metadata) if metadata else data
