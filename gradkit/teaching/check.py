"""The checks of the workshop: an answer judged by running it, and which exercises were solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.teaching import exercises, grading
from gradkit.teaching.grading import NotYet, Verdict


def check(name: str, **answers: Callable[..., Any]) -> Verdict:
    """Check the answer to an exercise of the workshop by running it, and note the try.

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
    exercises.note_try(name, solved=verdict.passed)
    if not verdict.passed:
        raise NotYet(verdict)
    return verdict


def judged(name: str, **answers: Callable[..., Any]) -> Verdict:
    """As :func:`check`, but it notes nothing, and hands out the verdict in either case."""
    exercise = exercises.exercise(name)
    if sorted(answers) != sorted(exercise.functions) or not all(map(callable, answers.values())):
        raise GradkitError("other_answers", name=name, functions=", ".join(exercise.functions))
    return Verdict(name, grading.grade(exercise, answers))


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
