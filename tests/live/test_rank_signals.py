"""What a rank sets up to have a last word is taken back as it was found, and a copy of the rank keeps none of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradkit.live import rank_signals
from gradkit.live.rank_signals import FirstAWord

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture
def word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FirstAWord]:
    """In a process that ``torchrun`` has started."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr(rank_signals.tempfile, "gettempdir", lambda: str(tmp_path))
    before = signal.set_wakeup_fd(-1)
    one = FirstAWord(lambda: None)
    yield one
    one.close()
    signal.set_wakeup_fd(before)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def wakeup() -> int:
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number


def files() -> set[str]:
    return set(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.fixture
def another() -> Iterator[int]:
    """The writing end of a pipe of the program's own."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    yield ends[1]
    signal.set_wakeup_fd(-1)
    for end in ends:
        os.close(end)


def test_signals_are_as_they_were_afterwards(word: FirstAWord) -> None:
    word.begin()
    assert wakeup() != -1
    word.close()
    assert wakeup() == -1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_wakeup_pipe_that_the_program_has_set_meanwhile_stays(word: FirstAWord, another: int) -> None:
    word.begin()
    signal.set_wakeup_fd(another)
    word.close()
    assert wakeup() == another


def test_a_handler_that_the_program_has_set_meanwhile_stays(word: FirstAWord) -> None:
    word.begin()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    word.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_beside_a_wakeup_pipe_of_the_programs_nothing_is_left_open(word: FirstAWord, another: int) -> None:
    signal.set_wakeup_fd(another)
    before = files()
    word.begin()
    assert files() == before
    assert wakeup() == another


def test_a_copy_keeps_no_end_of_the_pipe(word: FirstAWord) -> None:
    before = files()
    word.begin()
    child = os.fork()
    if child == 0:
        word.in_a_copy()
        os._exit(0 if files() == before and wakeup() == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert wakeup() != -1


CRASHES = """
import faulthandler, os, sys, tempfile
from pathlib import Path
from gradkit.live import rank_signals
os.environ |= {"TORCHELASTIC_RUN_ID": "none", "RANK": "3"}
tempfile.tempdir = sys.argv[1]
word = rank_signals.FirstAWord(lambda: None).begin()
file = rank_signals.last_words_file(3)
assert file.exists() and faulthandler.is_enabled()
if sys.argv[2] == "own":
    faulthandler.enable(open(Path(sys.argv[1]) / "own.txt", "w"))
child = os.fork()
if child == 0:
    word.in_a_copy()
    print(faulthandler.is_enabled(), flush=True)
    os.abort()
os.waitpid(child, 0)
print(file.stat().st_size if file.exists() else None)
word.close()
print(file.exists(), faulthandler.is_enabled())
"""


def crashed(folder: Path, way: str) -> list[str]:
    command = [sys.executable, "-c", CRASHES, str(folder), way]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_copy_that_crashes_does_not_write_into_the_file_of_its_rank(tmp_path: Path) -> None:
    assert crashed(tmp_path, "") == ["False", "0", "False", "False"]


def test_a_file_that_the_program_has_chosen_for_crashes_since_stays(tmp_path: Path) -> None:
    assert crashed(tmp_path, "own") == ["True", "0", "False", "True"]
    assert "Aborted" in (tmp_path / "own.txt").read_text()
