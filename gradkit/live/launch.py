"""Start a person's program as Python itself starts it, with one folder more on ``PYTHONPATH``.

Nothing of Python is imitated: ``__main__``, ``argv``, ``sys.path``, ``-m``, the exit status, Ctrl-C, ``fork`` and
``spawn`` are Python's own. All that differs is ``boot/sitecustomize.py``, which Python runs before the program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gradkit.core import console
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.load import reading

SOUND_STEPS = 3
"""After so many sound steps ``gradkit diagnose train.py`` ends a training."""

BOOT = Path(__file__).parent / "boot"
VARIABLE = "GRADKIT_RUN"
"""Private: what the program's process is told, as JSON. It is in no other variable, and no part of the public face."""

_ROOT = str(Path(__file__).parents[2])
_NO_PYTHONPATH = "EIS"  # options of python that leave PYTHONPATH, or what it leads to, aside
_NOT_HANDED_ON = _NO_PYTHONPATH + "x"
_NOTHING_SEEN: dict[str, Any] = {"healthy": None, "findings": [], "steps": 0}


@dataclass(frozen=True)
class Wishes:
    """What ``gradkit run`` was asked for.

    Attributes:
        json: the file that one JSON object goes to; ``""`` for none.
        report: the file that the report of the first finding goes to, by its ending; ``""`` for none.
        stop: end the program at the first finding.
        quiet: say nothing of a program in which nothing was found.
        language: ``"en"`` or ``"zh"``.
        should_train: names or globs of parameters that ought to get a gradient; ``()`` for all that require grad.
        steps: end the program after so many sound optimizer steps; 0 to let it run.
        outcome: the file that tells the process which waits what was found; ``""`` where none waits.
        breakdown: how many steps down the parameters are counted by module for it; 0 for not at all.
        whole: hand that process the report itself as well, in a file beside ``outcome`` (:func:`report_file`).
    """

    json: str = ""
    report: str = ""
    stop: bool = False
    quiet: bool = False
    language: str = "en"
    should_train: tuple[str, ...] = ()
    steps: int = 0
    outcome: str = ""
    breakdown: int = 0
    whole: bool = False

    @staticmethod
    def read(told: Mapping[str, Any]) -> Wishes:
        """The wishes that :func:`environment` wrote."""
        given = {one.name: told[one.name] for one in dataclasses.fields(Wishes)}
        return Wishes(**{**given, "should_train": tuple(given["should_train"])})

    def absolute(self) -> Wishes:
        """The same with paths that hold wherever the program goes."""
        paths = {name: os.path.abspath(path) for name in ("json", "report", "outcome") if (path := getattr(self, name))}
        return dataclasses.replace(self, **paths)


def report_file(outcome: str) -> Path:
    """Where the report itself lies, beside a file that tells what was found.

    Example:
        >>> report_file("outcome.json").name
        'outcome.report'
    """
    return Path(outcome).with_suffix(".report")


_TAKES_ONE = ("--json", "--report", "--language")
_PATIENCE = 10  # seconds that a program has to end when it is told to
_FORMATS = (".html", ".svg", ".png", ".json", ".dot", ".txt")


def divided(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of ``gradkit run`` that are its own, and those that are the program: ``-m``, ``-c``, ``--``, or the
    first word that is no option begins it, and all that follows belongs to it.

    ``--should-train`` takes words up to the next option, or up to a file.

    Example:
        >>> divided(["--stop", "--should-train", "proj.*", "head.*", "train.py", "--stop"])
        (['--stop', '--should-train', 'proj.*', 'head.*'], ['train.py', '--stop'])
        >>> divided(["--json", "out.json", "-m", "package.train"])
        (['--json', 'out.json'], ['-m', 'package.train'])
    """
    at = 0
    while at < len(given) and given[at].startswith("-") and not _begins(given[at]):
        option, at = given[at], at + 1
        if option in _TAKES_ONE:
            at += 1
        while option == "--should-train" and at < len(given) and not _is_program(given[at]):
            at += 1
    return list(given[:at]), list(given[at:])


def _begins(word: str) -> bool:
    return word == "-" or word == "--" or (word[:2] in ("-m", "-c") and not word.startswith("--"))


def _is_program(word: str) -> bool:
    return word.startswith("-") or word.endswith((".py", ".pyc", ".pyz")) or Path(word).exists()


def command(program: Sequence[str]) -> list[str]:
    """The words that start a program: behind ``--`` a command's own, else this Python with the options that it was
    started with, and what it is given.

    Example:
        >>> command(["--", "torchrun", "train.py"])
        ['torchrun', 'train.py']
        >>> command(["-m", "package.train", "--epochs", "3"])[-4:]
        ['-m', 'package.train', '--epochs', '3']
    """
    return list(program[1:]) if program[0] == "--" else [sys.executable, *python_options(sys.orig_argv), *program]


def python_options(given: Sequence[str]) -> list[str]:
    """The options of Python itself, as ``-O`` and ``-W error``, without those that would keep gradkit away from the
    program (``-E``, ``-I``, ``-S``), and ``-x``, which would skip a line of it.

    Args:
        given: the words that this Python was started with, ``sys.orig_argv``.

    Example:
        >>> python_options(["python", "-OI", "-W", "error", "-m", "gradkit", "run", "-v", "train.py"])
        ['-O', '-Werror']
    """
    found, words_left = list[str](), iter(given[1:])
    for word in words_left:
        if word.startswith("--") and word != "--":
            found += [word, next(words_left, "")]
        elif word[:1] != "-" or len(word) == 1:
            break
        else:
            short = re.match(r"-([^cmWX]*)([cmWX]?)(.*)", word, re.DOTALL)
            plain, last, value = short.groups() if short is not None else ("", "", "")
            plain = "".join(one for one in plain if one not in _NOT_HANDED_ON)
            found += [f"-{plain}"] if plain else []
            if last in ("c", "m"):
                break
            found += [f"-{last}{value or next(words_left, '')}"] if last else []
    return found


def environment(wishes: Wishes, program: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: the one given, ``PYTHONPATH`` with our folder first, and the wishes.

    Example:
        >>> made = environment(Wishes(stop=True), ["train.py"], {"PYTHONPATH": "lib"})
        >>> made["PYTHONPATH"].split(os.pathsep)[1:], json.loads(made["GRADKIT_RUN"])["stop"]
        (['lib'], True)
    """
    told = {
        **dataclasses.asdict(wishes.absolute()),
        "depth": 0,
        "everywhere": program[0] == "--",
        "root": [sys.prefix, _ROOT],
        "absent": words("cli.error", message=words("run.absent", error="{error}")),
    }
    path = os.pathsep.join(filter(None, (str(BOOT), given.get("PYTHONPATH", ""))))
    return {**given, "PYTHONPATH": path, VARIABLE: json.dumps(told)}


def is_deaf(program: Sequence[str]) -> bool:
    """Whether a command is a Python that was told to leave ``PYTHONPATH`` aside, so that gradkit is absent from it.

    Example:
        >>> is_deaf(["--", "python3", "-I", "train.py"]), is_deaf(["--", "python3", "train.py", "-I"])
        (True, False)
    """
    if program[0] != "--" or not Path(program[1]).name.lower().startswith(("python", "pypy")):
        return False
    for word in program[2:]:
        if not word.startswith("-") or word.startswith(("--", "-c", "-m", "-W", "-X")):
            return False
        if set(word) & set(_NO_PYTHONPATH):
            return True
    return False


def prepare(wishes: Wishes) -> None:
    """See that the files which were asked for can be written, before anything runs; ``--json`` holds that nothing was
    seen so far, and so does it where the program ends without a word.

    Raises:
        GradkitError: a file cannot be written (``cannot_save``).
    """
    path = wishes.json
    try:
        if path:
            Path(path).write_text(json.dumps(_NOTHING_SEEN), encoding="utf-8")
        path = wishes.report
        if path and Path(path).suffix.lower() not in _FORMATS:
            raise GradkitError("save_format", path=path, formats=" ".join(_FORMATS))
        if path and not Path(path).absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        raise GradkitError("cannot_save", path=path, reason=error.strerror) from error


def become(program: Sequence[str], wishes: Wishes) -> int:
    """Turn this process into the program; where a system has no such thing, run it and wait.

    Args:
        program: the words after gradkit's own: a script, ``-m``, ``-c`` or ``--``, and what follows.

    Returns:
        The exit status of the program, if this process had to wait for it.

    Raises:
        GradkitError: none was named (``no_program``), there is no such script (``no_such_file``), it cannot be started
            (``cannot_start``), or as for ``prepare``.
    """
    if not program or program == ["--"]:
        raise GradkitError("no_program")
    prepare(wishes)
    if not program[0].startswith("-") and not os.path.lexists(program[0]):
        raise GradkitError("no_such_file", near=reading.near(program[0]), path=reading.short(program[0]))
    made = command(program)
    if is_deaf(program):
        console.tell(words("cli.error", message=words("run.deaf", command=" ".join(made[:2]))))
    around = environment(wishes, program, os.environ)
    try:
        return _waited(made, around) if os.name == "nt" else _replaced(made, around)
    except OSError as error:
        raise GradkitError("cannot_start", command=made[0], reason=error.strerror or error) from error


def _replaced(made: list[str], around: dict[str, str]) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    ignored = [one for one in (getattr(signal, name, None) for name in ("SIGPIPE", "SIGXFSZ")) if one]
    for one in ignored:  # Python ignores them for itself; what is ignored stays so in the program
        signal.signal(one, signal.SIG_DFL)
    try:
        os.execvpe(made[0], made, around)  # noqa: S606  # the very command that was asked for
    finally:
        for one in ignored:
            signal.signal(one, signal.SIG_IGN)


def _waited(made: list[str], around: dict[str, str]) -> int:
    with subprocess.Popen(made, env=around) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the program was told, too
                continue


_CALL = "import sys, torch; from gradkit.live.program import call; call(sys.argv[1], sys.argv[2:])"


def program_of(spec: str, arguments: Sequence[str]) -> list[str]:
    """The words behind this Python that run a script, or call a function that trains.

    Example:
        >>> program_of("train.py", ["--epochs", "3"])
        ['train.py', '--epochs', '3']
        >>> program_of("train.py:main", ["--epochs", "3"])[2:]
        ['train.py:main', '--epochs', '3']
    """
    return [spec, *arguments] if spec.endswith(".py") else ["-c", _CALL, spec, *arguments]


def found_in(outcome: Path) -> dict[str, Any]:
    """What the file of an ended process says that was found; ``{}`` if it ended before anything could be said.

    Example:
        >>> found_in(Path("no such file.json"))
        {}
    """
    return dict(json.loads(outcome.read_text(encoding="utf-8"))) if outcome.exists() else {}


def until_found(spec: str, arguments: Sequence[str], wishes: Wishes) -> dict[str, Any]:
    """Run a training in a process of its own up to its first finding, or its first few sound steps.

    Its output goes to stderr.

    Args:
        spec: a script, ``"train.py"``, or a function that trains, ``"train.py:main"``.
        arguments: what the program is given.

    Returns:
        What ``Report.data()`` gives, ``steps``, and under ``told`` the report in words and what could not be written;
        ``{}`` if the program ended before anything could be said. ``status`` is its exit status.
    """
    prepare(wishes)
    program = program_of(spec, arguments)
    with tempfile.TemporaryDirectory(prefix="gradkit-") as folder:
        outcome = Path(folder) / "outcome.json"
        around = environment(dataclasses.replace(wishes, outcome=str(outcome)), program, os.environ)
        status = _aside(command(program), around)
        return {**found_in(outcome), "status": status}


def _aside(made: list[str], around: dict[str, str]) -> int:
    out = subprocess.DEVNULL if sys.stderr is None else 2
    with subprocess.Popen(made, env=around, stdout=out) as process:
        try:
            return process.wait()
        except KeyboardInterrupt as stop:
            if getattr(stop, "number", signal.SIGINT) != signal.SIGINT:  # Ctrl-C reaches both, another signal this one
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            process.kill()
            raise
