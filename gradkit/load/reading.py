"""A file that a person named is read, or they are told in one sentence why it cannot be."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradkit.core import regular_files
from gradkit.core.errors import GradkitError
from gradkit.load.failures import cause_of

_LONGEST = 300
_MOST_NEAR, _MOST_SEEN = 3, 2000
_PASSED_OVER = ("node_modules", "site-packages", "__pycache__")


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
        raise GradkitError("no_such_file", near=near(path), path=short(path)) from error
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


def near(path: str | os.PathLike[str], folder: Path | None = None) -> tuple[str, ...]:
    """What a person may have meant by a path that leads nowhere: entries with a name like it, and, elsewhere below the
    current folder, one with the very same name.

    Args:
        path: as it was given.
        folder: where relative paths start; None for the current folder.

    Example:
        >>> near("no such folder/no such file.py")
        ()
    """
    start = folder or Path.cwd()
    try:
        like = _alike(Path(path), start)
        wanted = Path(path).name
        same = (one for one in _below(start) if one.name == wanted and one != start / path)
        found = [*like, *itertools.islice(same, _MOST_NEAR)]
    except (OSError, ValueError):
        return ()
    shown = (one.relative_to(start) if one.is_relative_to(start) else one for one in found)
    return tuple(dict.fromkeys(one.as_posix() for one in shown))[:_MOST_NEAR]


def _alike(path: Path, start: Path) -> list[Path]:
    """The path with each part that is not there replaced by one like it; ``[]`` where there is none."""
    here = start
    for at, part in enumerate(path.parts, 1):
        if (here / part).exists():
            here = here / part
            continue
        beside = sorted(one.name for one in itertools.islice(here.iterdir(), _MOST_SEEN))
        close = difflib.get_close_matches(part, beside, n=_MOST_NEAR)
        if not close:
            return []
        if at == len(path.parts):
            return [here / one for one in close if here / one != start / path]
        here = here / close[0]
    return [here] if here != start / path else []


def _below(start: Path) -> Iterator[Path]:
    for depth in ("*", "*/*", "*/*/*"):
        for one in itertools.islice(start.glob(depth), _MOST_SEEN):
            if not any(part.startswith(".") or part in _PASSED_OVER for part in one.relative_to(start).parts):
                yield one


def short(path: str | os.PathLike[str]) -> str:
    """A path as it was given, or its two ends if it is too long for a sentence.

    Example:
        >>> short("a/b.pt"), len(short("a" * 5000))
        ('a/b.pt', 301)
    """
    text = os.fspath(path)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
