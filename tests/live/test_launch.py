"""``gradkit run`` as a shell meets it, up to the moment when the program is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradkit.cli import COULD_NOT_RUN, main
from gradkit.live import launch

REPO = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.setenv("GRADKIT_LANGUAGE", "en")


def shell(*words: str) -> subprocess.CompletedProcess[str]:
    made = [sys.executable, "-m", "gradkit", "run", *words]
    return subprocess.run(made, capture_output=True, text=True, timeout=60)


def test_a_program_without_torch_runs_without_a_word_of_gradkits() -> None:
    Path("train.py").write_text("import sys\nprint(sys.argv, __name__)\nsys.exit(4)")
    words = ["train.py", "--json", "--language", "tlh", "--", "-c"]
    done = shell(*words)
    assert (done.returncode, done.stdout, done.stderr) == (4, f"{words} __main__\n", "")


def test_json_of_a_program_that_shows_nothing_says_that_nothing_was_seen() -> None:
    Path("train.py").write_text("import os\nos.chdir('/')\nos._exit(0)")
    assert shell("--json", "out.json", "train.py").returncode == 0
    assert json.loads(Path("out.json").read_text()) == {"healthy": None, "findings": [], "steps": 0}


@pytest.mark.skipif(os.name != "posix", reason="SIGPIPE is POSIX's")
def test_a_command_is_not_deaf_to_the_signals_that_python_ignores() -> None:
    done = shell("--", "bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout == "y\n141\n"


def test_the_program_is_this_very_process_where_the_system_can_do_so() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gradkit", "run", "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE
    ) as process:
        out, _ = process.communicate(timeout=60)
    assert (int(out) == process.pid) is (os.name == "posix")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "Name what is to run"),
        (["--stop"], "Name what is to run"),
        (["--"], "Name what is to run"),
        (["--jsn", "out.json", "train.py"], "--jsn"),
        (["--json", "no/such/out.json", "train.py"], "no/such/out.json"),
        (["--report", "out.gif", "train.py"], "out.gif"),
        (["--report", "no/such/out.html", "train.py"], "no/such/out.html"),
        (["--language", "tlh", "train.py"], "tlh"),
        (["--", "no-such-command"], "no-such-command"),
    ],
)
def test_what_cannot_run_is_said_in_one_sentence(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["run", *words])
    except SystemExit as stop:
        status = stop.code
    assert status == COULD_NOT_RUN
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("language", "says"),
    [("en", "No such file: trian.py."), ("en", "Did you mean train.py?"), ("zh", "train.py")],
)
def test_a_script_that_is_not_there_is_named_with_the_one_that_is_meant(
    language: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("raise SystemExit(7)")
    assert main(["run", "--language", language, "trian.py", "--epochs", "3"]) == COULD_NOT_RUN
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert says in said.err
    assert "Traceback" not in said.err


def test_a_python_that_leaves_the_path_aside_is_told_of() -> None:
    done = shell("--", sys.executable, "-I", "-c", "print('on')")
    assert done.stdout == "on\n"
    assert done.stderr.startswith("gradkit: ")
    assert "PYTHONPATH" in done.stderr


def test_options_of_python_itself_are_the_programs_too() -> None:
    Path("train.py").write_text("import sys\nprint(sys.flags.optimize, sys.warnoptions, sys._xoptions)")
    given = ["-O", "-W", "ignore", "-X", "faulthandler", "-m", "gradkit", "run", "train.py", "-B"]
    done = subprocess.run([sys.executable, *given], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1 ['ignore'] {'faulthandler': True}\n", "")


OPTIONS = {
    "-m gradkit run train.py": [],
    "-OO -m gradkit run -O": ["-OO"],
    "-Om gradkit run train.py": ["-O"],
    "-W error -Xdev -m gradkit run": ["-Werror", "-Xdev"],
    "-BWerror::UserWarning -u /bin/gradkit run train.py": ["-B", "-Werror::UserWarning", "-u"],
    "--check-hash-based-pycs always -m gradkit": ["--check-hash-based-pycs", "always"],
    "-I -m gradkit run train.py": [],
    "-EOsS -x -m gradkit run train.py": ["-Os"],
}


@pytest.mark.parametrize("words", OPTIONS)
def test_only_options_that_stand_before_gradkit_are_handed_on_and_none_that_shuts_it_out(words: str) -> None:
    assert launch.python_options(["python", *words.split()]) == OPTIONS[words]


def test_a_command_gets_no_options_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-O", "-m", "gradkit"])
    assert launch.command(["--", "torchrun"]) == ["torchrun"]
    assert launch.command(["train.py"]) == [sys.executable, "-O", "train.py"]


DIVIDED = {
    "train.py --stop": ([], ["train.py", "--stop"]),
    "--stop train.py": (["--stop"], ["train.py"]),
    "--json=a --report b.html -m pack": (["--json=a", "--report", "b.html"], ["-m", "pack"]),
    "--quiet -c 1 --quiet": (["--quiet"], ["-c", "1", "--quiet"]),
    "--should-train a.* b -- torchrun t.py": (["--should-train", "a.*", "b"], ["--", "torchrun", "t.py"]),
    "--should-train a.* --stop -": (["--should-train", "a.*", "--stop"], ["-"]),
    "--should-train a.*": (["--should-train", "a.*"], []),
    "-mpack -x": ([], ["-mpack", "-x"]),
}


@pytest.mark.parametrize("words", DIVIDED)
def test_the_words_of_gradkit_end_where_the_program_begins(words: str) -> None:
    assert launch.divided(words.split()) == DIVIDED[words]
