"""The walk through what was found: one finding after the other, one step of its guide at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ipywidgets

from gradkit import html
from gradkit.checklist import MARKS
from gradkit.guide import STEPS, guide
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.report import Report
from gradkit.widgets.markup import markdown, phrase
from gradkit.widgets.own_change import OwnChange
from gradkit.widgets.parts import Column, Press, Row, show, shown
from gradkit.widgets.stops import Key, Stop, carry_on

LAST = len(STEPS) - 1
SEE, FIX, VERIFY = (STEPS.index(name) for name in ("see", "fix", "verify"))


class GuideWalk(Column):
    """Back and Next through the six steps; the list of steps shows how far one has come.

    The third step begins with the user's own line, the fourth with the change to it, the fifth with a checklist of the
    last run.

    Args:
        again: called when a person wants to see whether it helped.

    Attributes:
        stop: the finding whose guide is open; None if there is nothing to walk through.

    Example:
        >>> walk = GuideWalk(lambda: None)
        >>> walk.stop is None
        True
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._language = "en"
        self._report: Report | None = None
        self._stops: dict[Key, Stop] = {}
        self.stop: Stop | None = None
        self.stops = Row(look="gkp-causes")
        self.steps = tuple(
            Press(f"guide.step.{name}", functools.partial(self.go, number), look="gkp-step")
            for number, name in enumerate(STEPS)
        )
        self.title, self.head, self.mine, self.page = (ipywidgets.HTML() for _ in range(4))
        self.change = OwnChange(again)
        self.back = Press("panel.guide.back", lambda: self.go(self.number - 1), look="gkp-guide-back")
        self.next = Press("panel.guide.next", lambda: self.go(self.number + 1), look="gkp-primary gkp-guide-next")
        self.again = Press("panel.guide.again", again, look="gkp-primary gkp-guide-again")
        buttons = Row(self.back, self.next, self.again, look="gkp-buttons")
        page = Column(self.head, self.mine, self.change, self.page, buttons, look="gkp-page")
        walk = Row(Column(*self.steps, look="gkp-steps"), page, look="gkp-walk")
        super().__init__(self.stops, self.title, walk, look="gkp-guide")

    @property
    def number(self) -> int:
        """The step that is open, counted from 0."""
        return self.stop.at if self.stop is not None else 0

    @property
    def cause(self) -> str:
        """The cause whose guide is open, ``""`` for none."""
        return self.stop.finding.cause if self.stop is not None else ""

    def show(self, report: Report, *, same: bool = False, reloads: bool = True) -> None:
        """Offer the guides to what was found.

        Args:
            report: the newest report.
            same: whether it is on the same program as the last: how far one came stays, and what was cured is kept.
            reloads: see :class:`OwnChange`.
        """
        before, self._report = self.stop, report
        self._stops = carry_on(self._stops, report, same=same)
        self.change.reloads = reloads
        kept = [stop for stop in self._stops.values() if stop is before and same]
        self.choose(next(iter([*kept, *self._stops.values()]), None))

    def choose(self, stop: Stop | None) -> None:
        """Open the guide to a finding where one left it."""
        self.stop = stop
        several = len(self._stops) > 1
        self.stops.children = tuple(map(self._chooser, self._stops.values())) if several else ()
        show(self.stops, several)
        self.go(self.number)

    def at(self, index: int) -> Stop | None:
        """The stop of a finding, by its place in the newest report."""
        mine = (one for one in self._stops.values() if one.index == index and not one.cured)
        return next((one for one in mine if one.report is self._report), None)

    def go(self, number: int) -> None:
        """Open a step, counted from 0; before the first is the first, behind the last the last."""
        if self.stop is not None:
            self.stop.at = min(max(number, 0), LAST)
            self.stop.seen.add(self.stop.at)
        self._write()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self.choose(self.stop)

    def _chooser(self, stop: Stop) -> ipywidgets.Button:
        mark = "✓ " if stop.cured else f"{stop.index + 1}. "
        button = ipywidgets.Button(description=f"{mark}{stop.finding.cause} · {stop.place}".removesuffix(" · "))
        button.tooltip = words("panel.guide.cured", self._language) if stop.cured else ""
        button.on_click(lambda _: self.choose(stop))
        for look in ("gkp-cause", *(["gkp-on"] if stop is self.stop else []), *(["gkp-cured"] if stop.cured else [])):
            button.add_class(look)
        return button

    def _write(self) -> None:
        stop = self.stop
        if stop is None:
            return
        text = guide(self.cause, self._language)
        step = text.steps[stop.at]
        head = f"<h3>{phrase(text.title)}</h3><p>{phrase(text.summary)}</p>"
        self.title.value = f'<div class="gkp-guide-title">{head}</div>'
        self.head.value = f'<div class="gkp-prose" tabindex="-1"><h4>{stop.at + 1}. {phrase(step.title)}</h4></div>'
        self.mine.value = self._own_line(stop) if stop.at == SEE else self._checklist(stop) if stop.at == VERIFY else ""
        show(self.mine, bool(self.mine.value))
        self.change.show(stop if stop.at == FIX else None)
        beside = shown(self.change) or (stop.at == SEE and shown(self.mine))
        example = f'<p class="gkp-example">{self._say("example")}</p>' if beside else ""
        self.page.value = f'{example}<div class="gkp-prose">{markdown(step.markdown)}</div>'
        for number, button in enumerate(self.steps):
            (button.add_class if number == stop.at else button.remove_class)("gkp-now")
            done = number in stop.seen and number != stop.at
            (button.add_class if done else button.remove_class)("gkp-done")
        self.back.disabled = stop.at == 0
        show(self.next, stop.at < LAST)
        show(self.again, stop.at == LAST)

    def _own_line(self, stop: Stop) -> str:
        section = stop.section(self._language)
        if stop.cured or not section.code:
            return ""
        lines = f'<p class="gk-place">{escape(section.place)}</p>{html.code(section.code)}'
        return f'<div class="gk gkp-own"><p class="gkp-own-title">{self._say("your_line")}</p>{lines}</div>'

    def _checklist(self, stop: Stop) -> str:
        """What the newest run showed, point by point; and first whether this finding is gone."""
        assert self._report is not None
        rows = "".join(
            f'<li class="gkp-check gkp-check-{one.state}"><span aria-hidden="true">{MARKS[one.state]}</span> '
            f'<span class="gkp-unseen">{escape(words(f"check.state.{one.state}", self._language))}</span>'
            f"{escape(one.text(self._language))}</li>"
            for one in self._report.checklist()
        )
        title = self._say("cured" if stop.cured else "last_run")
        return f'<div class="gk gkp-own"><p class="gkp-own-title">{title}</p><ul class="gkp-checks">{rows}</ul></div>'

    def _say(self, key: str) -> str:
        return escape(words(f"panel.guide.{key}", self._language))
