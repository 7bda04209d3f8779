"""A file that a person named is read, or they are told in one sentence why it cannot be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradkit.core import regular_files
from gradkit.core.errors import GradkitError
from gradkit.load.failures import cause_of

_LONGEST = 300


@contextlib.contextmanager
def told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say what was wrong with a file, whatever is raised while it is read.

    Raises:
        GradkitError: ``no_such_file``, ``no_regular_file``, ``file_too_large``, ``cannot_open``; ``unreadable_file``
            for what is not the system's word. One that was raised inside comes through as it is.

    Example:
        >>> try:
        ...     with told("batch.json"): int("x")
        ... except GradkitError as error: print(error.key)
        unreadable_file
    """
    try:
        yield
    except GradkitError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise GradkitError("no_such_file", path=short(path)) from error
    except regular_files.NotRegularError as error:
        raise GradkitError("no_regular_file", path=short(path)) from error
    except regular_files.TooLargeError as error:
        raise GradkitError("file_too_large", path=short(path)) from error
    except OSError as error:
        raise GradkitError("cannot_open", path=short(path), reason=error.strerror or cause_of(error)) from error
    except Exception as error:
        raise GradkitError("unreadable_file", path=short(path), error=cause_of(error)) from error


def check(path: Path) -> None:
    """Whether a path is a regular file that may be read; nothing else is ever opened.

    Raises:
        GradkitError: it is not (see ``told``).
    """
    with told(path):
        regular_files.file_size(path)
        path.open("rb").close()


def source(path: Path) -> bytes:
    """The text of a Python file."""
    with told(path):
        return regular_files.read_regular(path, regular_files.SOURCE)


def as_json(path: Path) -> Any:
    """What a JSON file holds."""
    with told(path):
        return regular_files.read_json(path)


def short(path: str | os.PathLike[str]) -> str:
    """A path as it was given, or its two ends if it is too long for a sentence.

    Example:
        >>> short("a/b.pt"), len(short("a" * 5000))
        ('a/b.pt', 301)
    """
    text = os.fspath(path)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
