"""Runs notebooks cell by cell in IPython, each in a process of its own that is forked off one which has torch already.

A kernel of Jupyter spends most of its time on importing torch; forty guides in two languages would take many minutes.
What a fork can't show (that a notebook runs in Jupyter itself) is tested with the start notebook, in a real kernel.

    with Forks() as forks:
        run = forks.run(Path("notebooks/en/guides/detach.ipynb"))
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[1]
RAISES = "raises-exception"  # Jupyter's own tag for a cell that ends in an error on purpose


@dataclass(frozen=True)
class Ran:
    """A code cell that has run: what it printed and displayed (MIME bundles), the error that it ended in, and may."""

    source: str
    printed: str
    displayed: list[dict[str, Any]]
    error: str
    may_raise: bool = False


@dataclass(frozen=True)
class Run:
    """A notebook that has run: its code cells, and what was written to standard error while they ran."""

    cells: list[Ran]
    noise: str

    @property
    def pages(self) -> list[str]:
        """What the cells displayed as HTML."""
        return [shown["text/html"] for cell in self.cells for shown in cell.displayed if "text/html" in shown]


class Forks(AbstractContextManager["Forks"]):
    """The process that the others are forked off."""

    def __enter__(self) -> Forks:
        environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
        environment.pop("GRADKIT_LANGUAGE", None)
        pipe = subprocess.PIPE
        self._trunk = subprocess.Popen(
            [sys.executable, __file__], stdin=pipe, stdout=pipe, cwd=REPO, env=environment, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._trunk.stdin is not None
        self._trunk.stdin.close()
        self._trunk.wait(30)

    def run(self, notebook: Path) -> Run:
        """Run a notebook in its own folder, up to the first error."""
        with tempfile.TemporaryDirectory() as folder:
            asked, answer = {"notebook": str(notebook), "folder": folder}, Path(folder, "cells.json")
            print(json.dumps(asked), file=self._trunk.stdin, flush=True)
            assert self._trunk.stdout is not None
            assert self._trunk.stdout.readline() == "ran\n", "the process that runs notebooks has ended"
            cells = [Ran(**cell) for cell in json.loads(answer.read_text(encoding="utf-8"))]
            return Run(cells, Path(folder, "stderr").read_text(encoding="utf-8", errors="replace"))


def _grow() -> None:
    """Import what notebooks need most, then fork for each line of standard input."""
    import peft  # noqa: F401
    import torch._dynamo  # the first step of an optimizer imports it
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            try:
                _be_a_kernel(Path(asked["notebook"]), Path(asked["folder"]))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        print("ran", flush=True)


def _be_a_kernel(notebook: Path, folder: Path) -> None:
    with (folder / "stderr").open("wb") as errors:
        os.dup2(errors.fileno(), 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    os.chdir(notebook.parent)
    shell = _shell()
    done: list[dict[str, Any]] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        done.append(_ran(shell, "".join(cell["source"])) | {"may_raise": RAISES in cell["metadata"].get("tags", ())})
        if done[-1]["error"] and not done[-1]["may_raise"]:
            break
    (folder / "cells.json").write_text(json.dumps(done), encoding="utf-8")


def _shell() -> Any:
    """IPython as a kernel has it: the value of a cell goes where its displays go, instead of being printed."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.interactiveshell import InteractiveShell

    class Shown(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
            self.shell.display_pub.publish(format_dict, md_dict)

    return InteractiveShell.instance(colors="nocolor", displayhook_class=Shown)


def _ran(shell: Any, source: str) -> dict[str, Any]:
    from IPython.utils.capture import capture_output

    with capture_output() as seen:
        result = shell.run_cell(source, store_history=True)
    os.write(2, seen.stderr.encode())
    displayed = [{k: v for k, v in (one.data or {}).items() if isinstance(v, str)} for one in seen.outputs]
    error = "" if result.success else f"{result.error_before_exec or result.error_in_exec!r}\n{seen.stdout[-2000:]}"
    return {"source": source, "printed": seen.stdout, "displayed": displayed, "error": error}


if __name__ == "__main__":
    _grow()
