"""What there is to walk through: one stop for each finding, kept from one diagnosis to the next."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gradkit import fixes
from gradkit.edits import Edit
from gradkit.fixes import Change
from gradkit.layout import Section
from gradkit.records import Finding
from gradkit.report import Report

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
        edit: the change that was written into the file, if it was.
    """

    report: Report
    index: int
    at: int = 0
    seen: set[int] = field(default_factory=set)
    cured: bool = False
    edit: Edit | None = None

    @property
    def finding(self) -> Finding:
        """The finding."""
        return self.report.findings[self.index]

    @property
    def place(self) -> str:
        """``train.py:41``; ``""`` if the line is not known."""
        spot = self.finding.location
        return "" if spot is None else f"{os.path.basename(spot.file)}:{spot.line}"

    @property
    def changes(self) -> tuple[Change, ...]:
        """The change to the user's own lines; ``()`` where a person has to decide, or where it is cured already."""
        return () if self.cured else fixes.derive(self.finding)

    def section(self, language: str) -> Section:
        """The finding laid out."""
        return self.report.sections(language)[self.index]


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
        found.setdefault(
            _key(finding), Stop(report, index, old.at, old.seen, edit=old.edit) if old else Stop(report, index)
        )
    if same:
        for key, stop in known.items():
            if key not in found:
                stop.cured = True
                found[key] = stop
    return found


def _key(finding: Finding) -> Key:
    """Equal for the same finding in two reports, also if lines were added above it."""
    spot = finding.location
    return (finding.cause, "", "") if spot is None else (finding.cause, spot.file, spot.text.strip() or str(spot.line))
