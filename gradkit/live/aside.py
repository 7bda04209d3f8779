"""A person's program, run under ``gradkit run`` in a process of its own for somebody who waits for the report.

It runs as in a terminal: in the current folder, with the arguments as they would be typed there. It is ended at the
first backward that shows a fault, or after a few sound steps; what it would have done afterwards is not done.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.live import launch
from gradkit.live.launch import SOUND_STEPS, Wishes
from gradkit.load import reading
from gradkit.report.report import Report
from gradkit.source import training_loops

_PULSE = 0.1  # seconds between two looks at the process
_PATIENCE = 5
_MOST_SHOWN, _LONGEST = 12, 200  # lines of what it printed, and signs of each


def divided(arguments: str) -> list[str]:
    """Arguments as they are typed behind a program's name, in the way of a POSIX shell.

    Raises:
        GradkitError: a quotation mark is left open (``arguments_open``).

    Example:
        >>> divided("--name 'my run' --epochs 3")
        ['--name', 'my run', '--epochs', '3']
    """
    try:
        return shlex.split(arguments, posix=os.name == "posix")
    except ValueError as error:
        raise GradkitError("arguments_open", arguments=arguments) from error


def report_of(
    program: str,
    arguments: str = "",
    *,
    should_train: Sequence[str] = (),
    beat: Callable[[], None] = lambda: None,
) -> Report:
    """Run a program up to its first finding, or its first few sound steps; the report on that step.

    Args:
        program: a script, ``"train.py"``, or a function that trains, ``"train.py:main"``.
        arguments: what is typed behind its name.
        should_train: names or globs of parameters that ought to get a gradient; ``()`` for all that require grad.
        beat: called some ten times a second while it runs; whatever it raises ends the program.

    Raises:
        GradkitError: there is no such file; it ended before anything could be said, with what it printed last
            (``program_failed``); nothing in it goes backward (``program_without_training``); it is sound, but took too
            few steps for a report (``program_sound``); or what was said of it without a report (``program_told``).
    """
    reading.check(Path(_file_of(program)))
    made = launch.program_of(program, divided(arguments))
    with tempfile.TemporaryDirectory(prefix="gradkit-") as folder:
        outcome, printed = Path(folder) / "outcome.json", Path(folder) / "printed.txt"
        wishes = Wishes(
            outcome=str(outcome), steps=SOUND_STEPS, whole=True, language=i18n.language(),
            should_train=tuple(should_train),
        )  # fmt: skip
        status = _waited(launch.command(made), _surroundings(wishes, made), printed, beat)
        whole = launch.report_file(str(outcome))
        if whole.exists():
            report: Report = pickle.loads(whole.read_bytes())  # noqa: S301  # written by gradkit in that process
            return report
        raise _unsaid(program, status, launch.found_in(outcome), printed)


def _file_of(program: str) -> str:
    return program.rpartition(":")[0] or program


def _surroundings(wishes: Wishes, program: Sequence[str]) -> dict[str, str]:
    """The environment, without what a notebook's kernel has put there for itself."""
    around = launch.environment(wishes, program, os.environ)
    if around.get("MPLBACKEND", "").startswith("module://"):  # pictures would go to a kernel that is not there
        around["MPLBACKEND"] = "Agg"
    return {**around, "PYTHONIOENCODING": "utf-8"}


def _waited(made: list[str], around: dict[str, str], printed: Path, beat: Callable[[], None]) -> int:
    """Run it to its end, or to that of who waits. Returns its exit status."""
    with printed.open("wb") as output:
        process = subprocess.Popen(
            made, env=around, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_PULSE)
            beat()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, with the processes that it has started."""
    if process.poll() is not None:
        return
    for how in ("SIGTERM", "SIGKILL"):
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(process.pid, getattr(signal, how))
        if os.name != "posix":
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return


def _unsaid(program: str, status: int, found: Mapping[str, Any], printed: Path) -> GradkitError:
    """Why there is no report."""
    told = found.get("told") or {}
    if status == 0 and not found.get("steps"):
        file = _file_of(program)
        return GradkitError("program_without_training", file=program, names=training_loops.steps_of(file))
    if found.get("healthy"):
        return GradkitError("program_sound", program=program, n=found["steps"])
    if text := told.get("text", "").strip():
        return GradkitError("program_told", program=program, said=_indented(text))
    return GradkitError("program_failed", program=program, status=status, printed=_last(printed))


def _last(printed: Path) -> str:
    lines = printed.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-_MOST_SHOWN:]
    return _indented("\n".join(line[:_LONGEST] for line in lines)) or "  -"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
