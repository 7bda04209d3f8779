"""``%load_ext gradkit``: what gradkit finds stands beneath the traceback of a cell that failed.

``%%gradkit`` on the first line of a cell has it watched for faults that raise nothing as well; ``%gradkit`` looks at the
last error once more. The cell runs as an ordinary cell: its traceback, its numbers and its ``await`` are IPython's own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import ipywidgets

from gradkit.core import attempts, console
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.live import explain
from gradkit.live.explain import Explanation
from gradkit.live.watch import Watch
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import Button
from gradkit.report.report import Report

_MAGIC = re.compile(r"%%gradkit(?:[ \t]+(?P<names>\S.*))?[ \t]*\n?$")


class Extension:
    """gradkit in one IPython shell.

    Args:
        shell: IPython's ``InteractiveShell``.

    Attributes:
        last: what was found last.
        watch: hears what a cell raises, and whether it trains; None when no cell is running.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.last: Explanation | None = None
        self.watch: Watch | None = None
        self._asked = False

    def load(self) -> None:
        """Listen to the shell's cells from now on."""
        self.shell.events.register("pre_run_cell", self._before)
        self.shell.events.register("post_run_cell", self._after)
        self.shell.input_transformers_cleanup.append(without_magic)
        self.shell.register_magic_function(self.again, "line_cell", "gradkit")

    def unload(self) -> None:
        """Listen no more."""
        self.shell.events.unregister("pre_run_cell", self._before)
        self.shell.events.unregister("post_run_cell", self._after)
        self.shell.input_transformers_cleanup.remove(without_magic)
        self.shell.magics_manager.magics["line"].pop("gradkit", None)
        self.shell.magics_manager.magics["cell"].pop("gradkit", None)
        self._close()

    def again(self, line: str, cell: str | None = None) -> None:
        """``%gradkit``: look at the last error once more. With a cell, run that, watched."""
        if cell is not None:
            self.shell.run_cell(f"%%gradkit {line}\n{cell}")
            return
        error = explain.last_error()
        if error is None:
            console.say(GradkitError("nothing_failed").text())
            return
        found = explain.of_error(error)
        if found is None:
            console.say(GradkitError("not_of_autograd", error=attempts.words(error)).text())
            return
        self._show(found)

    # -- around a cell ------------------------------------------------------------------------------------------

    def _before(self, info: Any) -> None:
        """A cell begins. One within another (``%run``, a magic) belongs to the outer one."""
        if self.watch is not None:
            return
        names = asked_for(info.raw_cell)
        self._asked = names is not None
        self.watch = Watch(should_train=names or None, silent=self._asked, tell=lambda _: None)
        self.watch.open()

    def _after(self, result: Any) -> None:
        watch = self._close()
        if watch is None:
            return
        try:
            self._tell(watch, result.error_in_exec)
        except KeyboardInterrupt:
            console.tell(words("cell.interrupted"))

    def _close(self) -> Watch | None:
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.close()
        return watch

    def _tell(self, watch: Watch, error: BaseException | None) -> None:
        found = self._of(error) if isinstance(error, Exception) else None
        if found is not None:
            self._show(found)
        elif self._asked:
            for one in watch.explanations:
                self._show(one)
            if not watch.explanations and error is None:
                console.say(words("cell.nothing_to_say", n=watch.steps))

    def _of(self, error: Exception) -> Explanation | None:
        told = getattr(error, "gradkit_explanation", None)
        return told if told is not None else explain.of_error(error)

    def _show(self, found: Explanation) -> None:
        self.last = found
        if found.report is None:
            console.say(found.text(), end="")
            return
        show(found)


def show(found: Explanation) -> None:
    """Show a report beneath the cell, with a button that opens the panel on it; in a terminal, as text."""
    from IPython import display

    assert found.report is not None
    display.display(found.report)
    if found.step is not None and _has_page():
        display.display(OpenPanel(found.report, found.step))


def _has_page() -> bool:
    """Whether a notebook shows what is displayed, and not a terminal."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class OpenPanel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A button that becomes the panel.

    Args:
        report: what it shows first.
        step: what it diagnoses again.
    """

    def __init__(self, report: Report, step: Any) -> None:
        self._report, self._step = report, step
        self.button = Button("cell.open_panel", self._open)
        super().__init__((self.button,))

    def _open(self) -> None:
        panel = Panel(step=self._step.run, model=self._step.model)
        panel.show_report(self._report)
        self.children = (panel,)


def without_magic(lines: list[str]) -> list[str]:
    """The lines of a cell without ``%%gradkit``; an empty line stands for it, so that every line keeps its number.

    Example:
        >>> without_magic(["%%gradkit proj.*\\n", "loss.backward()\\n"])
        ['\\n', 'loss.backward()\\n']
    """
    if lines and _MAGIC.match(lines[0]):
        return ["\n", *lines[1:]]
    return lines


def asked_for(cell: str) -> Sequence[str] | None:
    """What stands after ``%%gradkit`` on a cell's first line: names or globs of parameters; None without it.

    Example:
        >>> asked_for("%%gradkit proj.*\\nstep()"), asked_for("%%gradkit\\nstep()"), asked_for("step()")
        (['proj.*'], [], None)
    """
    first = next((line for line in cell.splitlines() if line.strip()), "")
    match = _MAGIC.match(first)
    return (match["names"] or "").split() if match else None


_loaded: list[Extension] = []


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext gradkit``."""
    if not any(one.shell is shell for one in _loaded):
        extension = Extension(shell)
        extension.load()
        _loaded.append(extension)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext gradkit``."""
    for extension in [one for one in _loaded if one.shell is shell]:
        with contextlib.suppress(ValueError, KeyError):
            extension.unload()
        _loaded.remove(extension)
