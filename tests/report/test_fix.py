"""A derived change can be written into the user's file and taken back; nothing of theirs is lost on the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gradkit.core.errors import GradkitError
from gradkit.core.records import Change, Finding, Location
from gradkit.report import fix
from gradkit.source import changes

TEXT = "import torch\n\n\ndef f(x):\n    y = x.detach()\n    return y\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(TEXT.encode())
    return path


def change(path: Path) -> tuple[Change, ...]:
    return changes.derive_change(Finding("detach", Location(str(path), 5, 10, 19, "f", "    y = x.detach()", 5)))


def test_a_change_is_written_and_the_file_as_it_was_is_kept_beside_it(file: Path) -> None:
    edit = fix.apply_edit(file, change(file))
    assert file.read_text() == TEXT.replace(".detach()", "")
    assert edit.copy.read_text() == TEXT
    assert edit.copy.parent == file.parent


def test_undo_brings_back_every_byte_and_leaves_no_copy(file: Path) -> None:
    fix.undo_edit(fix.apply_edit(file, change(file)))
    assert file.read_bytes() == TEXT.encode()
    assert [path.name for path in file.parent.iterdir()] == ["train.py"]


def test_line_ends_byte_order_mark_and_mode_stay(file: Path) -> None:
    before = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    file.write_bytes(before)
    file.chmod(0o754)
    fix.apply_edit(file, change(file))
    assert file.read_bytes() == before.replace(b".detach()", b"")
    assert stat.S_IMODE(file.stat().st_mode) == 0o754


def test_a_file_in_another_encoding_keeps_it(file: Path) -> None:
    before = ("# -*- coding: latin-1 -*-\n# caf\xe9" + TEXT[len("import torch\n") :]).encode("latin-1")
    file.write_bytes(before)
    fix.apply_edit(file, [Change("-", 5, "    y = x.detach()"), Change("+", 5, "    y = x")])
    assert file.read_bytes() == before.replace(b".detach()", b"")


def test_a_block_is_taken_away_and_its_body_pulled_out(file: Path) -> None:
    file.write_text(
        "import torch\n\n\ndef f(x):\n    with torch.no_grad():\n        y = x + 1\n        y = y * 2\n    return y\n"
    )
    spot = Location(str(file), 5, 10, 25, "f", "    with torch.no_grad():", 5)
    fix.apply_edit(file, changes.derive_change(Finding("no_grad_block", spot)))
    assert file.read_text() == "import torch\n\n\ndef f(x):\n    y = x + 1\n    y = y * 2\n    return y\n"


def test_a_second_change_keeps_a_second_copy(file: Path) -> None:
    first = fix.apply_edit(file, change(file))
    file.write_text(TEXT)
    second = fix.apply_edit(file, change(file))
    assert first.copy != second.copy
    assert first.copy.exists()


def test_a_line_that_is_not_what_it_was_is_left_alone(file: Path) -> None:
    made = change(file)
    file.write_text(TEXT.replace("y = x.detach()", "y = x.detach() * 2"))
    with pytest.raises(GradkitError, match=r"train\.py.*5|5.*train\.py"):
        fix.apply_edit(file, made)
    assert "* 2" in file.read_text()
    assert len(list(file.parent.iterdir())) == 1


def test_what_would_be_no_python_any_more_is_not_written(file: Path) -> None:
    with pytest.raises(GradkitError) as caught:
        fix.apply_edit(file, [Change("-", 5, "    y = x.detach()"), Change("+", 5, "    y = (x")])
    assert caught.value.key == "edit_breaks"
    assert file.read_text() == TEXT


def test_what_a_person_wrote_after_the_change_is_not_undone(file: Path) -> None:
    edit = fix.apply_edit(file, change(file))
    file.write_text(file.read_text() + "# mine\n")
    with pytest.raises(GradkitError) as caught:
        fix.undo_edit(edit)
    assert caught.value.key == "edit_changed_since"
    assert file.read_text().endswith("# mine\n")
    assert edit.copy.read_text() == TEXT


def test_a_failure_in_the_middle_leaves_the_file_and_no_litter(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(GradkitError, match="No space left"):
        fix.apply_edit(file, change(file))
    assert file.read_text() == TEXT
    assert [path.name for path in file.parent.iterdir()] == ["train.py"]


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link.py")
    link.symlink_to(file)
    fix.apply_edit(link, change(link))
    assert link.is_symlink()
    assert ".detach()" not in file.read_text()


def test_a_cell_of_a_notebook_is_no_file_to_write() -> None:
    assert not fix.edit_possible("/tmp/ipykernel_1/123.py", [Change("-", 1, "x")])
