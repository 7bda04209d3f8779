"""Nothing of a person's is lost when gradkit writes a file: not to a full disk, nor to a save in the same moment."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradkit.core import settings, writing
from gradkit.core.errors import GradkitError
from gradkit.core.records import Change
from gradkit.report import fix
from gradkit.teaching import book, exercises

TEXT = "import torch\n\n\ndef f(x):\n    y = x.detach()\n    return y\n"
CHANGE = (Change("-", 5, "    y = x.detach()"), Change("+", 5, "    y = x"))
CURED = TEXT.replace(".detach()", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(TEXT.encode())
    return path


def refused(file: Path, change: tuple[Change, ...] = CHANGE) -> str:
    with pytest.raises(GradkitError) as caught:
        fix.apply_edit(file, change)
    assert str(file) in str(caught.value)
    return caught.value.key


def names(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir())


# -- what stays as it was --------------------------------------------------------------------------------------------


def test_a_readonly_file_is_not_written_over(file: Path) -> None:
    file.chmod(0o444)
    assert not fix.edit_possible(str(file), CHANGE)
    assert refused(file) == "edit_read_only"
    assert (file.read_text(), names(file)) == (TEXT, ["train.py"])


def test_a_file_that_became_readonly_is_not_put_back(file: Path) -> None:
    edit = fix.apply_edit(file, CHANGE)
    file.chmod(0o444)
    with pytest.raises(GradkitError) as caught:
        fix.undo_edit(edit)
    assert caught.value.key == "edit_read_only"
    assert (file.read_text(), edit.copy.read_text()) == (CURED, TEXT)


def test_a_file_of_several_names_is_not_parted_from_them(file: Path) -> None:
    other = file.with_name("other.py")
    os.link(file, other)
    assert refused(file) == "edit_links"
    assert file.samefile(other)
    assert file.read_text() == TEXT


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755, 0o700])
def test_the_mode_stays(file: Path, mode: int) -> None:
    file.chmod(mode)
    edit = fix.apply_edit(file, CHANGE)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    fix.undo_edit(edit)
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(file: Path) -> None:
    os.chown(file, 1234, 2345)
    fix.undo_edit(fix.apply_edit(file, CHANGE))
    fix.apply_edit(file, CHANGE)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_a_file_whose_owner_cannot_be_kept_is_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = writing._looks
    monkeypatch.setattr(writing, "_looks", lambda path: (*looks(path)[1:], path == file))
    assert refused(file) == "edit_attributes"
    assert (file.read_text(), names(file)) == (TEXT, ["train.py"])


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="a system without extended attributes")
def test_extended_attributes_stay(file: Path) -> None:
    try:
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        pytest.skip("a file system without extended attributes")
    fix.apply_edit(file, CHANGE)
    assert os.getxattr(file, "user.note") == b"mine"


def test_a_written_file_is_newer_than_the_bytecode_of_what_it_was(file: Path) -> None:
    os.utime(file, (1e9, 1e9))
    fix.apply_edit(file, CHANGE)
    assert file.stat().st_mtime > 1e9


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("a system without pipes")
    pipe = tmp_path / "train.py"
    os.mkfifo(pipe)
    assert refused(pipe) == "edit_no_file"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_every_way_to_end_a_line_stays(file: Path, end: str, last: bool) -> None:
    before = TEXT.replace("\n", end) if last else TEXT.rstrip("\n").replace("\n", end)
    file.write_bytes(before.encode())
    edit = fix.apply_edit(file, CHANGE)
    assert file.read_bytes() == before.replace(".detach()", "").encode()
    fix.undo_edit(edit)
    assert file.read_bytes() == before.encode()


def test_mixed_line_ends_stay_as_they_are(file: Path) -> None:
    before = b"import torch\r\n\n\rdef f(x):\r\n    y = x.detach()\r    return y\n\x0c# \xe2\x80\xa8 end"
    file.write_bytes(before)
    fix.apply_edit(file, CHANGE)
    assert file.read_bytes() == before.replace(b".detach()", b"")


def test_a_change_of_the_last_line_adds_no_line_end(file: Path) -> None:
    file.write_bytes(b"x = 1\r\ny = x.data")
    fix.apply_edit(file, (Change("-", 2, "y = x.data"), Change("+", 2, "y = x"), Change("+", 2, "z = y")))
    assert file.read_bytes() == b"x = 1\r\ny = x\r\nz = y"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "gbk", "cp1251", "shift_jis"])
def test_every_encoding_stays(file: Path, encoding: str) -> None:
    letters = {"gbk": "中文", "cp1251": "слово", "shift_jis": "日本"}.get(encoding, "é")
    mark = "#" if encoding == "utf-8-sig" else f"# -*- coding: {encoding} -*-"
    before = f"{mark}\n# {letters}\n\ndef f(x):\n    y = x.detach()\n    return y, '{letters}'\n".encode(encoding)
    file.write_bytes(before)
    fix.apply_edit(file, CHANGE)
    assert file.read_bytes() == before.replace(b".detach()", b"")


@pytest.mark.parametrize(
    "before",
    [
        TEXT.encode() + b"# caf\xe9\n",
        b"# -*- coding: no-such-code -*-\n" + TEXT.encode(),
        b"# -*- coding: iso2022_jp -*-\n#\x1b$B\x1b(B\x1b(B\n" + TEXT.encode(),
    ],
)
def test_what_cannot_be_written_back_byte_for_byte_is_one_clear_error(file: Path, before: bytes) -> None:
    file.write_bytes(before)
    assert refused(file) == "edit_encoding"
    assert (file.read_bytes(), names(file)) == (before, ["train.py"])


def test_no_change_at_all_is_not_written(file: Path) -> None:
    assert refused(file, ()) == "edit_changed"
    assert names(file) == ["train.py"]


# -- a save in the same moment ---------------------------------------------------------------------------------------

THEIRS = TEXT.replace("return y", "return y + 1")


def in_place(file: Path) -> None:
    file.write_text(THEIRS)


def by_renaming(file: Path) -> None:
    fresh = file.with_name("editor.tmp")
    fresh.write_text(THEIRS)
    os.replace(fresh, file)


def by_moving_away(file: Path) -> None:
    os.rename(file, file.with_name("train.py~"))
    file.write_text(THEIRS)


SAVES = [in_place, by_renaming, by_moving_away]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("moment", ["beside", "_dress", "replace", "fsync"])
@pytest.mark.parametrize("late", [False, True])
def test_a_save_while_a_change_is_written_is_not_lost(
    file: Path, save: Callable[[Path], None], moment: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = writing if moment in ("beside", "_dress") else os
    real, saved = getattr(owner, moment), []

    def meanwhile(*args: Any, **more: Any) -> Any:
        if late:
            result = real(*args, **more)
        if not saved:
            saved.append(True)
            save(file) if file.exists() or save is not by_moving_away else in_place(file)
        return result if late else real(*args, **more)

    monkeypatch.setattr(owner, moment, meanwhile)
    with pytest.raises(GradkitError) as caught:
        fix.apply_edit(file, CHANGE)
    assert caught.value.key in ("edit_saved", "edit_attributes")
    assert file.read_text() == THEIRS
    assert not [name for name in names(file) if "gradkit" in name or name.startswith(".")]


@pytest.mark.parametrize("save", [in_place, by_renaming])
def test_a_save_while_a_change_is_undone_is_not_lost(
    file: Path, save: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, real = fix.apply_edit(file, CHANGE), writing.beside

    def meanwhile(*args: Any, **more: Any) -> Path:
        save(file)
        return real(*args, **more)

    monkeypatch.setattr(writing, "beside", meanwhile)
    with pytest.raises(GradkitError, match="saving"):
        fix.undo_edit(edit)
    assert (file.read_text(), edit.copy.read_text()) == (THEIRS, TEXT)
    assert names(file) == ["train.py", "train.py.before-gradkit"]


def test_no_save_of_an_editor_in_another_thread_is_lost(file: Path) -> None:
    for turn in range(60):
        file.write_text(TEXT)
        mine = TEXT + f"# {turn}\n"
        fresh = file.with_name("editor.tmp")
        fresh.write_text(mine)
        saving = threading.Thread(target=os.replace, args=(fresh, file))
        saving.start()
        try:
            edit = fix.apply_edit(file, CHANGE)
        except GradkitError:
            edit = None
        saving.join()
        held = file.read_text()
        assert held == mine or held == mine.replace(".detach()", ""), held
        if edit is not None:
            edit.copy.unlink(missing_ok=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_file_that_somebody_is_writing_is_left_to_them(file: Path) -> None:
    with file.open("r+b") as theirs:
        assert refused(file) == "edit_saved"
        theirs.write(THEIRS.encode())
    assert (file.read_text(), names(file)) == (THEIRS, ["train.py"])


def test_undo_puts_nothing_back_that_is_not_what_was_kept(file: Path) -> None:
    edit = fix.apply_edit(file, CHANGE)
    edit.copy.write_text("# something else\n")
    with pytest.raises(GradkitError) as caught:
        fix.undo_edit(edit)
    assert caught.value.key == "edit_copy_changed"
    assert (file.read_text(), edit.copy.read_text()) == (CURED, "# something else\n")


# -- a full disk -----------------------------------------------------------------------------------------------------


class Full:
    """Lets the calls of one function fail for want of space, from the n-th on or that one alone."""

    def __init__(self, real: Callable[..., Any], nth: int = 1) -> None:
        self.real, self.left = real, nth

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*args, **more)


MOMENTS = [(os, "fsync"), (os, "replace"), (os, "utime"), (writing, "_dress"), (writing, "_claim")]


@pytest.mark.parametrize(("owner", "name"), MOMENTS)
def test_a_full_disk_leaves_the_file_as_it_was(
    file: Path, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, Full(getattr(owner, name)))
    with pytest.raises(GradkitError, match="No space left"):
        fix.apply_edit(file, CHANGE)
    assert (file.read_text(), names(file)) == (TEXT, ["train.py"])


@pytest.mark.parametrize(("owner", "name"), MOMENTS)
def test_a_full_disk_leaves_an_undone_change_as_it_was(
    file: Path, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = fix.apply_edit(file, CHANGE)
    monkeypatch.setattr(owner, name, Full(getattr(owner, name)))
    with pytest.raises(GradkitError, match="No space left"):
        fix.undo_edit(edit)
    assert (file.read_text(), names(file)) == (CURED, ["train.py", "train.py.before-gradkit"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is that of Linux")
def test_a_disk_that_is_full_in_the_middle_of_a_write_leaves_no_half_file(file: Path) -> None:
    import resource
    import signal

    def limited(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE)[0], signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        limited(20)
        key = refused(file)
    finally:
        limited(before)
        signal.signal(signal.SIGXFSZ, handler)
    assert key == "edit_refused"
    assert (file.read_text(), names(file)) == (TEXT, ["train.py"])


def test_an_interrupt_at_any_line_loses_nothing(file: Path) -> None:
    def apply(nth: int) -> bool:
        left = nth

        def line(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != writing.__file__:
                return None
            left -= event == "line"
            if left == 0:
                left -= 1
                raise KeyboardInterrupt
            return line

        sys.settrace(line)
        try:
            fix.apply_edit(file, CHANGE)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    nth = 1
    while apply(nth):
        copy = file.with_name("train.py.before-gradkit")
        assert file.read_text() == (CURED if copy.exists() else TEXT), nth
        assert not copy.exists() or copy.read_text() == TEXT, nth
        for other in {*file.parent.iterdir()} - {file}:
            other.unlink()
        file.write_text(TEXT)
        nth += 1
    assert nth > 30


# -- gradkit's own files ---------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    return tmp_path


def test_a_full_disk_leaves_settings_and_logbook_as_they_were(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.remember("language", "zh")
    exercises.note_try("a", solved=True)
    monkeypatch.setattr(os, "fsync", Full(os.fsync, 1))
    settings.remember("language", "en")
    monkeypatch.setattr(os, "fsync", Full(os.fsync, 1))
    exercises.note_try("b", solved=True)
    assert settings.remembered("language") == "zh"
    assert list(exercises.logbook_entries()) == ["a"]
    assert sorted(path.name for path in own.iterdir()) == ["settings.json", "workshop.json"]


def test_a_link_to_the_settings_stays_a_link(own: Path) -> None:
    kept = own / "dotfiles.json"
    kept.write_text("{}")
    (own / "settings.json").symlink_to(kept)
    settings.remember("language", "zh")
    assert (own / "settings.json").is_symlink()
    assert json.loads(kept.read_text()) == {"language": "zh"}


def test_a_full_disk_leaves_no_half_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = book.hand_out(tmp_path, ["start"], languages=["en"])[0]
    path.write_text("mine")
    monkeypatch.setattr(os, "replace", Full(os.replace))
    with pytest.raises(GradkitError) as caught:
        book.hand_out(tmp_path, ["start"], languages=["en"], force=True)
    assert caught.value.key == "notebook_not_writable"
    assert (path.read_text(), [one.name for one in path.parent.iterdir()]) == ("mine", ["start.ipynb"])


def test_a_readonly_notebook_is_not_written_over(tmp_path: Path) -> None:
    path = book.hand_out(tmp_path, ["start"], languages=["en"])[0]
    path.write_text("mine")
    path.chmod(0o444)
    with pytest.raises(GradkitError):
        book.hand_out(tmp_path, ["start"], languages=["en"], force=True)
    assert path.read_text() == "mine"


def test_a_new_file_has_the_mode_that_any_new_file_has(tmp_path: Path) -> None:
    plain, ours = tmp_path / "a", tmp_path / "b"
    plain.touch()
    writing.write(ours, b"x")
    assert ours.stat().st_mode == plain.stat().st_mode


def test_a_file_of_several_names_and_a_device_are_written_in_place(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_text("old")
    os.link(one, other)
    writing.write(one, b"new")
    assert other.read_text() == "new"
    writing.write(Path(os.devnull), b"new")
    assert Path(os.devnull).exists()
    assert not Path(os.devnull).is_file()
