"""Which files an installer has put there, whatever the folder is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradkit.source import frames, installed

Put = Callable[[str, str], Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Writes a file into a folder that modules are imported from."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


RECORD = "lossy/__init__.py,sha256=x,12\nlossy/core/dice.py,,\nlossy-1.0.dist-info/METADATA,,\n"


def test_what_a_distribution_has_recorded_is_a_librarys_wherever_it_lies(put: Put) -> None:
    put("lossy-1.0.dist-info/RECORD", RECORD)
    dice = put("lossy/core/dice.py", "")
    assert not frames.is_user_file(str(dice))
    assert installed.library_of(str(dice)) == "lossy"


def test_a_script_beside_installed_packages_is_the_users(put: Put) -> None:
    put("lossy-1.0.dist-info/RECORD", RECORD)
    assert frames.is_user_file(str(put("train.py", "")))


def test_a_file_that_a_person_has_put_into_an_installed_package_is_the_users(put: Put) -> None:
    put("lossy-1.0.dist-info/RECORD", RECORD)
    assert frames.is_user_file(str(put("lossy/core/mine.py", "")))


def test_what_an_editable_install_points_to_is_the_users(put: Put) -> None:
    put("lossy-1.0.dist-info/RECORD", "__editable__.lossy-1.0.pth,,\nlossy-1.0.dist-info/direct_url.json,,\n")
    assert frames.is_user_file(str(put("lossy/core/dice.py", "")))


def test_a_copy_without_a_record_is_the_users(put: Put) -> None:
    assert frames.is_user_file(str(put("third_party/lossy/core/dice.py", "")))


def test_a_record_in_a_folder_that_nothing_is_imported_from_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "lossy-1.0.dist-info").mkdir()
    (tmp_path / "lossy-1.0.dist-info" / "RECORD").write_text(RECORD)
    assert frames.is_user_file(str(tmp_path / "lossy" / "core" / "dice.py"))


@pytest.mark.parametrize("text", ["\x00\x01", '"never closed', "../../escape.py,,\n", ""])
def test_a_record_that_cannot_be_read_takes_no_file_from_the_user(put: Put, text: str) -> None:
    put("lossy-1.0.dist-info/RECORD", text)
    assert frames.is_user_file(str(put("lossy/core/dice.py", "")))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/opt/conda/lib/python3.11/site-packages/monai/metrics/metric.py", "monai"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("/home/ann/train.py", ""),
    ],
)
def test_a_library_goes_by_the_name_that_it_is_imported_under(path: str, name: str) -> None:
    assert installed.library_of(path) == name
