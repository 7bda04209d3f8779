"""What a learner did, as a CSV file; the files of a class as one, and a summary of it. No server, no course system.

One row an exercise and one a belief of the quiz that was guessed. Cells are the same in every language, so that the
files of a class that works in two are merged as they are.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from gradkit.core import printable, regular_files, settings, writing
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.teaching import claim as teaching_claim
from gradkit.teaching import exercises
from gradkit.teaching.predictions import LETTERS

EXERCISE, BELIEF = "exercise", "belief"
QUIZ = "quiz"
"""The setting under which the quiz keeps what was guessed."""


@dataclass(frozen=True)
class Row:
    """One line of the file; every cell is text.

    Attributes:
        student: the name that the learner gave.
        kind: ``"exercise"`` or ``"belief"``.
        name: of the exercise, or of the belief.
        points: those of a solved exercise; of an unsolved one, one for each change that is right but still hidden, and
            never all.
        of: how many there are.
        solved: the day (ISO), or "".
        tries: checks.
        hints: asked for.
        predicted: the letter, or the guess.
        happened: the letter, or the verdict.
    """

    student: str
    kind: str
    name: str
    points: str = ""
    of: str = ""
    solved: str = ""
    tries: str = ""
    hints: str = ""
    predicted: str = ""
    happened: str = ""


COLUMNS = tuple(one.name for one in fields(Row))


def rows(student: str) -> tuple[Row, ...]:
    """What is known of this person, from the logbook and the quiz.

    Example:
        >>> [row.name for row in rows("Ada")][:2]
        ['forgotten_no_grad', 'sleeping_adapter']
    """
    return (*_exercises(student), *_beliefs(student))


def _exercises(student: str) -> Iterator[Row]:
    entries = exercises.logbook_entries()
    for name, one in exercises.EXERCISES.items():
        entry = entries.get(name, exercises.Entry())
        points = one.points if entry.solved else min(entry.credited, one.points - 1)
        yield Row(
            student, EXERCISE, name, str(points), str(one.points), entry.solved, str(entry.tries), str(entry.hints),
            entry.predicted, entry.happened,
        )  # fmt: skip


def _beliefs(student: str) -> Iterator[Row]:
    try:
        kept = json.loads(settings.remembered(QUIZ) or "{}")
    except (ValueError, RecursionError):
        return
    for name, guess in kept.items() if isinstance(kept, dict) else ():
        if name in teaching_claim.claim_names() and isinstance(guess, str):
            yield Row(student, BELIEF, name, predicted=guess, happened=teaching_claim.claim(name, "en").verdict)


def as_csv(told: Iterable[Row]) -> str:
    """Rows as CSV with a header. What a table program would take for a formula is marked as text.

    Example:
        >>> print(as_csv([Row("=1+1", "exercise", "clinic")]).splitlines()[1])
        '=1+1,exercise,clinic,,,,,,,
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in told:
        table.writerow([f"'{cell}" if cell[:1] in tuple("=+-@\t\r") and cell != "-" else cell for cell in astuple(row)])
    return text.getvalue()


def from_csv(text: str, path: object = "") -> tuple[Row, ...]:
    """The rows of a file that :func:`as_csv` has written.

    Raises:
        GradkitError: ``no_results``: it is no such file.
    """
    try:
        table = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise GradkitError("no_results", path=path)
        found = [Row(**row) for row in table]
    except (csv.Error, TypeError) as error:
        raise GradkitError("no_results", path=path) from error
    if any(not isinstance(cell, str) for row in found for cell in astuple(row)):
        raise GradkitError("no_results", path=path)
    return tuple(found)


LARGEST = 1_000_000


class Results:
    """What one learner did, and the file that it was written to. ``str`` gives a sentence; a notebook shows it.

    Attributes:
        rows: all of it.
        path: the file.
    """

    def __init__(self, told: tuple[Row, ...], path: Path) -> None:
        self.rows, self.path = told, path

    def text(self, language: str | None = None) -> str:
        """Where it lies, and how many points there are, in ``language``; None for the one in use."""
        told = [row for row in self.rows if row.kind == EXERCISE]
        facts = {"points": sum(_count(row.points) for row in told), "of": sum(int(row.of) for row in told)}
        return words("results.written", language, path=printable.name(str(self.path), printable.FACT), **facts)

    def __repr__(self) -> str:
        return self.text()


def results(student: str, folder: str | Path = ".") -> Results:
    """Write what you did to ``results-<student>.csv``, to hand it in: exercises, predictions, the quiz.

    Args:
        student: your name, or the number that your teacher gave you.
        folder: where to.

    Raises:
        GradkitError: ``no_student``: the name holds no letter or digit; ``notebook_not_writable``.
    """
    short = re.sub(r"[\W_]+", "-", student).strip("-")
    if not short:
        raise GradkitError("no_student")
    told, path = rows(student.strip()), Path(folder) / f"results-{short}.csv"
    _write(path, as_csv(told))
    return Results(told, path)


def _write(path: Path, text: str) -> None:
    try:
        regular_files.check_target(path)
        writing.write(path, ("\ufeff" + text).encode())  # the mark by which table programs know Unicode
    except OSError as reason:
        raise GradkitError("notebook_not_writable", path=path, reason=reason.strerror) from reason


def merge(paths: Sequence[Path], target: Path) -> tuple[Row, ...]:
    """The files of a class as one. A folder stands for its CSV files; of a student with two files, the later counts.

    Args:
        paths: files and folders; which of two files is the later, their order says, and in a folder their time.
        target: the file to write; if it lies among the others, it is not read.

    Returns:
        All rows, students in alphabetical order.

    Raises:
        GradkitError: ``no_results``, ``cannot_be_used``, ``notebook_not_writable``.
    """
    found: dict[str, tuple[Row, ...]] = {}
    for path in _files(paths, target):
        try:
            text = regular_files.read_regular(path, LARGEST).decode()
        except (OSError, UnicodeDecodeError) as reason:
            raise GradkitError("no_results", path=path) from reason
        told = from_csv(text, path)
        for student in {row.student for row in told}:
            found[student] = tuple(row for row in told if row.student == student)
    if not found:
        raise GradkitError("no_results", path=" ".join(map(str, paths)))
    every = tuple(row for student in sorted(found) for row in found[student])
    _write(target, as_csv(every))
    return every


def _files(paths: Sequence[Path], target: Path) -> Iterator[Path]:
    for path in paths:
        inside = path.glob("*.csv") if path.is_dir() else [path]
        ordered = sorted(inside, key=lambda one: (one.stat().st_mtime if one.exists() else 0, one.name))
        yield from (one for one in ordered if one.absolute() != target.absolute())


def summary(told: Sequence[Row], language: str | None = None) -> str:
    """A class in a few lines: of each exercise who solved it, how often it was checked, what was predicted; beliefs.

    Example:
        >>> print(summary([Row("Ada", "exercise", "two_cuts", "1", "3", "", "2", "1", "a", "c")], "en").splitlines()[0])
        students: 1
    """
    with speaking(language):
        said = [words("results.students", n=len({row.student for row in told}))]
        for name, one in exercises.EXERCISES.items():
            mine = [row for row in told if (row.kind, row.name) == (EXERCISE, name)]
            if any(_count(row.tries) or row.predicted for row in mine):
                title = f"{one.book[:2]} {words(f'workshop.{name}')}"
                said += [words("results.exercise", title=title, **_facts(mine)), *_predicted(mine)]
        beliefs = dict.fromkeys(row.name for row in told if row.kind == BELIEF)
        said += [_belief(name, [row for row in told if row.name == name]) for name in beliefs]
        return "\n".join(said) + "\n"


def _facts(mine: Sequence[Row]) -> dict[str, object]:
    tries = [_count(row.tries) for row in mine if _count(row.tries)]
    return {
        "solved": sum(row.solved != "" for row in mine),
        "all": len(mine),
        "tries": f"{statistics.median(tries):g}" if tries else "–",
        "hints": sum(_count(row.hints) for row in mine),
    }


def _predicted(mine: Sequence[Row]) -> Iterator[str]:
    counts = {letter: sum(row.predicted == letter for row in mine) for letter in LETTERS}
    if any(counts.values()):
        told = ", ".join(f"{letter} {n}" for letter, n in counts.items())
        right = sum(row.predicted != "" and row.predicted == row.happened for row in mine)
        yield words("results.predicted", told=told, right=right, n=sum(counts.values()))


def _belief(name: str, mine: Sequence[Row]) -> str:
    known = name in teaching_claim.claim_names()
    title = teaching_claim.claim(name).belief if known else printable.name(name)
    right = sum(row.predicted == row.happened for row in mine)
    return words("results.belief", title=title, right=right, n=len(mine))


def _count(cell: str) -> int:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 8 else 0
