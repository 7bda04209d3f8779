"""What a check says of an answer: points in order, each right, wrong or only worth knowing; words when it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradkit import i18n
from gradkit.errors import in_place_of_a_traceback
from gradkit.report import Report

RIGHT, WRONG, ASIDE = "right", "wrong", "aside"
MARKS = {RIGHT: "✓", WRONG: "✗", ASIDE: " "}
MOST_NAMES = 4


@dataclass(frozen=True)
class Remark:
    """One point.

    Attributes:
        key: its sentence stands in the catalogue under ``remark.<key>``.
        state: ``"right"``, ``"wrong"`` or ``"aside"`` (explains the point before it).
        facts: for the sentence; a tuple of names is shown shortened.
        report: a diagnosis whose own sentences are said as well. Its help is not: that is for the learner to find.
        causes: of its findings, those to say; ``()`` for all.
    """

    key: str
    state: str = WRONG
    facts: Mapping[str, object] = field(default_factory=dict)
    report: Report | None = None
    causes: tuple[str, ...] = ()

    def lines(self, language: str | None = None) -> list[str]:
        """The sentence, and below it those of the report."""
        facts = {key: _shown(one, language) for key, one in self.facts.items()}
        said = [f"{MARKS[self.state]} {i18n.words(f'remark.{self.key}', language, **facts)}"]
        parts = self.report.sections(language) if self.report is not None else ()
        for part in (one for one in parts if not self.causes or one.cause in self.causes):
            said += [f"    {part.title}", f"      --> {part.place}"]
        return said


@dataclass(frozen=True)
class Verdict:
    """The answer to one exercise, judged. ``str`` gives its text; a notebook shows it as that."""

    exercise: str
    remarks: tuple[Remark, ...]

    @property
    def passed(self) -> bool:
        """Nothing is wrong."""
        return all(one.state != WRONG for one in self.remarks)

    @property
    def wrong(self) -> tuple[str, ...]:
        """The keys of the remarks that say what is wrong."""
        return tuple(one.key for one in self.remarks if one.state == WRONG)

    def text(self, language: str | None = None) -> str:
        """All of it in ``language``; None for the one in use."""
        title = i18n.words(f"workshop.{self.exercise}", language)
        head = i18n.words("verdict_of.passed" if self.passed else "verdict_of.open", language, title=title)
        return "\n".join([head, *(line for one in self.remarks for line in one.lines(language))])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()


class NotYet(AssertionError):  # noqa: N818  no error of the program's: it is said to a learner
    """An exercise that is not solved. A notebook shows its sentences in the place of a traceback.

    Attributes:
        verdict: the :class:`Verdict`.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        return self.verdict.text()

    def _render_traceback_(self) -> list[str]:
        return in_place_of_a_traceback(self.verdict.text())


def _shown(fact: object, language: str | None) -> object:
    if not isinstance(fact, tuple):
        return fact
    names, rest = ", ".join(str(one) for one in fact[:MOST_NAMES]), len(fact) - MOST_NAMES
    return i18n.words("report.and_more", language, names=names, n=rest) if rest > 0 else names
