"""Write a file in one piece: what is there before stays whole until all of the new content is on the disk beside it.

Links to a file are followed, and its owner, mode and extended attributes are kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import signal
import stat
import sys
from pathlib import Path


class UnlikeError(OSError):
    """A new file could not be given the owner, the mode or the attributes of the one that it is to replace."""


class SavedError(OSError):
    """Somebody else wrote the file meanwhile; what they wrote was left as it is."""


def is_read_only(path: Path) -> bool:
    """Whether a file's mode says that its owner does not want it written: also to one who may write anything."""
    return not path.stat().st_mode & stat.S_IWUSR or not os.access(path, os.W_OK)


def write(path: Path, content: bytes) -> None:
    """Make ``content`` the content of a file, which may be there or not.

    What is no ordinary file, such as a pipe, and a file that goes by several names are written in place.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    path = Path(os.path.realpath(path))
    if path.exists():
        if not path.is_file() or path.stat().st_nlink > 1:
            path.write_bytes(content)
            return
        if is_read_only(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    fresh = beside(path, content)
    try:
        os.replace(fresh, path)
    except BaseException:
        _drop(fresh)
        raise


def swap(path: Path, before: bytes, after: bytes, copy: Path) -> None:
    """Give a file other content, and keep it as it was under the name ``copy``, beside it.

    Args:
        path: an ordinary file, no link.
        before: what it has to hold; if it holds anything else at any time until this is done, it is left so.
        after: what it is to hold.
        copy: a name that is not in use.

    Raises:
        SavedError: it did not hold ``before``.
        UnlikeError: see there.
        OSError: it cannot be written. In each case nothing is lost: the file is as it was, or as somebody saved it.
    """
    fresh = beside(path, after, exactly=True)
    try:
        if path.read_bytes() != before:
            raise SavedError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        os.replace(path, copy)  # whatever is there now: a save in this very moment is not written over
        if _is_being_written(copy) or copy.read_bytes() != before:
            raise SavedError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        _claim(fresh, path)
        if copy.read_bytes() != before:  # somebody had it open, and wrote into it
            raise SavedError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
    except BaseException:
        _give_back(copy, path, after)
        raise
    finally:
        _drop(fresh)


def beside(path: Path, content: bytes, *, exactly: bool = False) -> Path:
    """A new file beside ``path`` with the given content, safe on the disk, that looks like ``path`` if that is there.

    Args:
        exactly: whether to refuse where it cannot be made to look the same.
    """
    fresh = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with fresh.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            _dress(fresh, path, exactly)
    except BaseException:
        _drop(fresh)
        raise
    return fresh


def _dress(fresh: Path, like: Path, exactly: bool) -> None:
    """Give a file the owner, mode and extended attributes of another."""
    wanted, made = like.stat(), fresh.stat()
    if (wanted.st_uid, wanted.st_gid) != (made.st_uid, made.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(fresh, wanted.st_uid, wanted.st_gid)
    shutil.copystat(like, fresh)
    os.utime(fresh)
    if exactly and _looks(fresh) != _looks(like):
        raise UnlikeError(errno.EPERM, os.strerror(errno.EPERM), str(like))


def _looks(path: Path) -> tuple[object, ...]:
    now = path.stat()
    named = getattr(os, "listxattr", None)
    attributes = {}
    with contextlib.suppress(OSError):  # a file system that knows none
        attributes = {name: os.getxattr(path, name) for name in named(path)} if named is not None else {}
    return stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid, getattr(now, "st_flags", 0), attributes


def _is_being_written(path: Path) -> bool:
    """Whether somebody has a file open for writing, where the system tells that: Linux grants no lease on it then."""
    if sys.platform != "linux":
        return False
    import fcntl

    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # one that does nothing, should the lease be called in
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:  # also of a file system or a kernel that knows no leases
        return error.errno == errno.EAGAIN
    finally:
        os.close(handle)
    return False


def _claim(fresh: Path, path: Path) -> None:
    """Put a file where none is; FileExistsError if there is one after all."""
    try:
        os.link(fresh, path)
    except FileExistsError as error:
        raise SavedError(errno.EBUSY, os.strerror(errno.EBUSY), str(path)) from error
    except OSError:  # a file system without links
        if path.exists():
            raise SavedError(errno.EBUSY, os.strerror(errno.EBUSY), str(path)) from None
        os.rename(fresh, path)


def _give_back(copy: Path, path: Path, ours: bytes) -> None:
    """Put a file back that was moved away, unless somebody has saved another in its place."""
    if not copy.exists():
        return
    if path.exists() and path.read_bytes() == ours:
        os.replace(copy, path)
        return
    with contextlib.suppress(SavedError):
        _claim(copy, path)
    _drop(copy)


def _drop(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
