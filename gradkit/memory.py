"""How much memory is free: what would not fit is refused before it is asked for, as that can end the process."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free() -> int:
    """Bytes that can still be had, as far as the system tells; ``sys.maxsize`` where it does not.

    Example:
        >>> 0 < free() <= sys.maxsize
        True
    """
    return max(min(_of_the_machine(), _of_the_container()), 0)


def shown(size: int) -> str:
    """A number of bytes for a person to read.

    Example:
        >>> shown(5 * 2**30), shown(3 * 2**20), shown(10**30)
        ('5.0 GB', '3.0 MB', '> 1,000,000,000 GB')
    """
    if size > 10**9 * 2**30:
        return "> 1,000,000,000 GB"
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.1f} MB"


def _of_the_machine() -> int:
    with contextlib.suppress(OSError, ValueError):
        told = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        if told:
            return int(told[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not on Windows
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _of_the_container() -> int:
    """What a container's limit leaves; pages that only repeat what is on the disk are given back when needed."""
    with contextlib.suppress(OSError, ValueError):
        most, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        kept = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
        return most - used + (int(kept[1]) if kept else 0)
    return sys.maxsize
