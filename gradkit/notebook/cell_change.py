"""A change to a cell of the notebook: written into its text by the page that shows it, and run there when asked for.

Only a front end that hands out the notebook's model can write (JupyterLab, Notebook 7). Nothing runs by itself: the
cells that make the objects anew are run before a diagnosis that a person asks for.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.core.records import Change
from gradkit.source import cell_runs, frames, imported
from gradkit.source.cell_runs import CellRun

REFUSALS = ("changed", "gone", "several", "locked", "failed")
"""What a front end, or a cell that was run, may answer in place of ``""``; each has a sentence ``error.cell_*``."""


@dataclass(frozen=True)
class CellEdit:
    """A change to the text of a cell.

    Attributes:
        run: the cell as it ran, and as the change was derived from it.
        after: its text after the change.
        changes: what is changed.
    """

    run: CellRun
    after: str
    changes: tuple[Change, ...]

    @property
    def run_since(self) -> CellRun | None:
        """The run of the changed text; None as long as it was not run."""
        return cell_runs.was_run(self.after, self.run.number)

    def follow(self) -> None:
        """Let reports know where the lines of the cell stand since it was run."""
        now = self.run_since
        imported.stands_in(self.run.file, now.file if now is not None else self.run.file)

    def to_run(self, panel: int) -> list[CellRun]:
        """The cells to run after the change, in their order: the changed one, and those that use what it makes.

        Empty where that is left to the person: one of them trains, or the panel stands in the changed one.

        Args:
            panel: the number of the panel's own cell.
        """
        changed = CellRun(self.run.number, "", self.after)
        others = [one for one in cell_runs.resting_on(self.run, panel) if one.number != panel]
        too_much = self.run.number == panel or any(map(cell_runs.trains, (changed, *others)))
        return [] if too_much else [changed, *others]


def edit_of(file: str, changes: Sequence[Change]) -> CellEdit | None:
    """The change to a cell of this notebook; None if it is none, or if its lines are not the lines that it holds.

    Example:
        >>> edit_of("train.py", [Change("-", 1, "x")]) is None
        True
    """
    run = cell_runs.last_run(file) if frames.is_cell(file) else None
    after = cell_runs.changed(run, changes) if run is not None else ""
    return CellEdit(run, after, tuple(changes)) if run is not None and after else None


def names_of(cells: Sequence[CellRun], language: str) -> str:
    """The numbers in front of some cells, as a person reads them.

    Example:
        >>> names_of([CellRun(3, "", ""), CellRun(5, "", "")], "en")
        '[3], [5]'
    """
    return words("panel.change_file.comma", language).join(f"[{one.number}]" for one in cells)


class CellWriter(anywidget.AnyWidget):
    """The part of the page that writes into cells; it shows nothing.

    Attributes:
        able: whether the front end can do it.
    """

    _esm = Path(__file__).parent / "static" / "cell_change.js"

    able = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._asks = itertools.count(1)
        self._waiting: dict[int, Callable[[str], None]] = {}
        self._runs: _Runs | None = None
        self.on_msg(self._heard)

    def write(self, edit: CellEdit, then: Callable[[str], None], *, back: bool = False) -> None:
        """Ask for the change, or for the text as it was (``back``).

        Args:
            edit: the change.
            then: called with ``""`` once it is done, else with one of ``REFUSALS``; nothing is changed then.
            back: take the change back.
        """
        number = (edit.run_since or edit.run).number if back else edit.run.number
        text, now = (edit.after, edit.run.text) if back else (edit.run.text, edit.after)
        self._ask({"write": {"number": number, "text": text, "now": now}}, then)

    def run(self, cells: Sequence[CellRun], then: Callable[[str], None]) -> None:
        """Ask for cells to be run in the notebook, one after another.

        Args:
            cells: with the texts that are to run.
            then: called once all have run, with ``""`` or one of ``REFUSALS``.
        """
        if self._runs is not None:
            self._runs.end()
        self._runs = _Runs([one.text for one in cells], then)
        self._ask({"run": [{"number": one.number, "text": one.text} for one in cells]}, self._runs.begun)

    def close(self) -> None:
        """Take it off the page; nobody listens to cells any more."""
        runs = getattr(self, "_runs", None)  # also called where it was never built
        if runs is not None:
            runs.end()
        super().close()

    def _ask(self, what: dict[str, Any], then: Callable[[str], None]) -> None:
        ask = next(self._asks)
        self._waiting[ask] = then
        self.send({"ask": ask, **what})

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        then = self._waiting.pop(int(content.get("ask", 0)), None) if isinstance(content, dict) else None
        if then is not None:  # else another page was quicker
            refused = str(content.get("refused", ""))
            then(refused if refused in ("", *REFUSALS) else "gone")


class _Runs:
    """Listens until each of some cells has run, or one of them has failed."""

    def __init__(self, texts: Sequence[str], then: Callable[[str], None]) -> None:
        self._left, self._then = list(texts), then
        self._shell = frames.notebook_shell()
        if self._shell is not None:
            self._shell.events.register("post_run_cell", self._ran)

    def begun(self, refused: str) -> None:
        """The page has asked for the runs, or could not."""
        if refused:
            self._tell(refused)

    def end(self) -> None:
        """Listen no more."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.events.unregister("post_run_cell", self._ran)

    def _ran(self, result: Any) -> None:
        raw = str(getattr(result.info, "raw_cell", "") or "").rstrip("\n")
        if not self._left or raw != self._left[0]:
            return
        self._left.pop(0)
        if not result.success:
            self._tell("failed")
        elif not self._left:
            self._tell("")

    def _tell(self, refused: str) -> None:
        if self._shell is None:
            return
        self.end()
        try:
            asyncio.get_running_loop().call_soon(functools.partial(self._then, refused))  # the cell has ended by then
        except RuntimeError:
            self._then(refused)


def refusal(refused: str, number: int) -> GradkitError:
    """What is said where a cell was not changed, or did not run.

    Example:
        >>> refusal("gone", 3).key
        'cell_gone'
    """
    return GradkitError(f"cell_{refused}", number=number)
