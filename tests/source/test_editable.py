"""What an editable install points to is a library's, unless it is the project that the program belongs to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gradkit.load import specs
from gradkit.source import editable, frames, installed

Install = Callable[..., Path]
FILE = "src/lossy/core/dice.py"


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(editable, "_named", set())
    yield
    frames.is_user_file.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a project in editable mode, and says where its file lies; the program runs in a folder beside it."""
    site = tmp_path / "environment"
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    def write(folder: str = "clone", *, told: str | None = None) -> Path:
        root = tmp_path / folder
        for name in (FILE, "src/lossy/__init__.py", "src/lossy/core/__init__.py", "pyproject.toml"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        record = site / "lossy-1.0.dist-info"
        record.mkdir(parents=True)
        url = {"url": root.as_uri(), "dir_info": {"editable": True}}
        (record / "METADATA").write_text("Name: lossy\nVersion: 1.0\n")
        (record / "direct_url.json").write_text(json.dumps(url) if told is None else told)
        return root / FILE

    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return write


def test_an_editable_install_elsewhere_is_a_library(install: Install) -> None:
    file = install()
    assert not frames.is_user_file(str(file))
    assert installed.library_of(str(file)) == "lossy"


@pytest.mark.parametrize("folder", [".", "src", "src/lossy/core"])
def test_the_project_that_the_program_runs_in_is_the_users(
    install: Install, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    file = install()
    monkeypatch.chdir(file.parents[3] / folder)
    assert frames.is_user_file(str(file))


def test_a_project_below_the_current_folder_is_the_users(install: Install) -> None:
    assert frames.is_user_file(str(install("work/lossy")))


def test_a_part_of_the_repository_that_the_program_runs_in_is_the_users(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all" / ".git").mkdir(parents=True)
    (tmp_path / "all" / "training").mkdir()
    monkeypatch.chdir(tmp_path / "all" / "training")
    assert frames.is_user_file(str(install("all/libraries/lossy")))


def test_the_project_of_the_script_that_runs_is_the_users(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    file = install()
    main = ModuleType("__main__")
    main.__file__ = str(file.parents[3] / "examples" / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert frames.is_user_file(str(file))


def test_the_project_whose_command_runs_is_the_users(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    file = install()
    main = ModuleType("__main__")
    main.__file__ = str(file.parent / "train")
    exec(compile("def train(): ...", str(file), "exec"), vars(main))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(file.parent))
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert frames.is_user_file(str(file))


def test_the_project_of_a_file_that_is_named_is_the_users(install: Install) -> None:
    file = install()
    assert not frames.is_user_file(str(file))
    specs.load_file(file)
    assert frames.is_user_file(str(file))


@pytest.mark.parametrize(
    "told",
    ["", "{", "[]", '{"url": "file:///", "dir_info": {}}', '{"dir_info": {"editable": true}}',
     '{"url": "https://host/lossy.git", "dir_info": {"editable": true}}', '{"url": 3, "dir_info": {"editable": true}}'],
)  # fmt: skip
def test_a_record_that_names_no_editable_folder_takes_no_file_from_the_user(install: Install, told: str) -> None:
    assert frames.is_user_file(str(install(told=told)))
