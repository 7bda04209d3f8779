"""A scan in the forms that code hosts read: GitHub's workflow commands, and SARIF 2.1.0.

Sources: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradkit import printable
from gradkit.i18n import words
from gradkit.judgements import HARMFUL, HARMLESS, NOT_REACHED, Judgement
from gradkit.scanned import Scan, sentence
from gradkit.stops import KINDS


def github(scan: Scan, language: str | None = None) -> str:
    """One line for each place: an error where a finding stands, else a notice; what is cleared gets none.

    A notebook's place is put at the notebook itself, for its file has no such line.
    """
    return "".join(f"{line}\n" for one in scan.sites for line in _command(one, language))


def _command(one: Judgement, language: str | None) -> Iterator[str]:
    if one.verdict in (HARMLESS, NOT_REACHED):
        return
    level = "error" if one.verdict == HARMFUL else "notice"
    spot = one.site.location
    where = {"file": _uri(spot.file)}
    if not one.site.cell:
        where |= {"line": str(spot.line), "col": str(spot.column), "endColumn": str(spot.end_column)}
    where["title"] = f"gradkit: {one.site.kind}"
    told = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in where.items())
    yield f"::{level} {told}::{_escaped(_message(one, language))}"


def _escaped(text: str, also: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{also}" else printable.escaped(char) for char in text)


def sarif(scan: Scan, version: str, language: str | None = None) -> dict[str, Any]:
    """The scan as a SARIF log: one rule a kind, one result a place.

    Args:
        version: gradkit's.
    """
    rules = [{"id": kind, "shortDescription": {"text": words(f"scan.kind.{kind}", language)}} for kind in KINDS]
    driver = {"name": "gradkit", "semanticVersion": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, language) for one in scan.sites],
            }
        ],
    }


def _result(one: Judgement, language: str | None) -> dict[str, Any]:
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
        "message": {"text": _message(one, language)},
        "locations": [{"physicalLocation": place}],
    }


def _message(one: Judgement, language: str | None) -> str:
    kind = words(f"scan.kind.{one.site.kind}", language)
    return sentence(one, language) if one.why or one.finding is not None else kind


def _uri(file: str) -> str:
    """Relative to the current folder where it is inside of it, with forward slashes."""
    near = Path(os.path.abspath(file))
    inside = near.is_relative_to(Path.cwd())
    return (near.relative_to(Path.cwd()) if inside else Path(file)).as_posix()
