"""The language that a person has chosen is remembered, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradkit import cli
from gradkit.core import i18n, settings
from gradkit.notebook.panel import Panel


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for settings of its own, and no language in use yet."""
    monkeypatch.setenv(settings.FOLDER, str(tmp_path / "gradkit"))
    monkeypatch.setattr(i18n, "_current", "")
    return tmp_path / "gradkit"


def new_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(i18n, "_current", "")


def test_english_is_spoken_before_anything_is_chosen() -> None:
    assert i18n.language() == "en"


def test_the_language_chosen_on_a_panel_is_that_of_the_next_panel_in_the_next_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Panel().languages.buttons["zh"].click()
    new_kernel(monkeypatch)
    assert Panel().language == "zh"
    Panel().languages.buttons["en"].click()
    new_kernel(monkeypatch)
    assert Panel().language == "en"


def test_a_new_process_speaks_the_chosen_language() -> None:
    i18n.choose("zh")
    asked = "import gradkit; print(gradkit.language())"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "zh\n"


def test_a_panel_that_was_opened_in_a_language_leaves_the_chosen_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    i18n.choose("zh")
    Panel(language="en").speak("en")
    new_kernel(monkeypatch)
    assert i18n.language() == "zh"


def test_the_environment_variable_comes_before_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    i18n.choose("zh")
    new_kernel(monkeypatch)
    monkeypatch.setenv(i18n.VARIABLE, "en_US")
    assert i18n.language() == "en"


def test_a_language_that_gradkit_does_not_speak_is_passed_over_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    i18n.choose("zh")
    new_kernel(monkeypatch)
    monkeypatch.setenv(i18n.VARIABLE, "fr")
    assert i18n.language() == "zh"


def asked_in(folder: Path, **environment: str) -> str:
    """The language of a kernel that starts in ``folder``."""
    asked, found = "import gradkit; print(gradkit.language())", {**os.environ, **environment}
    found["PYTHONPATH"] = str(Path(__file__).parents[2])
    run = subprocess.run([sys.executable, "-c", asked], cwd=folder, env=found, capture_output=True, check=True)
    return run.stdout.decode().strip()


def test_in_a_folder_of_chinese_notebooks_a_kernel_speaks_chinese_unless_the_environment_says_otherwise(
    tmp_path: Path,
) -> None:
    i18n.choose("en")
    (tmp_path / i18n.MARKER).write_text("zh\n", encoding="utf-8")
    assert asked_in(tmp_path) == "zh"
    assert asked_in(tmp_path, **{i18n.VARIABLE: "en"}) == "en"


@pytest.mark.parametrize("text", [b"", b"xx", b"\xff"])
def test_a_folder_whose_marker_says_nothing_is_passed_over(tmp_path: Path, text: bytes) -> None:
    (tmp_path / i18n.MARKER).write_bytes(text)
    assert asked_in(tmp_path) == "en"


def test_the_systems_language_is_spoken_where_nothing_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert i18n.language() == "zh"


def test_what_is_remembered_comes_before_the_systems_language(monkeypatch: pytest.MonkeyPatch) -> None:
    i18n.choose("en")
    new_kernel(monkeypatch)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert i18n.language() == "en"


def test_a_folder_that_cannot_be_written_keeps_nobody_from_choosing(folder: Path) -> None:
    folder.write_text("a file where the folder should be", encoding="utf-8")
    panel = Panel()
    panel.languages.buttons["zh"].click()
    assert (panel.language, i18n.language()) == ("zh", "zh")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_keeps_nobody_from_choosing(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    Panel().languages.buttons["zh"].click()
    assert i18n.language() == "zh"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"language": "xx"}', '{"language": 3}', "\xff"])
def test_a_settings_file_that_is_broken_is_passed_over(folder: Path, text: str) -> None:
    folder.mkdir()
    settings.file().write_bytes(text.encode("latin-1"))
    assert i18n.language() == "en"


def test_the_settings_lie_in_the_persons_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.FOLDER)
    assert settings.file().parts[-2:] == ("gradkit", "settings.json")


def test_a_terminal_asks_the_option_then_the_variable_then_the_locale() -> None:
    chinese = {"LANG": "zh_CN.UTF-8"}
    assert cli.preferred_language([], chinese) == "zh"
    assert cli.preferred_language([], {**chinese, i18n.VARIABLE: "en"}) == "en"
    assert cli.preferred_language(["--language", "zh"], {i18n.VARIABLE: "en"}) == "zh"
