"""The cells of a notebook as they ran: what stood in one, how a change reads there, which other cells rest on it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradkit.core.records import Change
from gradkit.source import frames, rebinding, syntax, training_loops
from gradkit.source.changes import OutdatedError, applied


@dataclass(frozen=True)
class CellRun:
    """A cell, as it was executed last.

    Attributes:
        number: the number in front of it, from that run.
        file: the name that IPython gave it as a source file.
        text: what stood in it, magics included, without newlines at its end.
    """

    number: int
    file: str
    text: str


def last_run(file: str) -> CellRun | None:
    """The last run of a cell, by its name as a source file; None if it is none of this notebook's.

    Example:
        >>> last_run("/tmp/ipykernel_7/3321010380.py") is None
        True
    """
    return next((one for one in reversed(_runs()) if one.file == file), None)


def was_run(text: str, since: int) -> CellRun | None:
    """The last run of a cell that holds a text, if that was after the run of a number.

    Example:
        >>> was_run("loss = step()", since=3) is None
        True
    """
    return next((one for one in reversed(_runs()) if one.number > since and one.text == text), None)


def changed(run: CellRun, changes: Sequence[Change]) -> str:
    """What stands in a cell after a change to its lines; ``""`` if that cannot be told.

    Lines are counted as Python was given them: IPython takes empty lines away at the beginning, and may put one line
    in place of several. Where lines cannot be told apart by that, nothing is changed.

    Example:
        >>> cell = "x.py"
        >>> linecache.cache[cell] = 0, None, ["y = x.detach()\\n"], cell
        >>> changes = [Change("-", 1, "y = x.detach()"), Change("+", 1, "y = x")]
        >>> changed(CellRun(3, cell, "\\n\\ny = x.detach()"), changes)
        '\\n\\ny = x'
    """
    given = "".join(linecache.getlines(run.file))
    lines = run.text.splitlines()
    empty = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not changes or len(given.rstrip("\n").splitlines()) != len(lines) - empty:
        return ""
    moved = [replace(one, number=one.number + empty) for one in changes]
    try:
        ast.parse(applied(given, changes))
        return applied(run.text, moved)
    except (OutdatedError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def resting_on(run: CellRun, before: int) -> list[CellRun]:
    """The cells that use what a cell defines, or what such a cell makes, in the order in which they were run after it.

    Args:
        before: cells that were first run later than this number are left out.

    Example:
        >>> resting_on(CellRun(3, "", "class Net: pass"), before=9)
        []
    """
    runs = _runs()
    known = {one.text for one in runs if one.number < before}
    later = {one.text: one for one in runs if one.number > run.number and one.text != run.text}
    made, found = set(rebinding.flow(_tree(run).body).stored), []
    for one in sorted(later.values(), key=lambda one: one.number):
        tree = _tree(one)
        if one.text in known and made & syntax.names_in(tree):
            made |= rebinding.flow(tree.body).stored
            found.append(one)
    return found


def trains(run: CellRun) -> bool:
    """Whether a cell goes backward when it is run, be it in a function of another cell: that may take hours.

    Example:
        >>> trains(CellRun(1, "", "for x in data: net(x).backward()")), trains(CellRun(1, "", "net = Net()"))
        (True, False)
    """
    defined = [one for other in _runs() for one in _tree(other).body if isinstance(one, rebinding.SCOPES)]
    return training_loops.trains_as_script(ast.Module([*defined, *_tree(run).body], []))


def _runs() -> list[CellRun]:
    """Every run whose text is known, in the order of the runs."""
    running = frames.notebook_shell()
    texts = running.history_manager.input_hist_raw if running is not None else ()
    pairs = enumerate(zip(frames.cells_run(), texts, strict=False))
    return [CellRun(number, file, text) for number, (file, text) in pairs if file]


def _tree(run: CellRun) -> ast.Module:
    """The syntax tree of a cell as Python was given it, of its own text if that is not known; empty if it has none."""
    try:
        return ast.parse("".join(linecache.getlines(run.file)) or run.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
