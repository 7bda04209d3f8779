"""What Python runs before a program of ``gradkit run``: the program's end is the one it has without gradkit.

The programs here import a small package that goes by the name of torch, so that each of them ends within milliseconds;
``gradkit.live.program`` is one that writes down what it is handed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradkit.live import launch

TORCH = """\
import os, threading
print("torch is imported")
if os.environ.get("TORCH_BREAKS"):
    raise RuntimeError("no such device")
"""
HEARD = """\
import os

def note(word):
    with open(os.environ["HEARD"], "a") as file:
        file.write(word + "\\n")

class Program:
    def __init__(self, told):
        note("open")

    def failed(self, error):
        note(f"failed {type(error).__name__}")

    def ended(self, error):
        note(f"ended {type(error).__name__}")
"""
posix = pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX's")


@dataclass(frozen=True)
class End:
    """How a process ended, and what the program module heard of it."""

    status: int
    out: str
    err: str
    heard: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"torch/__init__.py": TORCH, "gradkit/live/program.py": HEARD}
    for name, text in {**files, "gradkit/__init__.py": "", "gradkit/live/__init__.py": ""}.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)


def write(text: str, name: str = "train.py") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def end(*program: str, watched: bool, given: str | None = None, told: launch.Wishes | None = None) -> End:
    """How this program ends, started by Python alone or by ``gradkit run``."""
    heard = Path("..", "heard")
    heard.unlink(missing_ok=True)
    around = {**os.environ, "HEARD": str(heard.resolve())}
    if watched:
        around = launch.environment(told or launch.Wishes(), program, around)
    done = subprocess.run(launch.command(program), env=around, capture_output=True, text=True, input=given, timeout=60)
    words = heard.read_text().splitlines() if heard.exists() else ()
    return End(done.returncode, done.stdout, re.sub(r"0x\w+|refcount : \d", "", done.stderr), tuple(words))


def same_end(*program: str, given: str | None = None) -> End:
    """The end of a program under ``gradkit run``, which is in all that a shell sees the one it has without."""
    plain, watched = end(*program, watched=False, given=given), end(*program, watched=True, given=given)
    assert (watched.status, watched.out, watched.err) == (plain.status, plain.out, plain.err)
    return watched


ENDINGS = {
    "it comes to its end": ("", 0),
    "sys.exit with a number": ("sys.exit(3)", 3),
    "SystemExit with words": ("raise SystemExit('no data')", 1),
    "an error": ("def go():\n    1 / 0\ngo()", 1),
    "an error raised from another": ("try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError(3) from e", 1),
    "an error while another was handled": ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}[3]", 1),
    "an error with a note": ("try:\n    1 / 0\nexcept Exception as e:\n    e.__notes__ = ['look here']\n    raise", 1),
    "too deep a recursion": ("def deep(): deep()\ndeep()", 1),
    "no memory": ("raise MemoryError", 1),
    "an error in atexit": ("import atexit\natexit.register(lambda: 1 / 0)", 0),
    "an error in a thread": ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()", 0),
    "a hook of its own": ("sys.excepthook = lambda *e: print('mine', e[1])\n1 / 0", 1),
    "os._exit": ("sys.stdout.flush()\nos._exit(7)", 7),
    "a closed stderr": ("sys.stderr.close()\n1 / 0", 1),
    "another program": ("sys.stdout.flush()\nos.execv('/bin/sh', ['sh', '-c', 'exit 5'])", 5),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_does_without_gradkit(ending: str) -> None:
    text, status = ENDINGS[ending]
    write(f"import os, sys\nimport torch\nprint('on')\n{text}\n")
    assert same_end("train.py").status == status


def test_a_program_may_delete_the_folder_that_it_runs_in() -> None:
    write("import os, shutil, torch\nos.mkdir('run')\nos.chdir('run')\nshutil.rmtree(os.getcwd())\n1 / 0\n")
    assert same_end("train.py").heard == ("open", "failed ZeroDivisionError", "ended ZeroDivisionError")


@pytest.mark.parametrize("program", [["missing.py"], ["wrong.py"], ["-m", "no.such.module"], ["-c", "1 +"], ["folder"]])
def test_what_cannot_run_fails_as_it_does_without_gradkit(program: list[str]) -> None:
    write("def (:")
    Path("train.py").rename("wrong.py")
    Path("folder").mkdir()
    assert same_end(*program).heard == ()


def test_a_torch_that_cannot_be_imported_has_its_own_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_BREAKS", "1")
    write("import torch\n")
    assert "no such device" in same_end("train.py").err


def test_a_torch_whose_import_failed_once_is_watched_when_it_works() -> None:
    write("""
        import os
        os.environ["TORCH_BREAKS"] = "1"
        try:
            import torch
        except RuntimeError:
            del os.environ["TORCH_BREAKS"]
        import torch
    """)
    assert same_end("train.py").heard == ("open", "ended NoneType")


# -- the program is Python's own --------------------------------------------------------------------------------------

SHOWS = """
import os, sys
import torch
print(__name__, sys.argv, sys.path, sys.flags, sys.stdin.read())
print(globals().get("__file__"), __package__, __spec__ and __spec__.name, sys.orig_argv[1:])
print(sorted(name for name in sys.modules if "custom" in name))
"""


@pytest.mark.parametrize(
    "program", [["train.py", "--lr", "3"], ["-m", "pack.train", "--", "-x"], ["-c", SHOWS, "-m"], ["pack"], ["-"]]
)
def test_a_program_finds_what_it_finds_without_gradkit(program: list[str]) -> None:
    for name in ("train.py", "pack/train.py", "pack/__main__.py"):
        write(SHOWS, name)
    write("", "pack/__init__.py")
    same_end(*program, given=SHOWS if program == ["-"] else "from a pipe")


def test_relative_imports_and_the_main_guard_hold() -> None:
    write("", "pack/__init__.py")
    write("value = 5", "pack/sizes.py")
    write("from .sizes import value\nimport torch\nif __name__ == '__main__':\n    print(value)", "pack/train.py")
    assert same_end("-m", "pack.train").out == "torch is imported\n5\n"


def test_a_sitecustomize_of_the_users_runs_first() -> None:
    write("import sys\nprint('site')\nsys.excepthook = lambda *error: print('mine')", "../lib/sitecustomize.py")
    write("import torch, sitecustomize\nprint(sitecustomize.__file__)\n1 / 0")
    done = same_end("train.py")
    assert done.out.startswith("site\n")
    assert done.out.endswith("mine\n")
    assert done.heard == ("open", "failed ZeroDivisionError", "ended ZeroDivisionError")


def test_a_sitecustomize_that_raises_is_told_by_python() -> None:
    write("1 / 0", "../lib/sitecustomize.py")
    write("import torch")
    done = same_end("train.py")
    assert "Error in sitecustomize" in done.err
    assert done.heard == ("open", "ended NoneType")


@posix
@pytest.mark.parametrize(("name", "status"), [("SIGINT", -2), ("SIGTERM", -15), ("SIGKILL", -9)])
def test_a_signal_ends_the_program_as_ever(name: str, status: int) -> None:
    write(f"import os, signal, torch\nprint('on', flush=True)\nos.kill(os.getpid(), signal.{name})\n")
    assert same_end("train.py").status == status == -getattr(signal, name)


# -- who is heard -----------------------------------------------------------------------------------------------------


def test_nothing_is_opened_where_torch_is_never_imported() -> None:
    write("1 / 0")
    assert same_end("train.py").heard == ()


def test_looking_for_torch_is_no_import_of_it() -> None:
    write("import importlib.util\nprint(importlib.util.find_spec('torch').name)")
    assert same_end("train.py").heard == ()


def test_torch_is_heard_after_somebody_looked_for_it() -> None:
    write("import importlib.util\nimportlib.util.find_spec('torch')\nimport torch\nprint(torch.__spec__.loader)")
    assert end("train.py", watched=True).heard == ("open", "ended NoneType")


def test_torch_is_heard_beside_a_finder_that_asks_all_others_for_it_as_well() -> None:
    finder = """\
        import sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "torch":
                    others = [one for one in sys.meta_path if one is not self]
                    return next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        sys.meta_path.insert(0, Finder())
    """
    write(finder, "../lib/sitecustomize.py")
    write("import torch")
    assert same_end("train.py").heard == ("open", "ended NoneType")


def test_an_error_in_a_thread_is_heard() -> None:
    write("import threading, torch\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()")
    assert end("train.py", watched=True).heard == ("open", "failed ZeroDivisionError", "ended NoneType")


def test_an_error_that_goes_to_another_hook_is_heard_at_the_end() -> None:
    write("import sys, torch\nsys.excepthook = lambda *error: None\n1 / 0")
    assert end("train.py", watched=True).heard == ("open", "ended ZeroDivisionError")


def test_a_keyboard_interrupt_is_no_failure() -> None:
    write("import torch\nraise KeyboardInterrupt")
    assert end("train.py", watched=True).heard == ("open", "ended KeyboardInterrupt")


def test_a_program_that_leaves_at_once_is_not_held() -> None:
    write("import os, torch\nos._exit(0)")
    assert end("train.py", watched=True).heard == ("open",)


@pytest.mark.parametrize("way", ["spawn", pytest.param("fork", marks=posix), pytest.param("forkserver", marks=posix)])
def test_processes_of_multiprocessing_are_left_alone(way: str) -> None:
    write(f'''
        import multiprocessing, torch
        def work():
            print("working", flush=True)
            raise ValueError
        if __name__ == "__main__":
            print("main", flush=True)
            process = multiprocessing.get_context("{way}").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
    ''')
    assert same_end("train.py").heard == ("open", "ended NoneType")


@posix
def test_a_copy_that_the_program_makes_of_itself_is_not_heard() -> None:
    write("import os, torch\nif os.fork():\n    os.wait()\nelse:\n    raise ValueError")
    assert same_end("train.py").heard == ("open", "ended NoneType")


CHILD = "import subprocess, sys\nsubprocess.run([sys.executable, *sys.argv[1:], '-c', 'import torch'])"


def test_a_python_that_the_program_starts_is_left_alone() -> None:
    write(CHILD)
    assert same_end("train.py").heard == ()


def test_every_python_that_a_command_starts_is_heard() -> None:
    write(CHILD)
    assert same_end("--", sys.executable, "train.py").heard == ("open", "ended NoneType")


def test_ranks_that_a_launcher_starts_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    write(CHILD)
    assert same_end("train.py").heard == ("open", "ended NoneType")


def test_a_python_that_leaves_the_path_aside_runs_without_gradkit() -> None:
    write(CHILD)
    assert "No module named 'torch'" not in same_end("--", sys.executable, "train.py", "-I").out


def test_a_python_without_gradkit_says_so_once_and_runs_on() -> None:
    Path("../lib/gradkit/live/program.py").write_text("import no_such_library")
    write("import torch\nprint('on')\n1 / 0")
    plain, watched = (end("train.py", watched=one) for one in (False, True))
    line, rest = watched.err.split("\n", 1)
    assert line.startswith("gradkit: ")
    assert "no_such_library" in line
    assert (watched.status, watched.out, rest) == (plain.status, plain.out, plain.err)
