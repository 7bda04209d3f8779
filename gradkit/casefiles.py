"""The programs of the guides, ``guides/<cause>/case.py``: what they hold, and the regions that are shown of them.

A region stands between ``# [name]`` and ``# [end]``; a line that a right diagnosis names ends in ``# CUT``.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import textwrap
from importlib import resources
from pathlib import Path
from types import ModuleType

from gradkit import cause_registry, paired
from gradkit.errors import GradkitError

_CUT = re.compile(r"\s*# CUT$")
_MARK = re.compile(r"^\s*# \[(\w+)\]$")


def region(cause: str, name: str) -> str:
    """The code between ``# [name]`` and ``# [end]`` of the cause's program: dedented, without its ``# CUT`` marks.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.

    Example:
        >>> ".detach()" in region("detach", "wrong")
        True
    """
    lines = _lines(cause)
    first, last = span(lines, name)
    if first > last:
        raise GradkitError("no_such_region", cause=cause, region=name)
    return unmarked(lines[first - 1 : last])


def span(lines: list[str], name: str) -> tuple[int, int]:
    """The first and the last line of the region ``name``, counted from 1; ``(1, 0)`` if there is none.

    Example:
        >>> span(["x = 1", "# [see]", "x", "# [end]"], "see")
        (3, 3)
    """
    marks = [(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := _MARK.match(line))]
    return next(
        ((start + 1, stop - 1) for (start, opened), (stop, _) in itertools.pairwise(marks) if opened == name), (1, 0)
    )


@functools.cache
def definition(cause: str, function: str) -> str:
    """The source of one function of the cause's program.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.
    """
    found = paired.function(_lines(cause), function)
    if not found:
        raise GradkitError("no_such_region", cause=cause, region=function)
    return unmarked(found)


def unmarked(lines: list[str]) -> str:
    """Lines of a program as a reader sees them: dedented, without marks.

    Example:
        >>> unmarked(["    # [wrong]", "    x = x.detach()  # CUT", "    # [end]"])
        'x = x.detach()'
    """
    return textwrap.dedent("\n".join(_CUT.sub("", line) for line in lines if not _MARK.match(line))).strip("\n")


def cut_lines(cause: str) -> frozenset[int]:
    """The lines of the cause's program, counted from 1, that a right diagnosis names.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> len(cut_lines("detach"))
        1
    """
    return frozenset(number for number, line in enumerate(_lines(cause), 1) if _CUT.search(line))


def load_case(cause: str) -> ModuleType:
    """The cause's program as a module: ``make()`` is wrong, ``make_fixed()`` cured; each returns ``(model, step)``.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> model, step = load_case("detach").make()
        >>> step().requires_grad
        True
    """
    return paired.load(folder(cause) / "case.py", f"gradkit.guides.{cause}.case")


def source(cause: str) -> str:
    """The cause's program.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> "def make():" in source("detach")
        True
    """
    return (folder(cause) / "case.py").read_text(encoding="utf-8")


def _lines(cause: str) -> list[str]:
    return source(cause).splitlines()


def folder(cause: str) -> Path:
    """Where a guide lies.

    Raises:
        GradkitError: ``no_such_guide``.
    """
    return Path(str(resources.files("gradkit").joinpath("guides"))) / cause_registry.cause(cause).id


def difference(cause: str, before: str, after: str) -> str:
    """How one region of the cause's program becomes another, as the lines of a diff.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.
    """
    old, new = (region(cause, name).splitlines() for name in (before, after))
    return "\n".join(list(difflib.unified_diff(old, new, n=99, lineterm=""))[3:])
