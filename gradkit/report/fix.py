"""A change to the user's own lines: written into their file, and taken back.

The file as it was is kept beside the one that is written.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gradkit.core import package, writing
from gradkit.core.errors import GradkitError
from gradkit.core.records import Change
from gradkit.source import files, imported, installed
from gradkit.source.changes import OutdatedError, applied


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
    """Whether there is a change, and a file that may be written: a notebook's cell is none, an installed one neither.

    Example:
        >>> edit_possible("<ipython-input-1>", [Change("-", 1, "x")])
        False
    """
    return bool(changes) and os.path.isfile(file) and not writing.is_read_only(Path(file)) and not is_others(Path(file))


def is_others(path: Path) -> bool:
    """Whether a file belongs to an installed package, or to gradkit itself: neither is a person's to change.

    Example:
        >>> is_others(Path(__file__)), is_others(Path("train.py"))
        (True, False)
    """
    real = path.resolve()
    return installed.is_installed(str(real)) or package.FOLDER.resolve() in real.parents


def apply_edit(file: str | Path, changes: Sequence[Change], digest: str = "") -> Edit:
    """Write ``changes`` into a Python file. The file as it was is kept beside it; all but the changed lines stays.

    Args:
        file: a Python source file.
        changes: as ``changes.derive`` made them from this file.
        digest: of the text that they were made from, as the finding's location tells it; ``""`` if not known.

    Raises:
        GradkitError: the file is not the one that the change was derived from (``edit_changed``, ``edit_outdated``) or
            is saved by somebody else meanwhile (``edit_saved``); the result would be no Python any more
            (``edit_breaks``); the file belongs to an installed package (``edit_installed``), is read-only
            (``edit_read_only``), goes by several names (``edit_links``) or has an owner or attributes that cannot be
            kept (``edit_attributes``); it is no text (``edit_encoding``), or cannot be read or written
            (``edit_refused``). The file is then as it was, or as it was saved.
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
    if is_others(path):
        raise GradkitError("edit_installed", path=path)
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
        after = applied(text, changes).encode(encoding)
        ast.parse(after)
    except OutdatedError as error:
        raise GradkitError("edit_outdated", path=path, line=error.line) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GradkitError("edit_breaks", path=path) from error
    return after
