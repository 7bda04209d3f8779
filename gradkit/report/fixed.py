"""What of the findings of an earlier run was fixed: those that are gone, which lines were changed, what came back."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from gradkit.core import printable
from gradkit.core.records import Finding, Fixed, Location, Picture
from gradkit.report.layout import CodeLine
from gradkit.report.picture import fixed
from gradkit.source import imported

Lines = tuple[CodeLine, ...]

_MOST = 6


def since(before: Picture, after: Picture) -> Picture:
    """The second picture, with a mark wherever something was fixed that the first one has as a finding.

    A finding is fixed when it is gone and a parameter that it starved gets a gradient now.

    Example:
        >>> since(Picture((), (), (), ()), Picture((), (), (), ())).fixed
        ()
    """
    live = {node.label for node in after.nodes if node.kind == "parameter" and node.status == "live"}
    left = places(after.findings)
    changes = {}
    for index, finding in enumerate(before.findings):
        revived = tuple(name for name in finding.parameters if name in live)
        if not revived or place(finding) in left or not after.backward:
            continue
        old, new = _differing(finding)
        changes[index] = Fixed(
            finding.cause,
            _now(finding.location, new) if finding.location is not None and (old or new) else None,
            tuple((line.sign, line.number, line.text) for line in (*old, *new)),
            revived,
        )
    return fixed.marked(before, after, changes)


def _now(place: Location, new: Lines) -> Location:
    """The first of the lines that stand where a line was changed; where it was taken out, the place where it was."""
    file = imported.now_in(place.file)
    if not new:
        return Location(file, place.line, function=place.function)
    return Location(file, new[0].number, function=place.function, text=new[0].text)


def places(findings: Sequence[Finding]) -> list[str]:
    """Cause and code of each finding: line numbers move when a file is changed."""
    return list(dict.fromkeys(map(place, findings)))


def place(finding: Finding) -> str:
    """Cause and code of a finding.

    Example:
        >>> place(Finding("detach", Location("a.py", 7, text="    y = x.detach()")))
        'detach  y = x.detach()'
    """
    code = finding.location.text.strip() if finding.location is not None else ""
    return f"{finding.cause}  {code}".strip()


def changed_lines(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Lines, Lines]:
    """The lines of findings that are no longer there, as they were and as they are; none where nothing stands there.

    Args:
        before: the findings before a change of the user's files.
        after: those on the files as they are now.
    """
    left = places(after)
    pairs = {pair: None for one in before if place(one) not in left and any(pair := _differing(one))}
    return tuple(line for old, _ in pairs for line in old), tuple(line for _, new in pairs for line in new)


def _differing(finding: Finding) -> tuple[Lines, Lines]:
    """What was changed at the line of a finding, or else at a line that the change offered for it concerns.

    Nothing, unless what was there and what is there can both be read.
    """
    spot = finding.location
    old, new = (imported.source_of(spot), imported.text_now(imported.now_in(spot.file))) if spot else (None, None)
    if spot is None or old is None or new is None or old.digest == new.digest:
        return (), ()
    blocks = difflib.SequenceMatcher(None, old.lines, new.lines, False).get_opcodes()
    for line in (spot.line, *(change.number for change in (finding.tried.changes if finding.tried else ()))):
        for kind, first, last, start, end in blocks:
            if kind != "equal" and first <= line - 1 < max(last, first + 1):
                return _signed("-", old.lines[first:last], first), _signed("+", new.lines[start:end], start)
    return (), ()


def _signed(sign: str, lines: list[str] | tuple[str, ...], first: int) -> Lines:
    shown = enumerate(lines[:_MOST], first + 1)
    return tuple(CodeLine(number, printable.line(text.rstrip())[0], sign=sign) for number, text in shown)
