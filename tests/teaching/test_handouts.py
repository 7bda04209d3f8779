"""``gradkit notebooks``: what it writes, what it leaves alone, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from gradkit.cli import COULD_NOT_RUN, HEALTHY, main
from gradkit.core import i18n
from gradkit.teaching import book

REPO = Path(__file__).parents[2]


def test_a_notebook_is_written_as_the_repository_has_it_and_as_its_book_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["notebooks", str(tmp_path / "mine"), "start", "guides/detach"]) == HEALTHY
    written = [tmp_path / "mine" / "en" / "start.ipynb", tmp_path / "mine" / "en" / "guides" / "detach.ipynb"]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in written]
    assert written[0].read_bytes() == (REPO / "notebooks" / "en" / "start.ipynb").read_bytes()
    assert written[1].read_bytes() == book.write_books("guides/detach", "en").encode()
    assert not list(tmp_path.rglob(i18n.MARKER))


def test_both_languages_lie_side_by_side_and_the_chinese_ones_speak_chinese(tmp_path: Path) -> None:
    assert main(["notebooks", str(tmp_path), "guides/det*", "--language", "both"]) == HEALTHY
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "en/guides/detach.ipynb",
        f"zh/guides/{i18n.MARKER}",
        "zh/guides/detach.ipynb",
    ]


def test_without_names_all_are_written(tmp_path: Path) -> None:
    assert main(["notebooks", str(tmp_path), "--language", "zh"]) == HEALTHY
    assert len(list(tmp_path.rglob("*.ipynb"))) == len(book.book_names())


def test_as_a_script_it_has_cells_and_runs(tmp_path: Path) -> None:
    assert main(["notebooks", str(tmp_path), "guides/detach", "--as", "py"]) == HEALTHY
    script = tmp_path / "en" / "guides" / "detach.py"
    text = script.read_text(encoding="utf-8")
    code = [cell for cell in book.notebook("guides/detach", "en").cells if cell.cell_type == "code"]
    assert text.startswith("# %% [markdown]\n# # detach() lies")
    assert text.count("\n# %%\n") == len(code)
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=_path(), capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def _path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO)}


def test_a_file_that_is_there_is_left_alone_and_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "en" / "start.ipynb"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert main(["notebooks", str(tmp_path), "guides/detach", "start"]) == COULD_NOT_RUN
    assert str(mine) in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"
    assert main(["notebooks", str(tmp_path), "start", "--force"]) == HEALTHY
    nbformat.validate(nbformat.read(mine, as_version=4))


def test_what_is_there_already_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["notebooks", str(tmp_path), "start"])
    capsys.readouterr()
    assert main(["notebooks", str(tmp_path), "start", "guides/detach"]) == HEALTHY
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "en" / "guides" / "detach.ipynb")]


def test_an_unknown_name_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["notebooks", str(tmp_path / "new"), "begin"]) == COULD_NOT_RUN
    assert "begin" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["notebooks", str(tmp_path / "file"), "start"]) == COULD_NOT_RUN
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_without_a_folder_they_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["notebooks", "--language", "zh"]) == HEALTHY
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["guides/detach", "detach() 挡在了通往损失的路上"] in listed
    assert len(listed) == len(book.book_names())


def test_a_look_of_the_slides_that_was_changed_is_not_written_over(tmp_path: Path) -> None:
    assert main(["notebooks", str(tmp_path), "workshop/slides"]) == HEALTHY
    looks = tmp_path / "en" / "workshop" / "slides.css"
    looks.write_text("mine", encoding="utf-8")
    assert main(["notebooks", str(tmp_path), "workshop/slides"]) == COULD_NOT_RUN
    assert looks.read_text(encoding="utf-8") == "mine"
