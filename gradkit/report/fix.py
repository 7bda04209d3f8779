"""The fix as a difference on the user's own lines, where the line alone tells it; written, and taken back.

The file as it was is kept beside the one that is written.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import os
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gradkit.core import causes, writing
from gradkit.core.errors import GradkitError
from gradkit.core.records import Finding, Location
from gradkit.source import files, imported


@dataclass(frozen=True)
class Change:
    """One line of a difference: ``sign`` is ``"-"``, ``"+"`` or ``" "``, ``number`` the line in the file as it is."""

    sign: str
    number: int
    text: str


def derive_change(finding: Finding) -> tuple[Change, ...]:
    """The change that removes the cut; ``()`` where a person has to decide, or where the file is not what ran.

    Example:
        >>> spot = Location("a.py", 3, 10, 19, "f", "    x = y.detach()", 3)
        >>> [f"{c.sign} {c.text}" for c in derive_change(Finding("detach", spot))]
        ['-     x = y.detach()', '+     x = y']
    """
    if finding.location is None or not imported.stands_as_imported(finding.location):
        return ()
    cause = causes.cause(finding.cause)
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
    source = imported.source_of(spot)
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
    source = imported.source_of(spot)
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


@dataclass(frozen=True)
class Edit:
    """A change that was written.

    Attributes:
        path: the file.
        copy: the file as it was before, beside it: ``train.py.before-gradkit``.
        written: the file's bytes after the change.
        changes: what was changed.
        before: the file's bytes before the change.
    """

    path: Path
    copy: Path
    written: bytes
    changes: tuple[Change, ...] = ()
    before: bytes = b""


def edit_possible(file: str, changes: Sequence[Change]) -> bool:
    """Whether there is a change, and a file that may be written: a notebook's cell is none.

    Example:
        >>> edit_possible("<ipython-input-1>", [Change("-", 1, "x")])
        False
    """
    return bool(changes) and os.path.isfile(file) and not writing.is_read_only(Path(file))


def apply_edit(file: str | Path, changes: Sequence[Change], digest: str = "") -> Edit:
    """Write ``changes`` into a Python file. The file as it was is kept beside it; all but the changed lines stays.

    Args:
        file: a Python source file.
        changes: as ``fix.derive_change`` made them from this file.
        digest: of the text that they were made from, as the finding's location tells it; ``""`` if not known.

    Raises:
        GradkitError: the file is not the one that the change was derived from (``edit_changed``, ``edit_outdated``) or
            is saved by somebody else meanwhile (``edit_saved``); the result would be no Python any more
            (``edit_breaks``); the file is read-only (``edit_read_only``), goes by several names (``edit_links``) or
            has an owner or attributes that cannot be kept (``edit_attributes``); it is no text (``edit_encoding``), or
            cannot be read or written (``edit_refused``). The file is then as it was, or as it was saved.
    """
    path = Path(file).resolve()
    with _refusing(path):
        _check(path)
        before = path.read_bytes()
        after = _edited(before, changes, path, digest)
        copy = next(
            c for n in itertools.count(1) if not (c := path.with_name(f"{path.name}.before-gradkit{_nth(n)}")).exists()
        )
        writing.swap(path, before, after, copy)
    linecache.checkcache(str(path))
    return Edit(path, copy, after, tuple(changes), before)


def undo_edit(edit: Edit) -> None:
    """Put the file back as it was before, and remove the copy.

    Raises:
        GradkitError: the file was changed since (``edit_changed_since``), or the copy was (``edit_copy_changed``); the
            copy is gone or the file cannot be written (``edit_refused`` and others, see :func:`apply_edit`). Nothing is
            lost then: the copy stays where it is.
    """
    with _refusing(edit.path):
        if edit.copy.read_bytes() != edit.before:
            raise GradkitError("edit_copy_changed", path=edit.path, copy=edit.copy)
        _check(edit.path)
        if edit.path.read_bytes() != edit.written:
            raise GradkitError("edit_changed_since", path=edit.path, copy=edit.copy)
        spare = edit.copy.with_name(f"{edit.copy.name}-undone")
        writing.swap(edit.path, edit.written, edit.before, spare)
        spare.unlink()
        edit.copy.unlink()
    linecache.checkcache(str(edit.path))


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Say what goes wrong in a person's words."""
    try:
        yield
    except writing.SavedError as error:
        raise GradkitError("edit_saved", path=path) from error
    except writing.UnlikeError as error:
        raise GradkitError("edit_attributes", path=path) from error
    except OSError as error:
        raise GradkitError("edit_refused", path=path, reason=error.strerror or str(error)) from error


def _check(path: Path) -> None:
    """Refuse to write a file that is not to be written, or that a new one cannot take the place of."""
    if path.exists() and not path.is_file():
        raise GradkitError("edit_no_file", path=path)
    if writing.is_read_only(path):
        raise GradkitError("edit_read_only", path=path)
    if (names := path.stat().st_nlink) > 1:
        raise GradkitError("edit_links", path=path, n=names)


def _nth(number: int) -> str:
    return "" if number == 1 else f"-{number}"


def _edited(before: bytes, changes: Sequence[Change], path: Path, digest: str) -> bytes:
    """The bytes of the file with the changes made; outside of the changed lines each byte stays."""
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(before).readline)
        text = before.decode(encoding)
        same = text.encode(encoding) == before
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise GradkitError("edit_encoding", path=path) from error
    if not same:
        raise GradkitError("edit_encoding", path=path)
    if not changes or (digest and imported.text_digest(files.decoded_source(before)) != digest):
        raise GradkitError("edit_changed", path=path)
    try:
        after = _changed(text, changes, path).encode(encoding)
        ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GradkitError("edit_breaks", path=path) from error
    return after


def _changed(text: str, changes: Sequence[Change], path: Path) -> str:
    """``text`` with the changes made; each line keeps its own way to end."""
    gone = {change.number: change.text for change in changes if change.sign == "-"}
    parts = re.split(r"(\r\n|\r|\n)", text)
    lines = list(zip(parts[::2], [*parts[1::2], ""], strict=True))
    for number, was in gone.items():
        if number > len(lines) or lines[number - 1][0] != was:
            raise GradkitError("edit_outdated", path=path, line=number)
    made: list[str] = []
    for number, (line, end) in enumerate(lines, 1):
        new = [change.text for change in changes if (change.sign, change.number) == ("+", number)]
        if number not in gone:
            new.append(line)
        between = end or (parts[1] if len(parts) > 1 else "\n")  # the last line of all may have no end
        made += [between.join(new) + end] if new else []
    return "".join(made)
