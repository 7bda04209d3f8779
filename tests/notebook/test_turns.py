"""A cell and the panel's job share one process: only one of them runs, and whatever ends a job leaves all in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel
from torch import nn

from gradkit.notebook import job as notebook_job
from gradkit.notebook import turns
from gradkit.notebook.job import Cancelled, Job
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import shown
from gradkit.notebook.quiz import Quiz
from gradkit.source import frames
from tests.notebook.test_panel import read


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """An IPython in this process, as ``get_ipython`` finds it."""
    running = InteractiveShell()
    running.history_manager.enabled = False
    monkeypatch.setattr(frames, "notebook_shell", lambda: running)
    monkeypatch.setattr(turns, "_NOT_WORTH_A_WORD", 0)
    yield running
    running.restore_sys_module_state()


@pytest.fixture(autouse=True)
def _no_job_stays() -> Iterator[None]:
    """A test that fails half-way leaves nothing that the next would wait for."""
    yield
    for job in tuple(turns._jobs):
        job.cancel()
        job.thread.join(5)


class Gate:
    """A step that has begun, and goes on when it is let."""

    def __init__(self) -> None:
        self.model = nn.Linear(2, 1)
        self.began, self.go = threading.Event(), threading.Event()
        self.raises: BaseException | None = None

    def __call__(self) -> torch.Tensor:
        self.began.set()
        while not self.go.is_set():
            time.sleep(0.001)
        if self.raises is not None:
            raise self.raises
        return self.model(torch.rand(3, 2)).sum()

    def panel(self) -> Panel:
        return Panel(step=lambda: self(), model=self.model, language="en")  # a function is asked for

    def running(self) -> tuple[Panel, Job]:
        """A panel whose click has been heard, and its job, with the step at work."""
        panel = self.panel()
        panel.diagnose.click()
        job = panel.job
        assert job is not None
        assert self.began.wait(8)
        return panel, job


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 8
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.005)
    return False


def when(holds: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something from another thread as soon as something holds."""
    thread = threading.Thread(target=lambda: eventually(holds) and act(), daemon=True)
    thread.start()
    return thread


# -- cells wait -----------------------------------------------------------------------------------------------------


def test_a_cell_waits_until_the_job_has_ended(shell: InteractiveShell) -> None:
    gate = Gate()
    _, job = gate.running()
    shell.user_ns["ended"] = lambda: not job.thread.is_alive() or job not in turns._jobs
    when(lambda: job.held, gate.go.set)
    assert shell.run_cell("seen = ended()").success
    assert shell.user_ns["seen"]


def test_random_numbers_of_a_cell_are_those_that_it_had_without_the_panel(shell: InteractiveShell) -> None:
    gate = Gate()
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    _, job = gate.running()
    shell.user_ns["torch"] = torch
    when(lambda: job.held, gate.go.set)
    shell.run_cell("drawn = torch.rand(4)")
    assert torch.equal(shell.user_ns["drawn"], wanted)


@pytest.mark.parametrize(("language", "says"), [("en", "This cell waits"), ("zh", "此单元格正在等")])
def test_a_cell_that_waits_says_so_in_the_panels_language(
    shell: InteractiveShell, language: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = Gate()
    panel, job = gate.running()
    panel.speak(language)
    when(lambda: job.held, lambda: time.sleep(0.2) or gate.go.set())
    shell.run_cell("1")
    assert says in capsys.readouterr().out


def test_the_panel_shows_that_a_cell_waits(shell: InteractiveShell) -> None:
    gate = Gate()
    panel, _job = gate.running()
    texts: list[str] = []
    when(lambda: "a cell waits until this has ended" in read(panel), lambda: (texts.append(""), gate.go.set()))
    shell.run_cell("1")
    assert texts


def test_what_others_do_before_a_cell_waits_too(shell: InteractiveShell) -> None:
    """``%autoreload`` changes the classes that the job works with."""
    seen: list[bool] = []
    shell.events.register("pre_run_cell", lambda _info: seen.append(bool(turns._jobs)))
    gate = Gate()
    _, job = gate.running()
    when(lambda: job.held, gate.go.set)
    shell.run_cell("1")
    assert seen == [False]


def test_an_interrupted_wait_turns_down_that_cell_alone_even_if_it_is_no_python(shell: InteractiveShell) -> None:
    gate = Gate()
    _, job = gate.running()
    when(lambda: job.held, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert isinstance(shell.run_cell("1 +").error_before_exec, SyntaxError)
    assert isinstance(job.error, Cancelled)
    assert shell.run_cell("1").success
    assert shell.ast_transformers == []


def test_ipython_is_as_before_when_the_job_has_ended(shell: InteractiveShell) -> None:
    mine = type("Mine", (), {"visit": lambda self, tree: tree})()
    shell.ast_transformers.append(mine)
    callbacks = {name: list(known) for name, known in shell.events.callbacks.items()}
    gate = Gate()
    _, job = gate.running()
    assert shell.events.callbacks != callbacks
    gate.go.set()
    job.wait(8)
    assert shell.ast_transformers == [mine]
    assert shell.events.callbacks == callbacks


def test_an_interrupted_wait_stops_the_diagnosis_and_runs_nothing_of_the_cell(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = Gate()
    panel, job = gate.running()
    when(lambda: job.held, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = shell.run_cell("ran = True")
    assert isinstance(result.error_before_exec, turns.CellNotRun)
    assert "ran" not in shell.user_ns
    assert not turns._jobs
    assert isinstance(job.error, Cancelled)
    assert "Cancelled" in read(panel)
    out = capsys.readouterr().out
    assert "this cell was not run" in out
    assert "Traceback" not in out
    assert shell.run_cell("ran = True").success
    assert shell.user_ns["ran"]


def test_an_interrupt_waits_until_all_is_put_back(shell: InteractiveShell) -> None:
    gate = Gate()
    before = gate.model.weight.detach().clone()

    def step() -> torch.Tensor:
        with torch.no_grad():
            gate.model.weight.add_(1)
        return gate()

    panel = Panel(step=step, model=gate.model)
    panel.diagnose.click()
    job = panel.job
    assert job is not None
    assert gate.began.wait(8)
    when(lambda: job.held, lambda: os.kill(os.getpid(), signal.SIGINT))
    shell.run_cell("1")
    assert torch.equal(gate.model.weight, before)


def test_the_handler_of_interrupts_is_the_one_from_before(shell: InteractiveShell) -> None:
    before = signal.getsignal(signal.SIGINT)
    gate = Gate()
    _, job = gate.running()
    when(lambda: job.held, gate.go.set)
    shell.run_cell("1")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_cell_with_await_waits_too(shell: InteractiveShell) -> None:
    gate = Gate()
    _, job = gate.running()
    shell.user_ns.update(asyncio=asyncio, job=job)
    when(lambda: job.held, gate.go.set)
    assert shell.run_cell("await asyncio.sleep(0); seen = job.stage").success
    assert shell.user_ns["seen"] != "trace"


def test_a_step_that_runs_a_cell_itself_does_not_wait_for_itself(shell: InteractiveShell) -> None:
    model = nn.Linear(2, 1)
    shell.user_ns.update(model=model, torch=torch)

    def step() -> torch.Tensor:
        shell.run_cell("loss = model(torch.ones(1, 2)).sum()")
        return shell.user_ns["loss"]

    panel = Panel(step=step, model=model)
    panel.start()
    assert panel.report is not None


# -- the job waits --------------------------------------------------------------------------------------------------


def test_a_job_begins_only_when_the_cell_that_runs_has_ended(shell: InteractiveShell) -> None:
    gate = Gate()
    panel = gate.panel()
    seen: list[object] = []

    def click() -> None:
        panel.diagnose.click()
        seen.append(panel.job)

    def cell() -> None:
        when(lambda: True, click)  # as a kernel does that hears clicks in a thread of its own
        assert eventually(lambda: "a cell is running: the diagnosis begins" in read(panel))
        assert not gate.began.is_set()

    shell.user_ns["cell"] = cell
    assert shell.run_cell("cell()").success
    gate.go.set()
    seen[0].wait(8)
    assert panel.report is not None


def test_a_job_that_waits_for_a_cell_can_be_cancelled(shell: InteractiveShell) -> None:
    gate = Gate()
    panel = gate.panel()

    def cell() -> None:
        clicked = when(lambda: True, panel.diagnose.click)
        clicked.join(8)
        job = panel.job
        panel.cancel.click()
        job.wait(8)
        assert isinstance(job.error, Cancelled)

    shell.user_ns["cell"] = cell
    assert shell.run_cell("cell()").success
    assert not gate.began.is_set()


def test_a_cell_that_starts_the_panel_and_waits_for_it_gets_its_report(shell: InteractiveShell) -> None:
    gate = Gate()
    gate.go.set()
    shell.user_ns["panel"] = panel = gate.panel()
    assert shell.run_cell("panel.diagnose.click(); panel.job.wait(8)").success
    assert panel.report is not None


# -- without a notebook ---------------------------------------------------------------------------------------------


def test_started_by_code_the_panel_is_done_when_the_call_returns() -> None:
    gate = Gate()
    gate.go.set()
    panel = gate.panel()
    panel.start()
    assert (panel.job, panel.report.healthy) == (None, True)


def test_an_interrupt_of_a_panel_started_by_code_cancels_it_and_is_raised() -> None:
    gate = Gate()
    panel = gate.panel()
    when(gate.began.is_set, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        panel.start()
    assert panel.job is None
    assert "Cancelled" in read(panel)


def test_a_panel_started_from_within_its_own_step_does_not_hang() -> None:
    model = nn.Linear(2, 1)
    inner = Panel(step=lambda: model(torch.ones(1, 2)).sum(), model=model)

    def step() -> torch.Tensor:
        inner.start()
        return model(torch.ones(1, 2)).sum()

    outer = Panel(step=step, model=model)
    outer.start()
    assert (outer.job, inner.job) == (None, None)


# -- several panels -------------------------------------------------------------------------------------------------


def test_a_second_panel_waits_for_the_first_and_says_so() -> None:
    one, two = Gate(), Gate()
    two.go.set()
    _, first = one.running()
    panel = two.panel()
    panel.diagnose.click()
    second = panel.job
    assert eventually(lambda: "another diagnosis is running" in read(panel))
    panel.speak("zh")
    assert "另一个诊断正在运行" in read(panel)
    assert not two.began.is_set()
    one.go.set()
    first.wait(8)
    second.wait(8)
    assert panel.report.healthy


def test_a_second_panel_can_be_cancelled_while_it_waits() -> None:
    one, two = Gate(), Gate()
    _, first = one.running()
    panel = two.panel()
    panel.diagnose.click()
    second = panel.job
    panel.cancel.click()
    second.wait(8)
    assert "Cancelled" in read(panel)
    assert not two.began.is_set()
    one.go.set()
    assert first.wait(8).error is None


# -- what may go wrong ----------------------------------------------------------------------------------------------


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), GeneratorExit(), SystemExit(3), asyncio.CancelledError(), Own("own"), StopIteration()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_step_raises_is_told_and_the_panel_can_be_used_again(
    error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    gate = Gate()
    gate.raises = error
    gate.go.set()
    panel = gate.panel()
    panel.start()
    assert (panel.job, shown(panel.diagnose), shown(panel.cancel)) == (None, True, False)
    assert type(error).__name__ in panel.problem.value
    assert "did not foresee" not in panel.problem.value
    panel.speak("zh")
    assert "没有可以诊断的损失" in panel.problem.value or "前向传播抛出了异常" in panel.problem.value
    assert capfd.readouterr().err == ""
    gate.raises = None
    panel.start()
    assert panel.report.healthy


def test_a_file_that_ends_the_program_when_it_is_imported_is_told(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "ends.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    panel = Panel()
    panel.form.kind.value = "file"
    panel.form.source.mode.value = "step"
    panel.form.source.step.control.value = "ends.py:step"
    panel.start()
    assert panel.job is None
    assert "KeyboardInterrupt" in panel.form.problems["source"].value


def test_a_done_that_raises_ends_the_job_and_lets_the_next_begin(capfd: pytest.CaptureFixture[str]) -> None:
    def done(_job: Job) -> None:
        raise Own

    job = Job(lambda job: 42, done).start().wait(8)
    assert (job.result, type(job.error)) == (42, Own)
    assert not turns._jobs
    assert capfd.readouterr().err == ""


def test_a_heard_that_raises_does_not_end_the_work() -> None:
    def heard(_job: Job) -> None:
        raise ZeroDivisionError

    job = Job(lambda job: job.tell("trace"), lambda job: None, heard).start().wait(8)
    assert job.error is None


def test_what_cannot_be_shown_is_told_and_the_panel_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    gate.go.set()
    panel = gate.panel()
    with monkeypatch.context() as patch:
        patch.setattr(panel.results, "show", lambda *_, **__: 1 / 0)
        panel.start()
    assert "ZeroDivisionError" in panel.problem.value
    assert panel.job is None
    panel.start()
    assert panel.report.healthy


def test_a_step_that_swallows_a_cancel_is_interrupted_anew_when_asked_again() -> None:
    began, swallowed = threading.Event(), threading.Event()

    def stubborn() -> None:
        try:
            while True:
                began.set()
        except BaseException:
            swallowed.set()
        while True:
            time.sleep(0.001)

    job = Job(lambda job: job.guard(stubborn)(), lambda job: None).start()
    assert began.wait(8)
    job.cancel()
    assert swallowed.wait(8)
    job.cancel()
    assert isinstance(job.wait(8).error, Cancelled)


def test_a_cancel_before_the_start_ends_the_job_before_its_work() -> None:
    ran: list[int] = []
    job = Job(lambda job: job.guard(lambda: ran.append(1))(), lambda job: None)
    job.cancel()
    assert isinstance(job.start().wait(8).error, Cancelled)
    assert ran == []


def test_a_panel_that_is_closed_while_it_works_ends_its_work() -> None:
    gate = Gate()
    panel, job = gate.running()
    panel.close()
    job.wait(8)
    assert panel.job is None
    assert not turns._jobs


def test_a_cancel_that_is_on_its_way_when_the_step_ends_hits_nothing_that_comes_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = notebook_job._raise_in

    def late(thread: int, kind: type[BaseException] | None) -> None:
        if kind is not None:
            eventually(lambda: not job._guarded)
        send(thread, kind)

    def work(job: Job) -> None:
        try:
            job.guard(lambda: eventually(lambda: job._sending))()
        finally:
            for number in range(300):
                tidied.append(number)  # noqa: PERF402  # many instructions, each of which could be interrupted

    monkeypatch.setattr(notebook_job, "_raise_in", late)
    for _ in range(20):
        tidied: list[int] = []
        job = Job(work, lambda job: None)
        job.start()
        assert eventually(lambda job=job: job._guarded)  # type: ignore[misc]
        job.cancel()
        assert isinstance(job.wait(8).error, Cancelled)
        assert len(tidied) == 300


# -- the quiz -------------------------------------------------------------------------------------------------------


def test_an_experiment_of_the_quiz_is_refused_while_a_panel_works_and_runs_afterwards() -> None:
    gate = Gate()
    quiz = Quiz("en")
    quiz.start_over()
    _, job = gate.running()
    quiz.guess("true")
    quiz.attempt.run()
    assert "A diagnosis is running on the panel" in quiz.answer.value
    assert "A diagnosis is running on the panel" in quiz.attempt.outcome.value
    gate.go.set()
    job.wait(8)
    quiz.speak("en")
    quiz.attempt.run()
    assert "diagnosis" not in quiz.attempt.outcome.value
    assert quiz.attempt.seen is not None


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(3)", "GeneratorExit", "BaseException('own')"])
def test_whatever_an_attempt_raises_is_told(raised: str) -> None:
    quiz = Quiz("en")
    quiz.attempt.code.value = f"BELIEVED = {{}}\ndef observe():\n    raise {raised}\n"
    quiz.attempt.run()
    assert raised.split("(", maxsplit=1)[0] in quiz.attempt.outcome.value


# -- a real kernel --------------------------------------------------------------------------------------------------

SETUP = """
import time, torch
from torch import nn
import gradkit
model = nn.Linear(2, 1)
def step():
    end = time.monotonic() + slow
    while time.monotonic() < end:
        time.sleep(0.001)
    return model(torch.rand(3, 2)).sum()
slow = 0
panel = gradkit.panel(model=model, step=step, language="zh")
panel.start()
assert panel.report.healthy
print(panel.diagnose.model_id, panel.cancel.model_id)
"""


class Kernel:
    """A kernel, its two buttons, and what its cells put out."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(extra_arguments=["--HistoryManager.enabled=False"])
        self.diagnose, self.cancel = self.outputs(self.send(SETUP))[-1]["content"]["text"].split()

    def send(self, code: str) -> str:
        return str(self.client.execute(code))

    def click(self, button: str) -> None:
        data = {"method": "custom", "content": {"event": "click"}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": button, "data": data}))

    def outputs(self, cell: str, until: str = "") -> list[dict[str, Any]]:
        """The messages of a cell until it is done, or until one shows ``until``."""
        found: list[dict[str, Any]] = []
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
            if message["msg_type"] in ("stream", "display_data", "clear_output", "error"):
                found.append(message)
            if until and until in str(message["content"]):
                return found


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    running = Kernel()
    yield running
    running.client.stop_channels()
    running.manager.shutdown_kernel(now=True)


def test_in_a_kernel_a_cell_waits_and_its_numbers_are_its_own(kernel: Kernel) -> None:
    kernel.outputs(kernel.send("slow = 2; _ = torch.manual_seed(3)"))
    kernel.click(kernel.diagnose)
    said = kernel.outputs(kernel.send("print(panel.job, torch.rand(1).item())"))
    torch.manual_seed(3)
    assert "此单元格正在等" in said[0]["content"]["data"]["text/plain"]
    assert [one["msg_type"] for one in said] == ["display_data", "clear_output", "stream"]
    assert said[-1]["content"]["text"] == f"None {torch.rand(1).item()}\n"


@pytest.mark.parametrize("cell", ["ran = True", "await asyncio.sleep(0); ran = True"])
def test_in_a_kernel_an_interrupt_stops_the_diagnosis_and_the_cell(kernel: Kernel, cell: str) -> None:
    kernel.outputs(kernel.send("import asyncio; slow = 60; ran = False; before = model.weight.clone()"))
    kernel.click(kernel.diagnose)
    waiting = kernel.send(cell)
    kernel.outputs(waiting, until="此单元格正在等")
    kernel.manager.interrupt_kernel()
    error = kernel.outputs(waiting)[-1]["content"]
    assert "".join(error["traceback"]).startswith("诊断已停止")
    told = kernel.outputs(kernel.send("print(ran, panel.job, (model.weight == before).all().item())"))
    assert told[0]["content"]["text"] == "False None True\n"


def test_in_a_kernel_a_click_is_heard_while_the_job_runs(kernel: Kernel) -> None:
    kernel.outputs(kernel.send("slow = 60"))
    kernel.click(kernel.diagnose)
    kernel.click(kernel.cancel)
    told = kernel.outputs(kernel.send("print(panel.job, panel.note.value)"))
    assert "已取消" in told[-1]["content"]["text"]


AFTERWARDS = """
    import signal, sys, threading, time
    from gradkit.notebook.job import Cancelled, Job
    def loop():
        while True:
            time.sleep(0.001)
    Job(lambda job: job.guard(lambda: 1)(), lambda job: None).start().wait()
    job = Job(lambda job: job.guard(loop)(), lambda job: None).start()
    job.cancel()
    job.wait()
    assert isinstance(job.error, Cancelled)
    signal.alarm(20)
    sys.settrace(lambda *_: None)
    for number in range(1000):
        (lambda: number)()
    print("came through")
"""


def test_after_a_job_python_can_be_traced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AFTERWARDS)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "came through\n", done.stderr
