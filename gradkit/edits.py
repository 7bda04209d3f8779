"""Write a derived change into the user's own file, with a copy of the file beside it, and take it back again."""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import os
import shutil
import tempfile
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradkit.errors import GradkitError
from gradkit.fixes import Change


@dataclass(frozen=True)
class Edit:
    """A change that was written.

    Attributes:
        path: the file.
        copy: the file as it was before, beside it: ``train.py.before-gradkit``.
        written: the file's bytes after the change.
        changes: what was changed.
    """

    path: Path
    copy: Path
    written: bytes
    changes: tuple[Change, ...] = ()


def possible(file: str, changes: Sequence[Change]) -> bool:
    """Whether there is a change, and a file that may be written: a notebook's cell is none.

    Example:
        >>> possible("<ipython-input-1>", [Change("-", 1, "x")])
        False
    """
    return bool(changes) and os.path.isfile(file) and os.access(file, os.W_OK)


def apply(file: str | Path, changes: Sequence[Change]) -> Edit:
    """Write ``changes`` into a Python file. The file as it was is kept beside it; its mode and line ends stay.

    Args:
        file: a Python source file.
        changes: as ``fixes.derive`` made them from this file.

    Raises:
        GradkitError: a line is not what it was when the change was derived (``edit_outdated``), the result would be
            no Python any more (``edit_breaks``), or the file cannot be read or written (``edit_refused``). The file is
            then as it was.
    """
    path = Path(file).resolve()
    before, encoding = _read(path)
    after = _changed(before.decode(encoding), changes, path).encode(encoding)
    try:
        ast.parse(after)
    except (SyntaxError, ValueError) as error:
        raise GradkitError("edit_breaks", path=path) from error
    copy = next(
        c for n in itertools.count(1) if not (c := path.with_name(f"{path.name}.before-gradkit{_nth(n)}")).exists()
    )
    try:
        shutil.copy2(path, copy)
        _replace(path, after)
    except OSError as error:
        with contextlib.suppress(OSError):
            copy.unlink(missing_ok=True)
        raise GradkitError("edit_refused", path=path, reason=error.strerror or str(error)) from error
    linecache.checkcache(str(path))
    return Edit(path, copy, after, tuple(changes))


def undo(edit: Edit) -> None:
    """Put the file back as it was before, and remove the copy.

    Raises:
        GradkitError: the file was changed since (``edit_changed_since``), the copy is gone or the file cannot be
            written (``edit_refused``). Nothing is lost then: the copy stays where it is.
    """
    try:
        if edit.path.read_bytes() != edit.written:
            raise GradkitError("edit_changed_since", path=edit.path, copy=edit.copy)
        _replace(edit.path, edit.copy.read_bytes())
        edit.copy.unlink()
    except OSError as error:
        raise GradkitError("edit_refused", path=edit.path, reason=error.strerror or str(error)) from error
    linecache.checkcache(str(edit.path))


def _nth(number: int) -> str:
    return "" if number == 1 else f"-{number}"


def _read(path: Path) -> tuple[bytes, str]:
    try:
        with path.open("rb") as stream:
            encoding, _ = tokenize.detect_encoding(stream.readline)
        return path.read_bytes(), encoding
    except (OSError, SyntaxError) as error:
        raise GradkitError("edit_refused", path=path, reason=str(error)) from error


def _changed(text: str, changes: Sequence[Change], path: Path) -> str:
    """``text`` with the changes made; each line keeps its own way to end."""
    gone = {change.number: change.text for change in changes if change.sign == "-"}
    lines = text.split("\n")
    for number, was in gone.items():
        if number > len(lines) or lines[number - 1].rstrip("\r") != was:
            raise GradkitError("edit_outdated", path=path, line=number)
    made: list[str] = []
    for number, line in enumerate(lines, 1):
        end = "\r" if line.endswith("\r") else ""
        new = [change.text + end for change in changes if change.sign == "+" and change.number == number]
        made += new if number in gone else [*new, line]
    return "\n".join(made)


def _replace(path: Path, content: bytes) -> None:
    """All or nothing: a file beside it takes its place once it is whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
