"""Which files belong to a library that is installed in editable mode: its folder lies where a person has put it.

Such a distribution records no files, but the folder that it was installed from (``direct_url.json``). A person's own
project is commonly installed so, too. It is told by where the program runs: a folder that the program lies in, or that
lies in the program's own project, is the user's; one elsewhere is a library's.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

_TOPS = (".git", ".hg"), ("pyproject.toml", "setup.py", "setup.cfg")  # what the top folder of a project holds
_named: set[str] = set()


def note_program(path: str) -> None:
    """Remember a file that a person has named as the program: the project that it lies in is theirs."""
    _named.add(os.path.dirname(os.path.realpath(path)))


def import_root(path: str) -> str:
    """The folder that the library of a file is imported from, if that is installed in editable mode.

    Args:
        path: absolute, without links.

    Returns:
        ``""`` for a file of no such library, or of the user's own project.

    Example:
        >>> import_root(os.path.realpath("train.py"))
        ''
    """
    folder = next((one for one in _folders(tuple(sys.path)) if _holds(one, path)), "")
    if not folder or any(_is_theirs(folder, place) for place in (*_places(), *_named)):
        return ""
    root = os.path.dirname(path)
    while root != folder and os.path.isfile(os.path.join(root, "__init__.py")):
        root = os.path.dirname(root)
    return root


@functools.lru_cache(maxsize=8)
def _folders(_path: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that editable installs point to, the innermost first.

    Args:
        _path: where distributions are looked for; on another path there may be others.
    """
    found = {folder for one in metadata.distributions() if (folder := _folder_of(one))}
    return tuple(sorted(found, key=len, reverse=True))


def _folder_of(distribution: metadata.Distribution) -> str:
    try:
        told: Any = json.loads(distribution.read_text("direct_url.json") or "{}")
        url = urlparse(told["url"]) if told.get("dir_info", {}).get("editable") is True else None
        return os.path.realpath(url2pathname(url.path)) if url is not None and url.scheme == "file" else ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # written by any tool, or by hand
        return ""


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_theirs(folder: str, place: str) -> bool:
    """Whether a folder and one that the program runs in are of one project."""
    return _holds(folder, place) or _holds(_top(place), folder)


@functools.lru_cache(maxsize=64)
def _top(folder: str) -> str:
    """The top folder of the project that a folder lies in; the folder itself, if there is none to be seen."""
    for marks in _TOPS:
        one = folder
        while one != os.path.dirname(one):
            if any(os.path.exists(os.path.join(one, mark)) for mark in marks):
                return one
            one = os.path.dirname(one)
    return folder


def _places() -> Iterator[str]:
    """The folders that the program runs in: the current one, and that of what runs as ``__main__``.

    A command that an installer has made lies among the commands, and calls what it has imported.
    """
    with contextlib.suppress(OSError):  # it was removed
        yield os.path.realpath(os.getcwd())
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str):
        return
    folder = os.path.dirname(os.path.realpath(file))
    yield folder
    if folder == os.path.realpath(sysconfig.get_path("scripts")):
        codes = (getattr(one, "__code__", None) for one in list(vars(main).values()))
        yield from (os.path.dirname(os.path.realpath(code.co_filename)) for code in codes if code is not None)
