"""How much memory is free, and whether what is to be loaded fits into it: what does not can end the process."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import zipfile
from pathlib import Path

from gradkit.core import regular_files
from gradkit.core.errors import GradkitError
from gradkit.load.reading import short

_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that can still be had, as far as the system tells; ``sys.maxsize`` where it does not.

    Example:
        >>> 0 < free_memory() <= sys.maxsize
        True
    """
    return max(min(_free_of_machine(), _free_of_container()), 0)


def size_shown(size: int) -> str:
    """A number of bytes for a person to read.

    Example:
        >>> size_shown(5 * 2**30), size_shown(3 * 2**20), size_shown(10**30)
        ('5.0 GB', '3.0 MB', '> 1,000,000,000 GB')
    """
    if size > 10**9 * 2**30:
        return "> 1,000,000,000 GB"
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.1f} MB"


def _free_of_machine() -> int:
    with contextlib.suppress(OSError, ValueError):
        told = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        if told:
            return int(told[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not on Windows
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _free_of_container() -> int:
    """What a container's limit leaves; pages that only repeat what is on the disk are given back when needed."""
    with contextlib.suppress(OSError, ValueError):
        most, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        kept = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
        return most - used + (int(kept[1]) if kept else 0)
    return sys.maxsize


def check_fits(path: Path) -> None:
    """Whether what a file unpacks to fits into the memory that is free.

    Raises:
        GradkitError: it does not (``does_not_fit``).
    """
    size = regular_files.file_size(path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = max(size, sum(entry.file_size for entry in archive.infolist()))
    if size > free_memory():
        raise GradkitError("does_not_fit", path=short(path), size=size_shown(size), free=size_shown(free_memory()))
