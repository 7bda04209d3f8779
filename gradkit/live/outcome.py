"""What becomes of a program's first finding: the files that were asked for, and word to a process that waits.

Of several processes of one program the first that has a finding writes it, and none writes over it; nor does one that
has nothing to say write over one that found all sound.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradkit.core import console, printable, writing
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.live import launch, rank_files, rank_page
from gradkit.live.launch import Wishes
from gradkit.live.rank_records import Comparison

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation
    from gradkit.report.report import Report


class Outcome:
    """The files that a program's findings go to.

    Attributes:
        first: the explanation that holds the first finding; None as long as there is none.

    Example:
        >>> Outcome(Wishes()).nothing(300, "")  # no file was asked for
    """

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._saved = ""
        self.first: Explanation | None = None

    def is_of(self, explanation: Explanation) -> bool:
        """Whether this explanation has been told."""
        return explanation is self.first

    def verdict(self) -> str:
        """The first finding's report in one sentence; ``""`` if there is none."""
        report = self.first.report if self.first is not None else None
        return report.verdict() if report is not None else ""

    def keep(self, explanation: Explanation, steps: int) -> None:
        """Write the first explanation that has a report; one that has none, as long as there is nothing better.

        Args:
            explanation: with or without findings.
            steps: how many steps the optimizers took before.
        """
        if self.first is not None:
            return
        report, path, depth = explanation.report, self._wishes.report, self._wishes.breakdown
        told = {"text": explanation.text(), "breakdown": ""}
        if report is not None:
            self.first = None if report.healthy else explanation
            told["breakdown"] = report.breakdown(depth) if depth else ""
            if path:
                self._try(path, lambda: rank_files.save(report, Path(path)))
        self._write({**explanation.data(), "steps": steps}, told, report)

    def ranks(self, comparison: Comparison) -> None:
        """Write what differs between ranks, beside what one of them has found or will find.

        Args:
            comparison: as it was told.
        """
        found, path = rank_page.data(comparison), self._wishes.json
        if path:
            before = {"findings": [], "steps": max((one["steps"] for one in found["rows"]), default=0), **_read(path)}
            self._try(path, lambda: _save(path, {**before, "healthy": False, "ranks": found}))
        page = self._wishes.report
        if page:
            self._try(page, lambda: rank_files.write(comparison, Path(page)))

    def nothing(self, steps: int, error: str, unknown: str = "") -> None:
        """Nothing was found.

        Args:
            steps: how many steps the optimizers took.
            error: what ended the program, ``""`` if it came to its end; nothing is said of its health then, nor of one
                that took no step.
            unknown: why it is not known whether all is sound; ``""`` if that is known.
        """
        healthy = True if steps and not error and not unknown else None
        said = words("cli.error", message=unknown or words("run.healthy", n=steps)) + "\n" if healthy or unknown else ""
        data: dict[str, Any] = {"healthy": healthy, "findings": [], "steps": steps, "error": error}
        if healthy is None:
            data["why"] = unknown or (words("run.error", n=steps) if error else words("run.no_step"))
        self._write(data, {"text": said, "breakdown": ""})

    def _write(self, data: dict[str, Any], told: dict[str, str], report: Report | None = None) -> None:
        path, waits = self._wishes.json, self._wishes.outcome
        if path and _weight(data) > _weight(_read(path)):
            told_before = {key: value for key, value in _read(path).items() if key == "ranks"}
            self._try(path, lambda: _save(path, {**data, **told_before}))
        if waits and _weight(data) > _weight(_read(waits)):
            if self._wishes.whole and report is not None:
                writing.write(launch.report_file(waits), pickle.dumps(report))
            _save(waits, {**data, "told": {**told, "not_written": self._saved}})

    def _try(self, path: str, write: Callable[[], object]) -> None:
        try:
            write()
        except GradkitError as error:
            self._saved = error.text()
        except OSError as error:
            self._saved = GradkitError("cannot_save", path=path, reason=error.strerror).text()
        else:
            return
        console.tell(words("cli.error", message=self._saved))


def _save(path: str, data: dict[str, Any]) -> None:
    writing.write(Path(path), printable.as_json(data).encode())


def _read(path: str) -> dict[str, Any]:
    try:
        return dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _weight(data: dict[str, Any]) -> int:
    """How much is said: nothing at all, that a process has ended, that it is sound, that ranks differ, a finding."""
    if data.get("findings"):
        return 4
    return 3 if data.get("ranks") else 2 if data.get("healthy") else 1 if {"error", "tried"} & set(data) else 0
