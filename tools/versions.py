"""The tests on the oldest and the newest Python and torch that gradkit claims to support, each in a venv of its own.

python tools/versions.py                      both ends; venvs in .venv-versions/, made anew only when told so
python tools/versions.py --list               what would be run
python tools/versions.py --fresh              make the venvs anew, with the newest of all that is not pinned
python tools/versions.py -- -k cuts -x        what follows -- goes to pytest

Where PyPI's torch is a build for GPUs, PIP_EXTRA_INDEX_URL names the index of the small CPU builds.

The oldest end is the oldest Python and the oldest torch that pyproject.toml allows, with constraints.txt for the rest;
the newest end is the newest Python of its classifiers with the newest release of every dependency, torch included.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).parents[1]
VENVS = REPO / ".venv-versions"
WHAT = """
import importlib.metadata, platform
names = ("torch", "transformers", "peft", "numpy", "jupyterlab")
print("Python", platform.python_version(), *(f"{name} {importlib.metadata.version(name)}" for name in names))
"""


@dataclass(frozen=True)
class End:
    """One end of what is supported.

    Attributes:
        name: ``"oldest"`` or ``"newest"``.
        python: for example ``"3.10"``.
        torch: what pip is asked for, for example ``"torch==2.13.*"`` or ``"torch"``.
        pinned: whether the other dependencies are those of constraints.txt.
    """

    name: str
    python: str
    torch: str
    pinned: bool

    @property
    def venv(self) -> Path:
        """Where its venv is."""
        return VENVS / self.name

    @property
    def constraints(self) -> Path:
        """Where constraints.txt lies without the torch that is developed with."""
        return self.venv.with_suffix(".txt")

    def commands(self, interpreter: str) -> list[list[str]]:
        """What makes the venv: each a command line."""
        inside = str(self.venv / ("Scripts" if os.name == "nt" else "bin") / "python")
        pins = ["-c", str(self.constraints)] if self.pinned else ["--upgrade", "--upgrade-strategy", "eager"]
        return [
            [interpreter, "-m", "venv", "--clear", str(self.venv)],
            [inside, "-m", "pip", "install", "-q", *pins, self.torch, "-e", ".[test]"],
        ]


def ends(project: dict[str, object]) -> tuple[End, End]:
    """The two ends, read off the ``[project]`` table of pyproject.toml.

    Example:
        >>> table = {"classifiers": ["Programming Language :: Python :: 3.9", "Programming Language :: Python :: 3.10"],
        ...          "requires-python": ">=3.9", "dependencies": ["numpy", "torch>=2.4"]}
        >>> [(end.python, end.torch) for end in ends(table)]
        [('3.9', 'torch==2.4.*'), ('3.10', 'torch')]
    """
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))  # type: ignore[arg-type]
    pythons = sorted(claimed, key=lambda version: int(version.split(".")[1]))
    wanted = [Requirement(line) for line in project["dependencies"]]  # type: ignore[attr-defined]
    (torch,) = (one for one in wanted if canonicalize_name(one.name) == "torch")
    (oldest,) = (one.version for one in torch.specifier if one.operator == ">=")
    return End("oldest", pythons[0], f"torch=={oldest}.*", True), End("newest", pythons[-1], "torch", False)


def constraints_but_torch() -> str:
    """constraints.txt, with no word about torch, nor about sympy: some releases of torch ask for one version of it.

    Example:
        >>> "torchviz==" in constraints_but_torch(), "torch==" in constraints_but_torch()
        (True, False)
        >>> "sympy==" in constraints_but_torch()
        False
    """
    lines = (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("torch==", "sympy==")))


def interpreter(version: str) -> str | None:
    """A Python of that version on this system, None if there is none that starts."""
    for command in (shutil.which(f"python{version}"), sys.executable):
        asked = [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if command and subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return command
    return None


def project() -> dict[str, object]:
    """The ``[project]`` table of pyproject.toml."""
    table = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(table)


def run(end: End, arguments: list[str], *, fresh: bool) -> int:
    """Make the venv if need be, say what is in it, run the tests; the exit status."""
    python = interpreter(end.python)
    if python is None:
        print(f"{end.name}: there is no python{end.python} on this system")
        return 1
    making, installing = end.commands(python)
    inside, done = installing[0], end.venv / ".installed"
    if fresh or not done.exists():
        VENVS.mkdir(exist_ok=True)
        end.constraints.write_text(constraints_but_torch(), encoding="utf-8")
        for command in (making, installing):
            print("+", *command, flush=True)
            if status := subprocess.run(command, cwd=REPO, check=False).returncode:
                return status
        done.touch()
    print(f"{end.name}: ", end="", flush=True)
    subprocess.run([inside, "-c", WHAT], cwd=REPO, check=True)
    return subprocess.run([inside, "-m", "pytest", "-q", *arguments], cwd=REPO, check=False).returncode


def main() -> int:
    """Run both ends; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--only", choices=["oldest", "newest"])
    parser.add_argument("pytest", nargs="*", metavar="PYTEST ARGUMENT")
    options = parser.parse_args()
    chosen = [end for end in ends(project()) if options.only in (None, end.name)]
    if options.list:
        for end in chosen:
            print(f"{end.name}: Python {end.python} ({interpreter(end.python) or 'not on this system'}), {end.torch}")
        return 0
    told = {end.name: run(end, options.pytest, fresh=options.fresh) for end in chosen}
    for name, status in told.items():
        print(f"{name}: {'passed' if status == 0 else f'failed ({status})'}")
    return int(any(told.values()))


if __name__ == "__main__":
    sys.exit(main())
