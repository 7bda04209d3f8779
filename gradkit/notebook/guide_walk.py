"""The walk through what was found: finding after finding, step after step of its guide, and the change to the file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ipywidgets

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking
from gradkit.core.printable import entities as escape
from gradkit.core.records import Change, Finding
from gradkit.notebook.cell_change import CellEdit, CellWriter, edit_of, names_of, refusal
from gradkit.notebook.parts import Button, Column, Label, Problem, Row, show, shown
from gradkit.report import fix, html, layout
from gradkit.report.checklist import MARKS
from gradkit.report.fix import Edit
from gradkit.report.layout import CodeLine
from gradkit.report.markup import markdown, phrase
from gradkit.report.report import Report
from gradkit.source import frames
from gradkit.teaching.guide import STEPS, guide

Key = tuple[str, str, str]


@dataclass
class Stop:
    """One finding, and how far a person has come with it.

    Attributes:
        report: the last report in which it was found.
        index: its place among the findings of that report.
        at: the step of the guide that is open, counted from 0.
        seen: the steps that were opened.
        cured: a later diagnosis did not find it any more.
        edit: the change that was written into the file or the cell, if it was.
    """

    report: Report
    index: int
    at: int = 0
    seen: set[int] = field(default_factory=set)
    cured: bool = False
    edit: Edit | CellEdit | None = None

    @property
    def finding(self) -> Finding:
        """The finding."""
        return self.report.findings[self.index]

    @property
    def place(self) -> str:
        """``train.py:41``, ``notebook cell [3]:12`` in the language in use; ``""`` if the line is not known."""
        spot = self.finding.location
        return "" if spot is None else f"{_name_of(spot.file)}:{spot.line}"

    @property
    def changes(self) -> tuple[Change, ...]:
        """The change to the user's own lines; ``()`` where a person has to decide, or where it is cured already."""
        return () if self.cured else layout.offered(self.finding)


def _name_of(file: str) -> str:
    return frames.cell_name(file) if frames.is_cell(file) else os.path.basename(file)


def carry_on(known: dict[Key, Stop], report: Report, *, same: bool) -> dict[Key, Stop]:
    """The stops after another report: its findings in order; behind them, if it is the same program, what was cured.

    Args:
        known: the stops so far.
        report: the newest report.
        same: whether it is on the same program; if not, nothing is kept.
    """
    found: dict[Key, Stop] = {}
    for index, finding in enumerate(report.findings):
        old = known.get(_key(finding)) if same else None
        edit = old.edit if old is not None and _concerns(old.edit, finding) else None
        found.setdefault(
            _key(finding), Stop(report, index, old.at, old.seen, edit=edit) if old else Stop(report, index)
        )
    if same:
        for key, stop in known.items():
            if key not in found:
                stop.cured = True
                found[key] = stop
    return found


def _key(finding: Finding) -> Key:
    """Equal for the same finding in two reports, also if lines were added above it. A cell is a new file each time."""
    spot = finding.location
    if spot is None:
        return finding.cause, "", ""
    return finding.cause, "" if frames.is_cell(spot.file) else spot.file, spot.text.strip() or str(spot.line)


def _concerns(edit: Edit | CellEdit | None, finding: Finding) -> bool:
    """Whether a finding is still about the text that was changed: a cell that was run again may hold the line anew."""
    spot = finding.location
    return not isinstance(edit, CellEdit) or (spot is not None and spot.file == edit.run.file)


class OwnChange(Column):
    """What to change in the user's file, or in a cell of their notebook, for one stop.

    Args:
        again: called when a person wants to diagnose again after the change.

    Attributes:
        reloads: whether another diagnosis reads the file anew; objects of a notebook keep the code that made them.
        repeats: whether ``again`` diagnoses the program that the finding is of.
        panel: the number of the panel's own cell.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._stop: Stop | None = None
        self.reloads, self.repeats, self.panel = True, True, 0
        self.cells = CellWriter()
        self.cells.observe(lambda _: self._arrange(), "able")
        self.body, self.note, self.problem = ipywidgets.HTML(), Label(look="gkp-note", tag="p"), Problem()
        self.write = Button("panel.change_file.write", self._edit, look="gkp-accent gkp-write", file="")
        self.undo = Button("panel.change_file.undo", self._undo, look="gkp-undo")
        self.again = Button("panel.guide.again", again, look="gkp-primary gkp-change-again")
        buttons = Row(self.write, self.undo, self.again, look="gkp-buttons")
        super().__init__(self.body, self.problem, self.note, buttons, look="gkp-own-change")
        self.show(None)

    def show(self, stop: Stop | None) -> None:
        """Show the change of another stop, or nothing."""
        self._stop = stop
        self.problem.tell(None)
        self._arrange()

    def run_first(self, edits: Sequence[CellEdit], then: Callable[[], None]) -> bool:
        """Run the cells that rest on changes which were not run yet, and then call ``then``; False if there are none.

        Args:
            edits: changes that were written into cells.
            then: called once all have run; if one fails, that is told and nothing is called.
        """
        cells = list(dict.fromkeys(cell for edit in edits if not edit.run_since for cell in edit.to_run(self.panel)))
        if not cells or not self.cells.able:
            return False
        self.problem.tell(None)
        self.cells.run(cells, functools.partial(self._told, cells[0].number, then))
        return True

    def _write(self) -> None:
        super()._write()
        self._arrange()

    def _arrange(self) -> None:
        stop = self._stop
        written = stop is not None and stop.edit is not None
        changes = stop.changes if stop is not None else ()
        show(self, bool(changes) or written)
        if stop is None or not (changes or written):
            return
        with speaking(self.language):
            title = self.spoken_html("panel.change_file.title", place=stop.place)
            possible = self._offer(stop)
        shown = stop.edit.changes if stop.edit is not None else changes
        lines = html.code(CodeLine(c.number, c.text, sign=c.sign) for c in shown)
        self.body.value = f'<div class="gk gkp-own"><p class="gkp-own-title">{title}</p>{lines}</div>'
        show(self.write, not written and possible)
        show(self.undo, written)

    def _offer(self, stop: Stop) -> bool:
        """Say what can be done with the change, or what was; whether it can be written."""
        file = stop.finding.location.file if stop.finding.location is not None else ""
        cell = frames.is_cell(file)
        self.write.tell("panel.change_file.write", file=_name_of(file))
        if isinstance(stop.edit, CellEdit):
            self._say_of_cell(stop, stop.edit)
            return False
        show(self.again, stop.edit is not None and self.reloads)
        if stop.edit is not None:
            key = "written" if self.reloads else "written_restart"
            self.note.tell(f"panel.change_file.{key}", copy=stop.edit.copy.name, file=stop.edit.path.name)
        elif self.cells.able and edit_of(file, stop.changes) if cell else fix.edit_possible(file, stop.changes):
            self.note.tell("")
            return True
        elif cell:
            self.note.tell("panel.change_file.by_hand_cell")
        else:
            others = os.path.isfile(file) and fix.is_others(Path(file))
            self.note.tell(f"panel.change_file.{'installed' if others else 'by_hand'}", file=_name_of(file))
        return False

    def _say_of_cell(self, stop: Stop, edit: CellEdit) -> None:
        """What follows from a change that was written into a cell."""
        cells = edit.to_run(self.panel) if self.repeats and not edit.run_since else []
        if edit.run_since:
            key = "cell_ran" if stop.cured else "cell_old"
        else:
            key = "cell_runs" if cells else "cell_written"
        numbers = names_of(cells, self.language)
        self.note.tell(f"panel.change_file.{key}", number=(edit.run_since or edit.run).number, cells=numbers)
        show(self.again, self.repeats and (bool(cells) or edit.run_since is not None))

    def _edit(self) -> None:
        stop = self._stop
        if stop is None or stop.edit is not None or stop.finding.location is None:
            return
        spot = stop.finding.location
        if frames.is_cell(spot.file):
            edit = edit_of(spot.file, stop.changes)
            if edit is not None:
                self.cells.write(edit, functools.partial(self._wrote, stop, edit, edit))
            return
        self._try(stop, lambda: fix.apply_edit(spot.file, stop.changes, spot.digest))

    def _undo(self) -> None:
        stop = self._stop
        edit = stop.edit if stop is not None else None
        if stop is None or edit is None:
            return
        if isinstance(edit, CellEdit):
            self.cells.write(edit, functools.partial(self._wrote, stop, edit, None), back=True)
            return
        self._try(stop, lambda: fix.undo_edit(edit))

    def _try(self, stop: Stop, act: Callable[[], Edit | None]) -> None:
        try:
            stop.edit = act()
            self.problem.tell(None)
        except GradkitError as error:
            self.problem.tell(error)
        self._arrange()

    def _wrote(self, stop: Stop, edit: CellEdit, left: CellEdit | None, refused: str) -> None:
        if not refused:
            stop.edit = left
            edit.follow()
        self._told(edit.run.number, lambda: None, refused)

    def _told(self, number: int, then: Callable[[], None], refused: str) -> None:
        """The page has done what it was asked for, or has not."""
        self.problem.tell(refusal(refused, number) if refused else None)
        self._arrange()
        if not refused:
            then()


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
        self._report: Report | None = None
        self._stops: dict[Key, Stop] = {}
        self._repeats = True
        self.stop: Stop | None = None
        self.stops = Row(look="gkp-causes")
        self.steps = tuple(
            Button(f"guide.step.{name}", functools.partial(self.go, number), look="gkp-step")
            for number, name in enumerate(STEPS)
        )
        self.title, self.head, self.mine, self.page = (ipywidgets.HTML() for _ in range(4))
        self.change = OwnChange(again)
        self.back = Button("panel.guide.back", lambda: self.go(self.number - 1), look="gkp-guide-back")
        self.next = Button("panel.guide.next", lambda: self.go(self.number + 1), look="gkp-primary gkp-guide-next")
        self.again = Button("panel.guide.again", again, look="gkp-primary gkp-guide-again")
        self.rerun = Label("panel.guide.rerun", look="gkp-note", tag="p")
        buttons = Row(self.back, self.next, self.again, look="gkp-buttons")
        page = Column(self.head, self.mine, self.change, self.page, self.rerun, buttons, look="gkp-page")
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

    @property
    def edits(self) -> list[CellEdit]:
        """The changes that were written into cells."""
        return [stop.edit for stop in self._stops.values() if isinstance(stop.edit, CellEdit)]

    def show(self, report: Report, *, same: bool = False, reloads: bool = True, repeats: bool = True) -> None:
        """Offer the guides to what was found.

        Args:
            report: the newest report.
            same: whether it is on the same program as the last: how far one came stays, and what was cured is kept.
            reloads: see :class:`OwnChange`.
            repeats: whether ``again`` diagnoses the program that the report is on; if not, that is left to the person.
        """
        before, self._report, self._repeats = self.stop, report, repeats
        self._stops = carry_on(self._stops, report, same=same)
        self.change.reloads, self.change.repeats = reloads, repeats
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
        self._write_step()

    def _write(self) -> None:
        super()._write()
        self.choose(self.stop)

    def _chooser(self, stop: Stop) -> ipywidgets.Button:
        mark = "✓ " if stop.cured else f"{stop.index + 1}. "
        with speaking(self.language):
            place = stop.place
        button = ipywidgets.Button(description=f"{mark}{stop.finding.cause} · {place}".removesuffix(" · "))
        button.tooltip = self.spoken("panel.guide.cured") if stop.cured else ""
        button.on_click(lambda _: self.choose(stop))
        for look in ("gkp-cause", *(["gkp-on"] if stop is self.stop else []), *(["gkp-cured"] if stop.cured else [])):
            button.add_class(look)
        return button

    def _write_step(self) -> None:
        stop = self.stop
        if stop is None:
            return
        text = guide(self.cause, self.language)
        step = text.steps[stop.at]
        head = f"<h3>{phrase(text.title)}</h3><p>{phrase(text.summary)}</p>"
        self.title.value = f'<div class="gkp-guide-title">{head}</div>'
        self.head.value = f'<div class="gkp-prose" tabindex="-1"><h4>{stop.at + 1}. {phrase(step.title)}</h4></div>'
        self.mine.value = self._own_line(stop) if stop.at == SEE else self._checklist(stop) if stop.at == VERIFY else ""
        show(self.mine, bool(self.mine.value))
        self.change.show(stop if stop.at == FIX else None)
        beside = shown(self.change) or (stop.at == SEE and shown(self.mine))
        example = f'<p class="gkp-example">{self.spoken_html("panel.guide.example")}</p>' if beside else ""
        self.page.value = f'{example}<div class="gkp-prose">{markdown(step.markdown)}</div>'
        for number, button in enumerate(self.steps):
            (button.add_class if number == stop.at else button.remove_class)("gkp-now")
            done = number in stop.seen and number != stop.at
            (button.add_class if done else button.remove_class)("gkp-done")
        self.back.disabled = stop.at == 0
        show(self.next, stop.at < LAST)
        show(self.again, stop.at == LAST and self._repeats)
        show(self.rerun, stop.at == LAST and not self._repeats)

    def _own_line(self, stop: Stop) -> str:
        section = stop.report.sections(self.language)[stop.index]
        if stop.cured or not section.code:
            return ""
        lines = f'<p class="gk-place">{html.place_link(section.place, section.at)}</p>{html.code(section.code)}'
        title = self.spoken_html("panel.guide.your_line")
        return f'<div class="gk gkp-own"><p class="gkp-own-title">{title}</p>{lines}</div>'

    def _checklist(self, stop: Stop) -> str:
        """What the newest run showed, point by point; and first whether this finding is gone."""
        assert self._report is not None
        rows = "".join(
            f'<li class="gkp-check gkp-check-{one.state}"><span aria-hidden="true">{MARKS[one.state]}</span> '
            f'<span class="gkp-unseen">{self.spoken_html(f"check.state.{one.state}")}</span>'
            f"{escape(one.text(self.language))}</li>"
            for one in self._report.checklist()
        )
        title = self.spoken_html("panel.guide.cured" if stop.cured else "panel.guide.last_run")
        return f'<div class="gk gkp-own"><p class="gkp-own-title">{title}</p><ul class="gkp-checks">{rows}</ul></div>'
