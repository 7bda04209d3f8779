"""What a rank has noted before it crashed is read by another, and nothing of it stays behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from gradkit.live import rank_notes, rank_signals
from gradkit.live.rank_notes import Notes, left_by
from gradkit.live.rank_records import RankRecord
from gradkit.live.rank_sentry import Sentry

CRASH = 'Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "{file}", line 2 in <module>\n'


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In a process that ``torchrun`` has started."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def crashes(folder: Path, line: str = "y = net(x)") -> None:
    program = folder / "train.py"
    program.write_text(f"x = 1\n{line}\n", encoding="utf-8")
    rank_signals.last_words_file(1).write_text(CRASH.format(file=program), encoding="utf-8")


def test_what_a_rank_was_about_to_raise_is_told_in_place_of_its_crash(folder: Path) -> None:
    said = RankRecord(1, 2, "raised", "train.py:9", error="ValueError: broken")
    Notes(1, lambda: 0).say(said)
    crashes(folder)
    assert left_by(1, 2) == said
    assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_a_note_without_a_crash_says_nothing(folder: Path) -> None:
    notes = Notes(1, lambda: 0)
    notes.say(RankRecord(1, 2, "raised", error="ValueError: broken"))
    assert left_by(1, 2) is None
    assert list(folder.iterdir()) == []
    notes.say(RankRecord(1, 2, "raised", error="ValueError: broken"))
    notes.close()
    assert list(folder.iterdir()) == []


def test_a_crash_without_a_note_is_told_with_its_line(folder: Path) -> None:
    crashes(folder)
    found = left_by(1, 2)
    assert found is not None
    assert (found.state, found.place.rpartition(":")[2], found.error) == ("crashed", "2", "Aborted")


def test_what_gathers_parameters_is_heard_once_a_step_and_is_itself_again_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip(rank_notes._GATHERS[0])
    called: list[int] = []
    monkeypatch.setattr(module, rank_notes._GATHERS[1], called.append)
    before, step = module.foreach_all_gather, [0]
    notes = Notes(1, lambda: step[0])
    notes.open()
    notes.open()
    scene = {"sound": torch.zeros(2, 3)}
    for step[0] in (0, 0, 1):
        module.foreach_all_gather(step[0])
    assert called == [0, 0, 1]
    crashes(folder)
    found = left_by(1, 2)
    assert found is not None
    assert found.steps == 1
    assert ("scene['sound']", "2 x 3") in found.batch
    notes.close()
    assert module.foreach_all_gather is before
    assert scene


def test_what_a_run_that_was_killed_has_noted_is_not_told_of_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    Notes(1, lambda: 0).say(RankRecord(1, 2, "raised", error="ValueError: of the run before"))
    sentry = Sentry(print, lambda: 0)
    sentry.hold_signals()
    try:
        crashes(folder)
        found = left_by(1, 2)
    finally:
        sentry.close()
    assert found is not None
    assert (found.state, found.error) == ("crashed", "Aborted")
