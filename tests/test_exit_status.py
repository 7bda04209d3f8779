"""How a command ends, as a shell sees it, whatever the person's program does to the process."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradkit import GradkitError
from gradkit.cli import COULD_NOT_RUN, FINDINGS, HEALTHY, main
from gradkit.load import specs
from gradkit.notebook import request
from gradkit.source import training_loops

REPO = Path(__file__).parents[1]
PROGRAM = """\
import os, sys, threading, time
import torch
n = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
x = torch.ones(4, 3)
{top}
def step():
    {inside}
    return n[1](n[0](x){cut}).sum()
"""
posix = pytest.mark.skipif(os.name != "posix", reason="forks, signals and /dev/full are POSIX's")


@pytest.fixture(autouse=True)
def _english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADKIT_LANGUAGE", "en")
    monkeypatch.setenv("PYTHONPATH", str(REPO))


def program(top: str = "", inside: str = "pass", cut: str = "") -> None:
    Path("train.py").write_text(PROGRAM.format(top=top, inside=inside, cut=cut))


def in_shell(words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", words.replace("gradkit ", f"{sys.executable} -m gradkit ")], capture_output=True, timeout=60
    )


# -- a program that ends the process --------------------------------------------------------------------------------

ENDINGS = {
    "os._exit": "os._exit(0)",
    "_exit of posix": "__import__(os.name)._exit(0)",
    "sys.exit": "sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "another program": "os.execv('/bin/true', ['true'])",
    "another program by its name": "os.execlp('true', 'true')",
}


@posix
@pytest.mark.parametrize("where", ["top", "inside"])
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_that_ends_the_process_is_not_taken_for_healthy(
    ending: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program(**{where: ending})
    assert main(["diagnose", "train.py:step"]) == COULD_NOT_RUN
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert len([line for line in captured.err.splitlines() if line.startswith("gradkit: ")]) == 1


@pytest.mark.parametrize("command", ["verify", "scan . --step"])
def test_no_command_takes_it_for_healthy(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program(inside="os._exit(0)")
    assert main([*command.split(), "train.py:step"]) == COULD_NOT_RUN


def test_what_ends_a_process_is_itself_again_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = os._exit, os.execv, os.execve
    program(top="os._exit(0)")
    main(["diagnose", "train.py:step"])
    assert (os._exit, os.execv, os.execve) == before


@posix
def test_a_thread_that_ends_the_process_ends_it_with_status_2() -> None:
    program(top="t = threading.Thread(target=os._exit, args=(0,)); t.start(); t.join()")
    done = in_shell("gradkit diagnose train.py:step")
    assert done.returncode == COULD_NOT_RUN
    assert b"os._exit(0)" in done.stderr


@posix
def test_what_a_program_leaves_to_run_at_exit_cannot_change_the_status() -> None:
    program(top="import atexit; atexit.register(lambda: os._exit(0))", cut=".detach()")
    assert in_shell("gradkit diagnose train.py:step").returncode == FINDINGS


@posix
@pytest.mark.parametrize("where", ["top", "inside"])
def test_a_program_that_forks_gets_one_report(where: str) -> None:
    program(**{where: "os.fork()"}, cut=".detach()")
    done = in_shell("gradkit diagnose train.py:step")
    assert done.returncode == FINDINGS
    assert done.stdout.count(b"error[detach]") == 1


@posix
def test_a_child_of_the_programs_own_ends_as_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    inside = ["pid = os.fork()", "if not pid: os._exit(7)", "assert os.waitstatus_to_exitcode(os.wait()[1]) == 7"]
    program(inside="\n    ".join(inside))
    assert main(["diagnose", "train.py:step"]) == HEALTHY


# -- streams --------------------------------------------------------------------------------------------------------

MEDDLING = {
    "closes sys.stdout": "sys.stdout.close()",
    "closes the real stdout": "sys.__stdout__.close()",
    "closes sys.stderr": "sys.stderr.close()",
    "closes the descriptor": "os.close(1)",
    "redirects the descriptor": "os.dup2(os.open('log.txt', os.O_WRONLY | os.O_CREAT), 1)",
    "replaces sys.stdout": "import io; sys.stdout = io.StringIO()",
    "sets it to None": "sys.stdout = sys.stderr = None",
    "replaces print": "import builtins; builtins.print = None",
    "breaks json": "import json; json.dumps = None",
    "hides gradkit": "sys.modules['gradkit'] = None",
    "prints by its descriptor": "os.write(1, b'noise')",
}


@posix
@pytest.mark.parametrize("meddling", MEDDLING.values(), ids=MEDDLING)
def test_the_report_is_there_whatever_a_program_does_to_the_streams(meddling: str) -> None:
    program(top=meddling, cut=".detach()")
    done = in_shell("gradkit diagnose train.py:step --json")
    assert done.returncode == FINDINGS, done.stderr
    assert done.stdout.startswith(b"{\n")
    assert done.stdout.endswith(b"}\n")


@posix
@pytest.mark.parametrize("command", ["diagnose train.py:step", "verify train.py:step", "scan .", "guides", "--help"])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_an_output_that_takes_nothing_is_told_and_no_fault_of_ours(command: str, output: str) -> None:
    program(cut=".detach()")
    done = in_shell(f"gradkit {command} {output}")
    assert done.returncode == COULD_NOT_RUN
    assert b"Traceback" not in done.stderr
    assert b"fault" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@posix
def test_a_reader_that_has_seen_enough_ends_the_command_in_silence() -> None:
    done = in_shell("gradkit claims | head -1; exit ${PIPESTATUS[0]}")
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


@posix
@pytest.mark.parametrize("output", ["2>/dev/full", "2>&-"])
def test_an_error_that_cannot_be_told_is_still_status_2(output: str) -> None:
    done = in_shell(f"gradkit diagnose no.py:step {output}")
    assert (done.returncode, done.stdout) == (COULD_NOT_RUN, b"")


# -- signals --------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("where", ["top", "inside"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command_as_shells_expect(
    number: int, status: int, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program(**{where: f"os.kill(os.getpid(), {int(number)}); time.sleep(5)"})
    before = signal.getsignal(signal.SIGTERM)
    assert main(["diagnose", "train.py:step"]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert signal.Signals(number).name in captured.err
    assert signal.getsignal(signal.SIGTERM) == before


@posix
def test_a_signal_from_outside_ends_a_process_that_sleeps() -> None:
    program(inside="print('here', flush=True); time.sleep(60)")
    words = [sys.executable, "-m", "gradkit", "verify", "train.py:step"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == b"here\n"
        time.sleep(0.2)
        running.terminate()
        assert running.wait(20) == 143


# -- words that cannot be right -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", f"{'a' * 5000}.py:step"],
        ["diagnose", "train.py:step", "--save", f"{'a' * 5000}.html"],
        ["diagnose", "--model", "a" * 5000],
        ["scan", "a" * 5000],
        ["notebooks", f"x/{'a' * 5000}"],
        ["lab", "--no-browser", "--dir", "a" * 5000],
        ["lab", "--no-browser", "--dir", "train.py"],
    ],
)
def test_a_name_that_is_too_long_or_no_folder_is_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    program()
    assert main(words) == COULD_NOT_RUN
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert len(said) < 1500
    assert "fault" not in said


@pytest.mark.parametrize("port", ["99999999", "-1", "65536", "x", "1e3", "٣"])
def test_a_port_that_is_none_is_named(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lab", "--no-browser", f"--port={port}"])
    assert ended.value.code == COULD_NOT_RUN
    assert "65535" in capsys.readouterr().err


# -- a whole training -----------------------------------------------------------------------------------------------

LOOP = """\
def main():
    optimizer = torch.optim.SGD(n.parameters(), lr=0.1)
    for epoch in range(3):
        open("ran.txt", "a").close()
        n(x).sum().backward()
        optimizer.step()


def accumulated():
    for part in x:
        loss = n(part).sum()
        loss.backward()
    return loss
"""


@pytest.mark.parametrize("command", ["verify", "scan . --step"])
def test_a_whole_training_is_not_run_as_a_step(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program(top=LOOP)
    assert main([*command.split(), "train.py:main"]) == COULD_NOT_RUN
    assert not Path("ran.txt").exists()
    said = capsys.readouterr().err
    assert "train.py:main" in said
    assert "holds: step." in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("what", ["model", "batch", "loss"])
def test_a_whole_training_is_no_builder_either(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    program(top=LOOP)
    words = {"model": "train.py:n", "batch": "train.py:x"} | {what: "train.py:main"}
    assert main(["diagnose", *(word for name, value in words.items() for word in (f"--{name}", value))]) == 2
    assert not Path("ran.txt").exists()


def test_a_whole_training_is_run_when_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    program(top=LOOP)
    main(["diagnose", "train.py:main", "--run-it-all"])
    assert Path("ran.txt").exists()


def test_a_step_that_sums_up_gradients_is_run_when_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    program(top=LOOP)
    assert main(["diagnose", "train.py:accumulated"]) == HEALTHY


@pytest.mark.parametrize("words", [["diagnose", "train.py"], ["diagnose", "train.py:no_such_name"]])
def test_no_error_proposes_a_whole_training(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    program(top=LOOP)
    assert main(words) == COULD_NOT_RUN
    said = capsys.readouterr().err
    assert "step" in said
    assert "main" not in said


WHOLE = {
    "a loop": "def main():\n  for i in range(9):\n    loss().backward(); opt.step()",
    "a helper": "def one(b):\n  f(b).backward(); opt.step()\ndef main():\n  for b in data: one(b)",
    "epochs": "def main():\n  for epoch in range(first, epochs):\n    train_one_epoch(model)",
    "transformers": "def main():\n  trainer = Trainer(model=m)\n  trainer.train()",
    "trl": "def main():\n  t = SFTTrainer(m)\n  t.train()",
    "at once": "def main():\n  Trainer(model=m).train()",
    "lightning": "def main():\n  pl.Trainer(max_epochs=9).fit(m, data)",
    "a class": "class T:\n  def fit(self):\n    while 1:\n      f().backward(); o.step()\ndef main():\n  T().fit()",
    "accelerate": "def main():\n  for batch in dl:\n    accelerator.backward(loss)\n    optimizer.step()",
    "a closure": "def main():\n  def c():\n    l = f(); l.backward(); return l\n  for i in range(9): opt.step(c)",
}
A_STEP = {
    "a loss": "def step():\n  return net(x).sum()",
    "a closure": "def step():\n  def c():\n    l = f(); l.backward(); return l\n  opt.step(c)\n  return l",
    "tasks": "def step():\n  return sum(net(x).sum() for x in xs)",
    "a builder": "def step():\n  def run():\n    for i in r: l.backward(); opt.step()\n  return net, run",
    "noise": "def step():\n  for t in ts:\n    x = scheduler.step(e, t, x).prev_sample\n  return x.sum()",
    "a game": "def step():\n  for t in range(9):\n    seen, reward = env.step(a)\n  return loss",
    "a mode": "def step():\n  trainer_model.train()\n  return trainer_model(x).sum()",
}
ONLY_NAMED = {
    "micro-batches": "def step():\n  for b in micro:\n    f(b).backward()\n  opt.step()\n  return l",
    "inner steps": "def step():\n  for t in tasks:\n    l = f(t); l.backward(); inner.step()\n  return l",
    "two epochs": "def train_step():\n  for epoch in range(2):\n    f().backward(); opt.step()\n  return l",
}


@pytest.mark.parametrize("source", WHOLE.values(), ids=WHOLE)
def test_a_whole_training_is_told_and_not_proposed(source: str) -> None:
    tree = ast.parse(source)
    assert training_loops.training(tree, "main")
    assert "main" not in training_loops.proposed(tree)


@pytest.mark.parametrize("source", A_STEP.values(), ids=A_STEP)
def test_a_step_is_proposed(source: str) -> None:
    tree = ast.parse(source)
    assert not training_loops.training(tree, "step")
    assert training_loops.proposed(tree) == ["step"]


@pytest.mark.parametrize("source", ONLY_NAMED.values(), ids=ONLY_NAMED)
def test_a_step_with_a_loop_of_its_own_is_run_if_named_and_not_proposed(source: str) -> None:
    tree = ast.parse(source)
    name = next(one.name for one in tree.body if isinstance(one, ast.FunctionDef))
    assert not training_loops.training(tree, name)
    assert training_loops.proposed(tree) == []


def test_the_panel_proposes_no_whole_training(tmp_path: Path) -> None:
    program(top=LOOP)
    assert request.suggested_specs(tmp_path) == ("train.py:step",)


def test_the_panel_runs_no_whole_training() -> None:
    program(top=LOOP)
    with pytest.raises(GradkitError) as caught:
        request.fulfil(request.Request(request.FILE, named={"step": "train.py:main"}))
    assert caught.value.key == "panel_program_runs"
    assert not Path("ran.txt").exists()


def test_the_panel_picks_no_whole_training_of_a_notebook() -> None:
    program(top=LOOP)
    made = specs.load_file(Path("train.py"))
    assert request.notebook_steps({"main": made.main, "step": made.step}) == ["step"]
