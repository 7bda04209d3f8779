"""The fix as a difference on the user's own lines, where it can be derived from the line alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gradkit import cause_registry, imported
from gradkit.records import Finding, Location


@dataclass(frozen=True)
class Change:
    """One line of a difference: ``sign`` is ``"-"``, ``"+"`` or ``" "``, ``number`` the line in the file as it is."""

    sign: str
    number: int
    text: str


def derive(finding: Finding) -> tuple[Change, ...]:
    """The change that removes the cut; ``()`` where a person has to decide, or where the file is not what ran.

    Example:
        >>> spot = Location("a.py", 3, 10, 19, "f", "    x = y.detach()", 3)
        >>> [f"{c.sign} {c.text}" for c in derive(Finding("detach", spot))]
        ['-     x = y.detach()', '+     x = y']
    """
    if finding.location is None or not imported.stands(finding.location):
        return ()
    cause = cause_registry.cause(finding.cause)
    if cause.word:
        beside = [note.location for note in finding.notes if note.kind == "beside" and note.location is not None]
        return _drop([finding.location, *beside], cause.word)
    rule = RULES.get(cause.change)
    return rule(finding.location) if rule is not None else ()


def _drop(spots: Sequence[Location], word: str) -> tuple[Change, ...]:
    """Take a word out of a line, wherever it cuts."""
    text = spots[0].text
    for spot in sorted(spots, key=lambda spot: -spot.column):
        before, inside = text[: spot.column - 1], text[spot.column - 1 : spot.end_column - 1]
        if inside != word or not before.strip():
            return ()
        text = before + text[spot.end_column - 1 :]
    return _replaced(spots[0], text)


def _replaced(spot: Location, text: str) -> tuple[Change, ...]:
    return (Change("-", spot.line, spot.text), Change("+", spot.line, text)) if text != spot.text else ()


def _decorator(spot: Location) -> tuple[Change, ...]:
    return (Change("-", spot.line, spot.text),) if spot.text.strip().startswith("@") else ()


def _block(spot: Location) -> tuple[Change, ...]:
    """Take the ``with`` away and pull its body out by one level."""
    source = imported.of(spot)
    if source is None or source.tree is None:
        return ()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.With) and node.lineno == spot.line and len(node.items) == 1:
            first, last = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            step = node.body[0].col_offset - node.col_offset
            lines = [(n, source.line(n)) for n in range(first, last + 1)]
            if first == spot.line or len(lines) > 8 or step <= 0:
                return ()
            out = tuple(Change("+", n, text[step:] if text[:step].isspace() else text) for n, text in lines)
            return (Change("-", spot.line, spot.text), *(Change("-", n, text) for n, text in lines), *out)
    return ()


def _trainable(spot: Location) -> tuple[Change, ...]:
    """Add ``is_trainable=True`` to the call that loads the adapter."""
    source = imported.of(spot)
    if source is None or source.tree is None:
        return ()
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.lineno > spot.line or (node.end_lineno or 0) < spot.line:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("from_pretrained", "load_adapter"):
            end, number = node.end_col_offset or 0, node.end_lineno or spot.line
            text = source.line(number)
            if "is_trainable" in ast.unparse(node) or any(keyword.arg is None for keyword in node.keywords):
                return ()
            head = text.encode()[: end - 1].decode().rstrip()
            comma = "" if head.endswith((",", "(")) else ","
            gap = " " if head.strip() else ""
            return (
                Change("-", number, text),
                Change("+", number, f"{head}{comma}{gap}is_trainable=True{text.encode()[end - 1 :].decode()}"),
            )
    return ()


def _reentrant(spot: Location) -> tuple[Change, ...]:
    return _replaced(spot, spot.text.replace("use_reentrant=True", "use_reentrant=False"))


RULES = {"block": _block, "decorator": _decorator, "trainable": _trainable, "reentrant": _reentrant}
