"""What a scan found, and its forms for code hosts: GitHub's workflow commands, and SARIF 2.1.0.

Sources: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradkit.api.scanning.stops import KINDS
from gradkit.api.scanning.verdicts import (
    HARMFUL,
    HARMLESS,
    NOT_REACHED,
    UNACCUSED,
    UNJUDGED,
    Judgement,
    findings_elsewhere,
)
from gradkit.core import printable
from gradkit.core.i18n import has, speaking, words
from gradkit.core.records import Location
from gradkit.report import layout
from gradkit.report.report import Report
from gradkit.source.files import Skipped

MARKS = {HARMFUL: "✗", HARMLESS: "✓", NOT_REACHED: "–", UNACCUSED: "?", UNJUDGED: "–"}


@dataclass(frozen=True)
class Scan:
    """The result of ``scan``. ``print`` gives the list; in a notebook it displays itself.

    Attributes:
        sites: every place that was found, file by file, each with what is said of it.
        files: how many files were looked through.
        skipped: the files and cells that could not be read.
        report: the diagnosis of the step, None without a step.
    """

    sites: tuple[Judgement, ...]
    files: int
    skipped: tuple[Skipped, ...] = ()
    report: Report | None = None

    @property
    def harmful(self) -> tuple[Judgement, ...]:
        """The places that a finding of the diagnosis accuses."""
        return tuple(one for one in self.sites if one.verdict == HARMFUL)

    def text(self, language: str | None = None) -> str:
        """The list for a terminal."""
        with speaking(language):
            lines = [line for one in self.sites for line in self._entry(one)]
            lines += self._elsewhere()
            lines += map(skipped_text, self.skipped)
            told = "\n".join([*lines, *([""] if lines else []), *self._summary()]) + "\n"
            return printable.fitted(printable.inert(told))

    def _entry(self, one: Judgement) -> Iterator[str]:
        kind, role = words(f"scan.kind.{one.site.kind}"), words(f"scan.role.{one.site.role}")
        yield words("scan.entry", place=place(one), kind=one.site.kind, text=kind, role=role)
        yield f"    {_source(one.site.location)}"
        if self.report is not None:
            yield f"    {MARKS[one.verdict]} {sentence(one)}"

    def _elsewhere(self) -> Iterator[str]:
        if self.report is None or not (found := findings_elsewhere(self.sites, self.report)):
            return
        yield words("scan.elsewhere")
        for finding in found:
            section = self.report.sections()[self.report.findings.index(finding)]
            yield f"    ✗ {words('report.told', name=section.place, text=section.title)}"

    def _summary(self) -> Iterator[str]:
        kinds = Counter(one.site.kind for one in self.sites)
        told = ", ".join(f"{kind} {kinds[kind]}" for kind in KINDS if kinds[kind])
        yield words("scan.found", n=len(self.sites), files=self.files, kinds=told or "–")
        if self.skipped:
            yield words("scan.left_out", n=len(self.skipped))
        if self.report is None:
            yield words("scan.no_step")
            return
        verdicts = Counter(one.verdict for one in self.sites)
        names = [(words(f"scan.verdict.{verdict}"), verdicts[verdict]) for verdict in MARKS]
        yield "; ".join(f"{name} {n}" for name, n in names if n)
        yield self.report.verdict()

    def data(self) -> dict[str, Any]:
        """The same as plain data, for scripts: equal in every language."""
        return {
            "files": self.files,
            "sites": [_plain(one) for one in self.sites],
            "skipped": [asdict(one) for one in self.skipped],
            "diagnosis": None if self.report is None else self.report.data(),
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<gradkit.Scan: {len(self.sites)} sites, {len(self.harmful)} harmful>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": f"<pre>{printable.entities(self.text())}</pre>"}


def _plain(one: Judgement) -> dict[str, Any]:
    spot = one.site.location
    return {
        "kind": one.site.kind, "role": one.site.role, "form": one.site.form, "file": spot.file, "cell": one.site.cell,
        "line": spot.line, "column": spot.column, "end_line": spot.end_line, "end_column": spot.end_column,
        "function": spot.function, "text": spot.text.strip(), "verdict": one.verdict, "why": one.why,
        "cause": one.finding.cause if one.finding is not None else "",
    }  # fmt: skip


def _source(spot: Location) -> str:
    return printable.line(spot.text.rstrip(), spot.column, spot.end_column)[0].strip()


def place(one: Judgement) -> str:
    """``train.py:15:37 in Captioner.forward``; of a notebook, with the number of the cell."""
    spot, where = one.site.location, layout.shown_place(one.site.location)
    if one.site.cell:
        file = layout.shown_path(spot.file)
        where = words("scan.cell", file=file, cell=one.site.cell, line=spot.line, column=spot.column)
    if spot.function in ("", "<module>"):
        return where
    return words("report.in_function", place=where, function=printable.name(spot.function))


def sentence(one: Judgement) -> str:
    """The verdict on a place, and the reason."""
    told = words(f"scan.verdict.{one.verdict}")
    if one.finding is not None:
        why = layout.section(one.finding, 0, 0).title
    else:
        own = f"scan.why.{one.why}"
        why = words(own if has(own) else f"harmless.{one.why}")
    return words("report.told", name=told, text=why)


def skipped_text(one: Skipped) -> str:
    """Why a file was left out, in one line."""
    where = layout.shown_path(one.file)
    if one.cell:
        where = words("scan.in_cell", file=where, cell=one.cell)
    elif one.line:
        where = f"{where}:{one.line}"
    text = words(f"scan.skipped.{one.reason}", detail=printable.name(one.detail, printable.LINE))
    return words("report.told", name=where, text=text)


def github_annotations(scan: Scan) -> str:
    """One line for each place: an error where a finding stands, else a notice; what is cleared gets none.

    A notebook's place is put at the notebook itself, for its file has no such line.
    """
    return "".join(f"{line}\n" for one in scan.sites for line in _command(one))


def _command(one: Judgement) -> Iterator[str]:
    if one.verdict in (HARMLESS, NOT_REACHED):
        return
    level = "error" if one.verdict == HARMFUL else "notice"
    spot = one.site.location
    where = {"file": _uri(spot.file)}
    if not one.site.cell:
        where |= {"line": str(spot.line), "col": str(spot.column), "endColumn": str(spot.end_column)}
    where["title"] = f"gradkit: {one.site.kind}"
    told = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in where.items())
    yield f"::{level} {told}::{_escaped(_message(one))}"


def _escaped(text: str, also: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{also}" else printable.escaped(char) for char in text)


def sarif_log(scan: Scan, version: str) -> dict[str, Any]:
    """The scan as a SARIF log: one rule a kind, one result a place.

    Args:
        version: gradkit's.
    """
    rules = [{"id": kind, "shortDescription": {"text": words(f"scan.kind.{kind}")}} for kind in KINDS]
    driver = {"name": "gradkit", "semanticVersion": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(one) for one in scan.sites],
            }
        ],
    }


def _result(one: Judgement) -> dict[str, Any]:
    spot = one.site.location
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(spot.file)}}
    if not one.site.cell:
        end = {"endColumn": spot.end_column} if spot.end_line in (0, spot.line) else {}
        place["region"] = {"startLine": spot.line, "startColumn": spot.column, **end}
    harmful, cleared = one.verdict == HARMFUL, one.verdict in (HARMLESS, NOT_REACHED)
    return {
        "ruleId": one.site.kind,
        "level": "error" if harmful else "none" if cleared else "note",
        "kind": "pass" if cleared else "fail",  # SARIF knows no level for any other kind
        "message": {"text": _message(one)},
        "locations": [{"physicalLocation": place}],
    }


def _message(one: Judgement) -> str:
    kind = words(f"scan.kind.{one.site.kind}")
    return sentence(one) if one.why or one.finding is not None else kind


def _uri(file: str) -> str:
    """Relative to the current folder where it is inside of it, with forward slashes."""
    near = Path(os.path.abspath(file))
    inside = near.is_relative_to(Path.cwd())
    return (near.relative_to(Path.cwd()) if inside else Path(file)).as_posix()
