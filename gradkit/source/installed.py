"""Which files an installer has put there, wherever that is: a library's, and no place where a user changes anything.

``site-packages`` tells by its name. A folder that ``pip install --target``, a layer of a container or an unpacked wheel
was put into has any name: there the records of the distributions in it tell, file by file. What an editable install
points to is a library's, unless it is the user's own project (``editable``). A copy that somebody has put among their
own files (``third_party``, ``_vendor``) has no record, and is theirs.
"""

from __future__ import annotations

import csv
import functools
import itertools
import os
import sys
from collections.abc import Iterator

from gradkit.source import editable

_NAMED = ("site-packages", "dist-packages")
_MOST = 20_000  # entries of a folder: one with more holds data


def is_installed(path: str) -> bool:
    """Whether a file was put there by an installer.

    Args:
        path: absolute, without links.

    Example:
        >>> is_installed("/home/ann/.venv/lib/python3.12/site-packages/peft/peft_model.py"), is_installed(__file__)
        (True, False)
    """
    return _root(path) != ""


def library_of(path: str) -> str:
    """The name under which the library that a file belongs to is imported, ``""`` for a file that none has.

    Example:
        >>> library_of("/usr/lib/python3/dist-packages/monai/metrics/metric.py")
        'monai'
    """
    path = os.path.realpath(path)
    root = _root(path)
    top = os.path.relpath(path, root).split(os.sep)[0] if root else ""
    return top.removesuffix(".py")


def _root(path: str) -> str:
    """The folder that a file was installed into, ``""`` if it was not."""
    parts = path.split(os.sep)
    named = [at for at, part in enumerate(parts[:-1]) if part in _NAMED]
    if named:
        return os.sep.join(parts[: named[-1] + 1])
    found = (folder for folder in _on_the_path(path) if os.path.relpath(path, folder) in recorded(folder))
    return next(found, "") or editable.import_root(path)


def _on_the_path(path: str) -> Iterator[str]:
    """The folders around a file that modules are imported from."""
    known = {os.path.realpath(entry or os.curdir) for entry in sys.path if isinstance(entry, str)}
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        if folder in known:
            yield folder
        folder = os.path.dirname(folder)


@functools.cache
def recorded(folder: str) -> frozenset[str]:
    """The Python files that distributions in a folder say they have brought, by their paths in it."""
    try:
        with os.scandir(folder) as entries:
            few = [entry.path for entry in itertools.islice(entries, _MOST) if entry.name.endswith(".dist-info")]
    except OSError:
        return frozenset()
    return frozenset(name for one in few for name in _files(os.path.join(one, "RECORD")))


def _files(record: str) -> list[str]:
    """The Python files in a record: each row begins with a path, with slashes on every system."""
    try:
        with open(record, encoding="utf-8", newline="") as rows:
            return [row[0].replace("/", os.sep) for row in csv.reader(rows) if row and row[0].endswith(".py")]
    except (OSError, ValueError, csv.Error):
        return []
