"""The exercises of the workshop: what each asks for, and which of them a person has tried and solved.

That is kept in one small file in the person's configuration folder. As with other settings, where it cannot be read or
written nothing is remembered and nothing fails.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from gradkit.core import regular_files, settings
from gradkit.core.errors import GradkitError
from gradkit.diagnosis.facts.inventory import matches
from gradkit.teaching.book import read_book

SOLUTIONS = "workshop/solutions"


@dataclass(frozen=True)
class Exercise:
    """What one exercise asks for.

    Attributes:
        name: its id, as in ``check("forgotten_no_grad", ...)``.
        book: the notebook, below ``workshop/``.
        trains: globs of the parameters that must learn; all others must stay frozen.
        functions: the functions that the learner hands in, by name.
        batches: functions of the solution that make a fresh batch each; the answer is judged on all of them.
        kept: globs of the weights that must have the very values of the solution: a checkpoint's.
        points: what it counts in a course.
        changes: functions of the program, methods among them as ``"Reader.centre"``, that hold one fault each: where
            one is mended and another still hides that, this change is credited.
    """

    name: str
    book: str
    trains: tuple[str, ...] = ("*",)
    functions: tuple[str, ...] = ("build", "loss_of")
    batches: tuple[str, ...] = ("make_batch",)
    kept: tuple[str, ...] = ()
    points: int = 2
    changes: tuple[str, ...] = ()

    def demand(self, answers: Mapping[str, object]) -> None:
        """See that these are the functions that it asks for.

        Raises:
            GradkitError: ``other_answers``.
        """
        if sorted(answers) != sorted(self.functions) or not all(map(callable, answers.values())):
            raise GradkitError("other_answers", name=self.name, functions=", ".join(self.functions))

    def must_learn(self, model: nn.Module) -> tuple[str, ...]:
        """The parameters of a model that must learn."""
        return tuple(name for name, _ in model.named_parameters() if matches(name, self.trains))

    def must_be_kept(self, model: nn.Module) -> tuple[str, ...]:
        """The parameters that must have a checkpoint's values."""
        return tuple(name for name, _ in model.named_parameters() if matches(name, self.kept))


_STEPS = ("build", "loss_of", "train_step")
EXERCISES: Mapping[str, Exercise] = {
    one.name: one
    for one in (
        Exercise("forgotten_no_grad", "01_forgotten_no_grad"),
        Exercise("sleeping_adapter", "02_sleeping_adapter", trains=("*lora_*",), kept=("*",)),
        Exercise("numpy_roundtrip", "03_numpy_roundtrip"),
        Exercise("zero_loss", "04_zero_loss", batches=("make_batch", "make_unlabelled_batch")),
        Exercise("two_cuts", "05_two_cuts", points=3, changes=("Reader.centre", "Reader.rescale")),
        Exercise("image_captions", "06_image_captions", trains=("projector.*", "decoder.*"), points=3),
        Exercise("still_weights", "07_still_weights", functions=_STEPS, points=3, changes=("build", "train_step")),
        Exercise(
            "clinic",
            "08_clinic",
            functions=_STEPS,
            points=6,
            changes=("NotesEncoder.pool", "days_loss", "parameter_groups"),
        ),
    )
}


def exercise(name: str) -> Exercise:
    """The exercise of that name.

    Raises:
        GradkitError: ``no_such_exercise``.

    Example:
        >>> exercise("numpy_roundtrip").book
        '03_numpy_roundtrip'
    """
    if name not in EXERCISES:
        raise GradkitError("no_such_exercise", name=name, known=", ".join(EXERCISES))
    return EXERCISES[name]


def program(book: str, tags: tuple[str, ...] = ("given", "program")) -> str:
    """The code of a book's cells that carry one of the tags.

    Example:
        >>> "def build" in program("workshop/01_forgotten_no_grad")
        True
    """
    pages = [page for page in read_book(book) if set(tags) & set(page.metadata.get("tags", ()))]
    return "\n\n\n".join(page.says("") for page in pages) + "\n"


@functools.cache
def solution(name: str) -> Mapping[str, Callable[..., Any]]:
    """What the solution's program defines: the one measure of a right answer, and the same that its notebook shows."""
    book = f"{SOLUTIONS}/{exercise(name).book}"
    made: dict[str, Any] = {"__name__": f"gradkit.teaching.books.{book.replace('/', '.')}"}
    exec(compile(program(book), f"<{book}>", "exec", dont_inherit=True), made)  # noqa: S102  # our own book
    return made


_MOST_TRIES = 10**6


@dataclass(frozen=True)
class Entry:
    """What is known of one exercise.

    Attributes:
        tries: how often it was checked until it was solved.
        solved: the day of that (ISO), or "".
        hints: how many were asked for before that.
        credited: of its changes, how many were right at the last check, though another fault still hid them.
        predicted: the letter that was predicted, or "".
        happened: the letter of what then happened, or "" while it was not looked at; ``"-"`` for none of the letters.
    """

    tries: int = 0
    solved: str = ""
    hints: int = 0
    credited: int = 0
    predicted: str = ""
    happened: str = ""


def logbook_file() -> Path:
    """Where it lies, there or not: beside ``settings.json``."""
    return settings.file().with_name("workshop.json")


def logbook_entries() -> dict[str, Entry]:
    """All that was noted, by the exercises' names; what cannot be read counts as nothing."""
    try:
        noted = regular_files.read_json(logbook_file())
    except (OSError, ValueError, RuntimeError):
        return {}
    found = {name: _entry(one) for name, one in noted.items()} if isinstance(noted, dict) else {}
    return {name: entry for name, entry in found.items() if entry is not None}


def _entry(noted: object) -> Entry | None:
    try:
        known = {one.name: noted.get(one.name, one.default) for one in fields(Entry)}  # type: ignore[attr-defined]
        if not {"tries", "solved"} <= set(noted):  # type: ignore[call-overload]
            return None
        if known["solved"] != "":
            dt.date.fromisoformat(known["solved"])
    except (AttributeError, TypeError, ValueError):
        return None
    numbers = [known[name] for name in ("tries", "hints", "credited")]
    letters = [known[name] for name in ("predicted", "happened")]
    sound = all(isinstance(n, int) and 0 <= n <= _MOST_TRIES for n in numbers) and all(
        isinstance(one, str) and len(one) <= 1 for one in letters
    )
    return Entry(**known) if sound else None


def entry(name: str) -> Entry:
    """What is known of one exercise."""
    return logbook_entries().get(name, Entry())


def note(name: str, **facts: Any) -> Entry:
    """Note something of an exercise, by the names of :class:`Entry`."""
    known = logbook_entries()
    known[name] = replace(known.get(name, Entry()), **facts)
    with contextlib.suppress(OSError, RuntimeError):
        settings.save(logbook_file(), {key: asdict(one) for key, one in known.items()})
    return known[name]


def note_try(name: str, *, solved: bool, credited: int = 0) -> Entry:
    """Note one more check of an exercise. What was solved once stays solved, and its tries are not counted on."""
    before = entry(name)
    if before.solved:
        return before
    today = dt.date.today().isoformat()
    return note(name, tries=before.tries + 1, solved=today if solved else "", credited=credited)


def forget_progress() -> None:
    """Begin anew: nothing was tried."""
    with contextlib.suppress(OSError, RuntimeError):
        logbook_file().unlink(missing_ok=True)
