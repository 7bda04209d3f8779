"""Files that are read whole: only regular ones, and never more bytes than are asked for.

A pipe would wait for ever, and a device may never end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

MOST = 2**28
"""How many bytes are read into memory as text, unless said otherwise."""
SOURCE = 2**22
"""How many bytes of Python are parsed: the largest module of torch is a third of it."""


class NotRegularError(OSError):
    """There is something, but it is a folder, a pipe, a device or a socket."""


class TooLargeError(OSError):
    """More bytes than are read."""


class TooDeepError(ValueError):
    """JSON that is nested deeper than Python can follow."""


def file_size(path: str | os.PathLike[str]) -> int:
    """How many bytes a regular file has.

    Raises:
        OSError: there is none, it may not be looked at, no file can have that name, or it is no regular file.

    Example:
        >>> try: file_size(os.curdir)
        ... except NotRegularError as error: print(error.strerror)
        no regular file
    """
    try:
        found = os.stat(path)
    except ValueError as error:  # a null byte, or half of a surrogate pair, in the name
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(path)) from error
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularError(errno.EINVAL, "no regular file", os.fspath(path))
    return found.st_size


def read_regular(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """What a regular file holds.

    Raises:
        OSError: as ``size`` does; ``TooLargeError`` for more than ``most`` bytes.
    """
    if file_size(path) <= most:
        with open(path, "rb") as stream:
            found = stream.read(most + 1)
        if len(found) <= most:  # the size of some files, those in /proc for example, is not told
            return found
    raise TooLargeError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))


def read_json(path: str | os.PathLike[str], most: int = MOST) -> Any:
    """The JSON in a regular file, UTF-8 with or without a byte order mark.

    Raises:
        OSError: as ``read`` does.
        ValueError: it is not JSON, not UTF-8, or nested too deep.
    """
    try:
        return json.loads(read_regular(path, most).decode("utf-8-sig"))
    except (RecursionError, MemoryError) as error:
        raise TooDeepError(str(error)) from error


def is_missing(path: Path) -> bool:
    """Whether nothing is at ``path``, not even a link; False where that may not be looked at.

    Example:
        >>> is_missing(Path("no such file"))
        True
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def check_target(path: Path) -> None:
    """Whether a file may be written at ``path``: nothing is there, or a regular file, or a link to one or to nothing.

    Raises:
        OSError: something else is.
    """
    with contextlib.suppress(FileNotFoundError):
        file_size(path)
