"""While statements run again nothing leaves the process or waits for ever, and other threads go on as they did."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gradkit.live import guard, quiet, trial
from gradkit.live.guard import Guard, NotAgain
from tests.live import failing

PROGRAM = """\
import os, socket, subprocess, sys
import torch
import torch.nn as nn
folder = __file__.rpartition("/")[0]
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def leave():
    {leaves}
for batch in torch.randn(3, 5, 4):
    leave()
    loss = model(batch).detach().mean()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        ("open(folder + '/out.txt', 'a').write('x')", guard.WRITES),
        ("open(folder + '/out.bin', 'wb').write(b'x')", guard.WRITES),
        ("open(folder + '/gone', 'w').close(); os.remove(folder + '/gone')", guard.WRITES),
        ("os.makedirs(folder + '/new', exist_ok=True)", guard.WRITES),
        ("torch.save(model.state_dict(), folder + '/model.pt')", guard.WRITES),
        ("subprocess.run([sys.executable, '-c', 'print(1)'])", guard.STARTS),
        ("os.system('true')", guard.STARTS),
        ("os.waitpid(os.fork() or os._exit(0), 0)", guard.STARTS),
    ],
)
def test_a_step_that_reaches_beyond_the_process_is_refused(leaves: str, reason: str, tmp_path: Path) -> None:
    failed = failing.run(PROGRAM.format(leaves=leaves), tmp_path)
    before = _files(tmp_path)
    found = failed.explained()
    assert found.report is None
    assert found.tried[0].reason == reason
    assert _files(tmp_path) == before


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in folder.rglob("*")}


def test_what_the_step_prints_logs_and_writes_to_open_files_is_not_said_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = failing.run(
        """
        import logging, sys
        import torch
        import torch.nn as nn
        log = open(__file__ + ".log", "w")
        logging.basicConfig(stream=sys.stdout)
        model = nn.Linear(4, 1)
        def tell(x):
            print("step")
            sys.stderr.write("step")
            logging.warning("step")
            log.write("step")
        for batch in torch.randn(3, 5, 4):
            tell(batch)
            loss = model(batch).detach().mean()
            loss.backward()
        """,
        tmp_path,
    )
    capfd.readouterr()
    assert failed.explained().report is not None
    failed.globals["log"].close()
    assert (tmp_path / "train.py.log").read_text(encoding="utf-8") == "step"
    assert capfd.readouterr() == ("", "")


def test_what_was_refused_and_swallowed_by_the_step_counts_all_the_same(tmp_path: Path) -> None:
    swallowing = 'exec(\'try: open(folder + "/out.txt", "a")\\nexcept BaseException: pass\')'
    found = failing.run(PROGRAM.format(leaves=swallowing), tmp_path).explained()
    assert found.tried[0].reason == guard.WRITES


@pytest.mark.timeout(240, method="thread")  # the other method uses the alarm itself
def test_a_step_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT", 0.3)
    waits = "import time; [time.sleep(0.01) for _ in range(1000 if 'again' in globals() else 0)]"
    failed = failing.run(PROGRAM.format(leaves=waits), tmp_path)
    failed.globals["again"] = True
    began = time.monotonic()
    found = failed.explained()
    assert found.tried[0].reason == guard.LATE
    assert found.tried[0].facts["seconds"] == "0.3"
    assert time.monotonic() - began < 9
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_program_keeps_the_alarm_that_it_uses_itself() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        handler = signal.getsignal(signal.SIGALRM)
        with Guard(10):
            assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_step_that_ends_the_program_does_not(tmp_path: Path) -> None:
    found = failing.run(PROGRAM.format(leaves="sys.exit(3) if 'again' in globals() else None"), tmp_path)
    found.globals["again"] = True
    assert found.explained().tried[0].reason == guard.LEAVES


REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "a connection": (guard.CONNECTS, lambda: socket.socket().connect(("192.0.2.1", 9))),
    "the address of a host": (guard.CONNECTS, lambda: socket.getaddrinfo("example.org", 80)),
    "a database": (guard.CONNECTS, lambda: sqlite3.connect("never_made.db")),
    "a question": (guard.ASKS, input),
    "a debugger": (guard.ASKS, breakpoint),
    "a signal": (guard.LEAVES, lambda: os.kill(os.getpid(), 0)),
    "the end": (guard.LEAVES, lambda: os._exit(0)),
    "a process": (guard.STARTS, lambda: subprocess.Popen([sys.executable])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_has_happened(name: str) -> None:
    reason, attempt = REFUSED[name]
    with Guard(10) as guarded, pytest.raises(NotAgain) as refused:
        attempt()
    assert refused.value.reason == reason
    assert guarded.refused == [refused.value]


def test_what_stays_within_the_process_passes(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("kept", encoding="utf-8")
    with Guard(10) as guarded:
        assert kept.read_text(encoding="utf-8") == "kept"
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            nothing.write("x")
        torch.save(torch.ones(2), io.BytesIO())
        sqlite3.connect(":memory:").close()
    assert guarded.refused == []


def test_a_loader_may_start_its_workers() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4)), num_workers=1)
    with Guard(60) as guarded:
        assert [int(one) for (one,) in loader] == [0, 1, 2, 3]
    assert guarded.refused == []


def test_other_threads_go_on_writing_and_printing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        (tmp_path / "other.txt").write_text("written", encoding="utf-8")
        print("heard")
        logging.getLogger("other").error("logged")

    with Guard(10), quiet.muted():
        print("not heard")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert (tmp_path / "other.txt").read_text(encoding="utf-8") == "written"
    assert capsys.readouterr().out == "heard\n"


def test_afterwards_everything_may_be_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Guard(10), quiet.muted():
        pass
    (tmp_path / "out.txt").write_text("x", encoding="utf-8")
    print("heard")
    assert capsys.readouterr().out == "heard\n"
    assert "write" not in vars(sys.stdout)


def test_schedulers_and_scalers_do_not_move_on() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")

    def step() -> None:
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()

    with Guard(10), quiet.without_steps(step):
        step()
    assert (weight.item(), optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (1.0, 1.0, 0)
    assert not scaler._per_optimizer_states  # nothing was unscaled
