"""The guide to a cause, one step at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import ipywidgets

from gradkit import guide
from gradkit.widgets.markup import markdown, phrase
from gradkit.widgets.parts import Column, Press, Row, show

LAST = len(guide.STEPS) - 1


class GuideWalk(Column):
    """Back and Next through the six steps; the list of steps shows how far one has come.

    Args:
        finish: called at the end, when a person wants to see whether it helped.

    Attributes:
        cause: whose guide is open, ``""`` for none.
        number: the step, counted from 0.

    Example:
        >>> walk = GuideWalk(lambda: None)
        >>> walk.show(("detach",)); walk.speak("en"); walk.go(3)
        >>> guide.STEPS[walk.number], "gkp-minus" in walk.page.value
        ('fix', True)
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._language = "en"
        self._at: dict[str, int] = {}
        self._seen: dict[str, set[int]] = {}
        self.cause = ""
        self.causes = Row(look="gkp-causes")
        self.steps = tuple(
            Press(f"guide.step.{name}", functools.partial(self.go, number), look="gkp-step")
            for number, name in enumerate(guide.STEPS)
        )
        self.title, self.page = ipywidgets.HTML(), ipywidgets.HTML()
        self.back = Press("panel.guide.back", lambda: self.go(self.number - 1), look="gkp-guide-back")
        self.next = Press("panel.guide.next", lambda: self.go(self.number + 1), look="gkp-primary gkp-guide-next")
        self.again = Press("panel.guide.again", finish, look="gkp-primary gkp-guide-again")
        buttons = Row(self.back, self.next, self.again, look="gkp-buttons")
        walk = Row(Column(*self.steps, look="gkp-steps"), Column(self.page, buttons, look="gkp-page"), look="gkp-walk")
        super().__init__(self.causes, self.title, walk, look="gkp-guide")

    @property
    def number(self) -> int:
        """The step that is open, counted from 0."""
        return self._at.get(self.cause, 0)

    def show(self, causes: Sequence[str]) -> None:
        """Offer the guides to some causes and open the first. How far one came in any of them stays."""
        known = [cause for cause in dict.fromkeys(causes) if cause in guide.causes()]
        self.causes.children = tuple(self._chooser(cause) for cause in known) if len(known) > 1 else ()
        show(self.causes, len(known) > 1)
        self.choose(self.cause if self.cause in known else known[0] if known else "")

    def choose(self, cause: str) -> None:
        """Open the guide to a cause where one left it."""
        self.cause = cause
        for button in self.causes.children:
            (button.add_class if button.description == cause else button.remove_class)("gkp-on")
        self.go(self.number)

    def go(self, number: int) -> None:
        """Open a step, counted from 0; before the first is the first, behind the last the last."""
        if self.cause:
            self._at[self.cause] = min(max(number, 0), LAST)
            self._seen.setdefault(self.cause, set()).add(self.number)
        self._write()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self._write()

    def _chooser(self, cause: str) -> ipywidgets.Button:
        button = ipywidgets.Button(description=cause)
        button.on_click(lambda _: self.choose(cause))
        button.add_class("gkp-cause")
        return button

    def _write(self) -> None:
        if not self.cause:
            return
        text = guide.guide(self.cause, self._language)
        step = text.steps[self.number]
        head = f"<h3>{phrase(text.title)}</h3><p>{phrase(text.summary)}</p>"
        self.title.value = f'<div class="gkp-guide-title">{head}</div>'
        body = f"<h4>{self.number + 1}. {phrase(step.title)}</h4>{markdown(step.markdown)}"
        self.page.value = f'<div class="gkp-prose" tabindex="-1">{body}</div>'
        seen = self._seen[self.cause]
        for number, button in enumerate(self.steps):
            (button.add_class if number == self.number else button.remove_class)("gkp-now")
            (button.add_class if number in seen and number != self.number else button.remove_class)("gkp-done")
        self.back.disabled = self.number == 0
        show(self.next, self.number < LAST)
        show(self.again, self.number == LAST)
