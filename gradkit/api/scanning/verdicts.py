"""What a diagnosis says of each place that may stop a gradient, and which lines have run.

It accuses nothing that the diagnosis does not. The lines are heard through Python's own line tracing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from gradkit.api.scanning.sites import Site
from gradkit.api.scanning.stops import EVAL
from gradkit.core import causes
from gradkit.core.records import BARREN, PROVEN, Finding, Harmless, Location
from gradkit.report.report import Report

Line = tuple[str, str, int]


class Visits:
    """Notes the lines of some files that run while it listens, in this thread and in those started meanwhile.

    A debugger or a coverage tool that listens in the same way hears nothing meanwhile, and is put back afterwards.

    Args:
        files: the files, by path.

    Attributes:
        lines: real path of the file, name of the function, and number of each line that ran.
        codes: the functions of these files that ran, by their ids.

    Example:
        >>> import textwrap
        >>> visits = Visits([textwrap.__file__])
        >>> with visits.listening():
        ...     _ = textwrap.shorten("a line", 10)
        >>> "shorten" in {name for _, name, _ in visits.lines}
        True
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._wanted = {os.path.realpath(file) for file in files}
        self._known: dict[str, str] = {}
        self.lines: set[Line] = set()
        self.codes: dict[int, CodeType] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While the block runs, lines are noted."""
        before = sys.gettrace(), threading.gettrace()
        threading.settrace(self._entered)
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before[0])
            threading.settrace(before[1])

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        real = self._known.get(file)
        if real is None:
            real = os.path.realpath(file)
            self._known[file] = real = real if real in self._wanted else ""
        if not real:
            return None
        self.codes[id(frame.f_code)] = frame.f_code
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            code = frame.f_code
            self.lines.add((self._known[code.co_filename], code.co_name, frame.f_lineno))
        return self._ran


HARMFUL, HARMLESS, NOT_REACHED, UNACCUSED, UNJUDGED = (
    "harmful", "harmless", "not_reached", "unaccused", "unjudged",
)  # fmt: skip
_NAMELESS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))


@dataclass(frozen=True)
class Judgement:
    """What is said of one site.

    Attributes:
        site: the place.
        verdict: ``"harmful"`` (a finding stands there), ``"harmless"``, ``"not_reached"`` (the step does not run it),
            ``"unaccused"`` (it ran, and the diagnosis neither accuses nor clears it), ``"unjudged"`` (there was no
            step, it stands in a notebook's cell, or in a file that was changed since it was imported).
        why: names its sentence: ``harmless.<why>`` of the report, or ``scan.why.<why>``.
        finding: the finding that accuses it.
    """

    site: Site
    verdict: str = UNJUDGED
    why: str = ""
    finding: Finding | None = None


def judge_sites(
    sites: Sequence[Site],
    report: Report,
    during: Iterable[Line],
    before: Iterable[Line] = (),
    changed: Collection[str] = (),
) -> tuple[Judgement, ...]:
    """What the diagnosis says of each site.

    Args:
        report: the diagnosis of a step.
        during: the lines that the step ran.
        before: the lines that ran while the step was being made.
        changed: real paths of files that were changed since they were imported: nothing is said of a place in them.
    """
    step, setup = _by_file(during), _by_file(before)
    accused = _accused(sites, report)

    def said(at: int, site: Site) -> Judgement:
        if os.path.realpath(site.location.file) in changed:
            return Judgement(site, UNJUDGED, "changed")
        return Judgement(site, HARMFUL, "", accused[at]) if at in accused else _judged(site, report, step, setup)

    return tuple(said(at, site) for at, site in enumerate(sites))


def findings_elsewhere(judged: Iterable[Judgement], report: Report) -> tuple[Finding, ...]:
    """The findings that none of the sites stands for: a layer that is never called, an ``argmax``."""
    told = [one.finding for one in judged]
    return tuple(finding for finding in report.findings if not any(finding is one for one in told))


def _accused(sites: Sequence[Site], report: Report) -> dict[int, Finding]:
    """The site that each finding is about, by its index."""
    found: dict[int, Finding] = {}
    for finding in report.findings:
        fits = [(_fit(site, finding), -at) for at, site in enumerate(sites) if not site.cell]
        best, at = max(fits, default=(0, 0))
        if best > 0:
            found.setdefault(-at, finding)
    return found


def _fit(site: Site, finding: Finding) -> int:
    """How well a finding fits a site, 0 if it is about something else: the very same expression, one of the right kind
    that overlaps it, or a block around the line, if the block is to blame."""
    place, told = site.location, finding.location
    if told is None or os.path.realpath(told.file) != os.path.realpath(place.file):
        return 0
    if (told.line, told.column, told.end_column) == (place.line, place.column, place.end_column):
        return 1000
    cause = causes.cause(finding.cause)
    if site.kind not in cause.sites:
        return 0
    if cause.in_block and site.form and place.line < told.line <= site.last_line:
        return 1 + place.line  # of several blocks, the innermost
    return max(_overlap(place, told), 0) if told.line == place.line else 0


def _judged(site: Site, report: Report, step: dict[str, set[Line]], setup: dict[str, set[Line]]) -> Judgement:
    if site.cell:
        return Judgement(site, UNJUDGED, "cell")
    place = site.location
    ran, came_before = _ran(site, step), _ran(site, setup)
    if not ran and not came_before:
        return Judgement(site, NOT_REACHED, "not_reached")
    if site.kind == EVAL:
        return Judgement(site, HARMLESS, "mode")
    cleared: Harmless | None = next(
        (one for one in report.harmless if one.why != BARREN and _is_at(place, one.location)), None
    )
    if cleared is not None:
        return Judgement(site, HARMLESS, cleared.why)
    if report.healthy and not report.barren:
        return Judgement(site, HARMLESS, "healthy" if ran else "healthy_before")
    if report.findings and _is_accounted_for(report):
        return Judgement(site, HARMLESS, "accounted")
    return Judgement(site, UNACCUSED, "unaccused" if ran else "unaccused_before")


def _is_accounted_for(report: Report) -> bool:
    """Whether a rerun with only the accused lines undone brought a gradient to all that should train: every other line
    was in it as it is."""
    starved = {row.name for row in report.parameters if row.should_train and not row.reached}
    proven = [one for one in report.findings if one.proof == PROVEN]
    return len(proven) == len(report.findings) and starved <= {name for one in proven for name in one.revived}


def _is_at(place: Location, told: Location) -> bool:
    """Whether a line that a report names is this place: the same file and line, and columns that overlap."""
    same = told.line == place.line and os.path.realpath(told.file) == os.path.realpath(place.file)
    return same and _overlap(place, told) > 0


def _overlap(place: Location, told: Location) -> int:
    """How many columns two places on a line share."""
    return min(place.end_column, max(told.end_column, told.column + 1)) - max(place.column, told.column)


def _by_file(lines: Iterable[Line]) -> dict[str, set[Line]]:
    found: dict[str, set[Line]] = {}
    for line in lines:
        found.setdefault(line[0], set()).add(line)
    return found


def _ran(site: Site, lines: dict[str, set[Line]]) -> bool:
    """Whether the site's line ran; of a decorator, whether the function under it did."""
    place = site.location
    first = place.line
    names = _NAMELESS | {site.scope}
    return any(
        first <= number <= (site.last_line or place.end_line) and name in names
        for _, name, number in lines.get(os.path.realpath(place.file), ())
        if site.form == "decorator" or number <= max(place.end_line, first)
    )
