"""``%load_ext gradkit``: what gradkit finds stands beneath the traceback of a cell that failed.

``%%gradkit`` on the first line of a cell has it watched for faults that raise nothing as well; ``%gradkit`` looks at
the last error once more. The cell runs as an ordinary cell: its traceback, its numbers and its ``await`` are IPython's
own.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import ipywidgets

from gradkit.core import attempts, console, i18n
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.live import explain, hearing
from gradkit.live.explain import Explanation
from gradkit.live.watch import Watch
from gradkit.notebook.accessibility import style
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import Button, Column
from gradkit.notebook.parts import show as show_widget
from gradkit.report.report import Report
from gradkit.source import faults
from gradkit.witness.listening import Listening

MAGIC = "%%gradkit"


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
        self._witness = Listening(until_steps=2)  # each cell is heard by its watch; this is for the one that loads us

    def load(self) -> None:
        """Listen to the shell's cells from now on, and to who makes, freezes and replaces parameters in them."""
        self._witness.open()
        self.shell.events.register("pre_run_cell", self._before)
        self.shell.events.register("post_run_cell", self._after)
        self.shell.input_transformers_cleanup.append(without_magic)
        self.shell.showtraceback = self._show_traceback
        self.shell.register_magic_function(self.again, "line_cell", "gradkit")

    def unload(self) -> None:
        """Listen no more."""
        self.shell.events.unregister("pre_run_cell", self._before)
        self.shell.events.unregister("post_run_cell", self._after)
        self.shell.input_transformers_cleanup.remove(without_magic)
        if vars(self.shell).get("showtraceback") == self._show_traceback:  # else somebody else's stands around it
            del self.shell.showtraceback
        self.shell.magics_manager.magics["line"].pop("gradkit", None)
        self.shell.magics_manager.magics["cell"].pop("gradkit", None)
        self._close()
        self._witness.close()

    def again(self, line: str, cell: str | None = None) -> None:
        """``%gradkit``: look at the last error once more. With a cell, run that, watched."""
        if cell is not None:
            self.shell.run_cell(f"%%gradkit\n{cell}")
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
        self._asked = is_watched(info.raw_cell)
        self.watch = Watch(silent=self._asked, notes=False, tell=lambda _: None).open()

    def _after(self, result: Any) -> None:
        watch = self._close()
        if watch is None:
            return
        try:
            self._tell(watch, result.error_in_exec)
        except KeyboardInterrupt:
            console.tell(words("cell.interrupted"))

    def _show_traceback(self, *args: Any, **kwargs: Any) -> Any:
        """IPython's traceback, without the frame in which gradkit heard the error."""
        for error in faults.raised_from(sys.exc_info()[1]):
            _unlink(error.__traceback__)
        return type(self.shell).showtraceback(self.shell, *args, **kwargs)

    def _close(self) -> Watch | None:
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.close()
        return watch

    def _tell(self, watch: Watch, error: BaseException | None) -> None:
        found = watch.explanation_of(error) or explain.of_error(error) if isinstance(error, Exception) else None
        if found is not None:
            self._show(found)
        elif self._asked:
            for one in watch.explanations:
                self._show(one)
            if not watch.explanations and error is None:
                console.say(words("cell.nothing_to_say", n=watch.steps))

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
    display.display(found.report)  # type: ignore[no-untyped-call]
    if _has_page():
        display.display(OpenPanel(found.report))  # type: ignore[no-untyped-call]


def _has_page() -> bool:
    """Whether a notebook shows what is displayed, and not a terminal."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class OpenPanel(Column):
    """A button that becomes the panel, on a report.

    Args:
        report: what the panel shows.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self.button = Button("cell.open_panel", self._open, look="gkp-accent")
        look = ipywidgets.HTML(style())
        show_widget(look, False)
        super().__init__(look, self.button, look="gkp gkp-bare")
        self.speak(i18n.language())

    def _open(self) -> None:
        panel = Panel()
        panel.show_report(self._report)
        self.children = (panel,)
        self._dom_classes = ()


def _unlink(trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename == hearing.__file__:
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


def without_magic(lines: list[str]) -> list[str]:
    """The lines of a cell without ``%%gradkit``; an empty line stands for it, so that every line keeps its number.

    Example:
        >>> without_magic(["%%gradkit\\n", "loss.backward()\\n"])
        ['\\n', 'loss.backward()\\n']
    """
    return ["\n", *lines[1:]] if lines and lines[0].rstrip() == MAGIC else lines


def is_watched(cell: str) -> bool:
    """Whether the first line of a cell is ``%%gradkit``.

    Example:
        >>> is_watched("\\n%%gradkit\\nstep()"), is_watched("step()\\n%%gradkit")
        (True, False)
    """
    return next((line for line in cell.splitlines() if line.strip()), "").rstrip() == MAGIC


_loaded: list[Extension] = []


def load(shell: Any) -> None:
    """Load the extension into a shell, unless that was done."""
    if not any(one.shell is shell for one in _loaded):
        _loaded.append(Extension(shell))
        _loaded[-1].load()


def unload(shell: Any) -> None:
    """Take the extension out of a shell again."""
    for extension in [one for one in _loaded if one.shell is shell]:
        _loaded.remove(extension)
        extension.unload()
