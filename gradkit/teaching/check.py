"""The checks of the workshop: an answer judged by running it, and which exercises were solved."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gradkit.core import i18n
from gradkit.core.i18n import speaking, words
from gradkit.teaching import credit, exercises, grading
from gradkit.teaching.book import read_book
from gradkit.teaching.grading import NotYet, Verdict


def check(name: str, **answers: Callable[..., Any]) -> Verdict:
    """Check the answer to an exercise of the workshop by running it, and note the try.

    What it says gives no line away; :func:`hint` does, step by step, for those who ask.

    Args:
        name: the exercise, for example ``"forgotten_no_grad"``.
        **answers: the functions of the learner's program, for example ``build=build, loss_of=loss_of``.

    Returns:
        The verdict of an answer that is right.

    Raises:
        NotYet: it is not right yet; says which points are, and which are not. An ``AssertionError``.
        GradkitError: no such exercise (``no_such_exercise``), or other functions than it asks for (``other_answers``).
    """
    verdict = judged(name, **answers)
    exercises.note_try(name, solved=verdict.passed, credited=len(verdict.credited))
    _last[name] = verdict
    if not verdict.passed:
        raise NotYet(replace(verdict, places=False))
    return verdict


_last: dict[str, Verdict] = {}


def hint(name: str) -> Hint:
    """One more hint to an exercise: first those of its notebook, then the lines that the last check's diagnosis named.

    How often it was asked for is noted, and stands in the results.

    Raises:
        GradkitError: ``no_such_exercise``.

    Example:
        >>> shown = hint("two_cuts")
        >>> shown.number >= 1
        True
    """
    known, entry = hints_of(name), exercises.entry(name)
    number = entry.hints + 1
    if not entry.solved:
        exercises.note(name, hints=number)
    return Hint(name, number, known, _last.get(name))


def hints_of(name: str) -> tuple[dict[str, tuple[str, str]], ...]:
    """The hints that an exercise's notebook folds away: for each its title and its text, by language.

    Example:
        >>> len(hints_of("two_cuts"))
        3
    """
    pages = read_book(f"workshop/{exercises.exercise(name).book}")
    told = {code: [one for page in pages for one in _FOLDED.findall(page.says(code))] for code in i18n.LANGUAGES}
    return tuple(dict(zip(told, one, strict=True)) for one in zip(*told.values(), strict=True))


_FOLDED = re.compile(r"<details><summary>(.*?)</summary>\s*(.*?)\s*</details>", re.DOTALL)


@dataclass(frozen=True)
class Hint:
    """One hint. ``str`` gives its text; a notebook shows it as that.

    Attributes:
        exercise: its name.
        number: how many were asked for, this one among them.
        known: those of the notebook, by language.
        verdict: of the last check in this kernel; None if there was none.
    """

    exercise: str
    number: int
    known: tuple[dict[str, tuple[str, str]], ...] = ()
    verdict: Verdict | None = None

    def text(self, language: str | None = None) -> str:
        """All of it in ``language``; None for the one in use."""
        with speaking(language):
            if self.number <= len(self.known):
                return "\n\n".join(self.known[self.number - 1][i18n.language()])
            if self.verdict is None:
                return words("hint.check_first")
            lines = [line for one in self.verdict.remarks for line in one.lines()[1:]]
            return "\n".join([words("hint.lines" if lines else "hint.no_lines"), *lines])

    def __repr__(self) -> str:
        return self.text()

    def _repr_markdown_(self) -> str | None:
        """A hint of the notebook is Markdown, which a notebook lays out; the lines of a program are not."""
        if self.number > len(self.known):
            return None
        title, text = self.known[self.number - 1][i18n.language()]
        return f"**{title}**\n\n{text}"


def judged(name: str, **answers: Callable[..., Any]) -> Verdict:
    """As :func:`check`, but it notes nothing, and hands out the verdict in either case."""
    exercise = exercises.exercise(name)
    exercise.demand(answers)
    verdict = Verdict(name, grading.grade(exercise, answers))
    return verdict if verdict.passed else replace(verdict, credited=credit.credited(exercise, answers))


class Progress:
    """The exercises, and which of them were solved: a table that a notebook displays.

    Attributes:
        solved: the names of those that were.
    """

    def __init__(self) -> None:
        self._entries = exercises.logbook_entries()
        self.solved = tuple(name for name in exercises.EXERCISES if self._entry(name).solved)

    def _entry(self, name: str) -> exercises.Entry:
        return self._entries.get(name, exercises.Entry())

    def text(self, language: str | None = None) -> str:
        """The table in ``language``; None for the one in use."""
        with speaking(language):
            head = words("progress.head", n=len(self.solved), all=len(exercises.EXERCISES))
            return "\n".join([head, *map(self._line, exercises.EXERCISES)])

    def _line(self, name: str) -> str:
        entry = self._entry(name)
        state = "solved" if entry.solved else "tried" if entry.tries else "not_begun"
        said = words(f"progress.{state}", tries=entry.tries, day=entry.solved)
        mark = grading.MARKS[grading.RIGHT if entry.solved else grading.ASIDE]
        number, title = exercises.EXERCISES[name].book[:2], words(f"workshop.{name}")
        return f"{mark} {words('progress.line', number=number, title=title, said=said)}"

    def __repr__(self) -> str:
        return self.text()


def progress(*, forget: bool = False) -> Progress:
    """What was solved so far, kept in a small file in your configuration folder; ``forget=True`` begins anew.

    Example:
        >>> isinstance(progress().solved, tuple)
        True
    """
    if forget:
        exercises.forget_progress()
    return Progress()
