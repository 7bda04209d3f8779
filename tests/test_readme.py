"""The README, in both languages: what it shows is what happens."""

from __future__ import annotations

import re

import pytest

from tools import readme

both = pytest.mark.parametrize("language", readme.PAGES)


def _page(language: str) -> str:
    return readme.PAGES[language].read_text(encoding="utf-8")


@pytest.mark.parametrize("mark", ["command: lab", "command: tests", "program: train.py"])
def test_both_languages_show_the_same_code(mark: str) -> None:
    assert readme.block(_page("en"), mark) == readme.block(_page("zh"), mark)


@pytest.mark.parametrize(("mark", "end"), [("command: lab", "gradkit lab"), ("command: tests", "python -m pytest")])
def test_a_command_is_one_line_with_all_of_its_set_up(mark: str, end: str) -> None:
    command = readme.block(_page("en"), mark).strip()
    assert command.startswith("python3 -m venv .venv && ")
    assert command.endswith(f".venv/bin/{end}")
    assert "\n" not in command


@both
def test_its_report_its_causes_and_its_table_of_other_tools_are_up_to_date(language: str) -> None:
    assert readme.fresh(_page(language), language) == _page(language), "run python tools/readme.py"


@both
def test_every_file_that_it_links_is_there(language: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", _page(language))
    assert [link for link in links if not (readme.REPO / link).exists()] == []


@both
def test_the_page_on_ci_shows_what_verify_and_scan_say(language: str) -> None:
    page = readme.CI_PAGES[language].read_text(encoding="utf-8")
    assert readme.fresh_ci(page, language) == page, "run python tools/readme.py"


def test_the_workflow_to_copy_is_the_same_in_both_languages_and_names_real_commands() -> None:
    english, chinese = (
        readme.block(readme.CI_PAGES[one].read_text(encoding="utf-8"), "workflow") for one in ("en", "zh")
    )
    assert english == chinese
    commands = re.findall(r"gradkit (\w+)", english)
    assert commands == ["verify", "scan"]


@both
def test_every_file_that_a_page_of_docs_links_is_there(language: str) -> None:
    end = ".zh.md" if language == "zh" else ".md"
    pages = [page for page in (readme.REPO / "docs").glob(f"*{end}") if language == "zh" or ".zh." not in page.name]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert [link for page, link in links if not (page.parent / link).exists()] == []
