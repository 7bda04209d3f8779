"""The README, in both languages: what it shows is what happens."""

from __future__ import annotations

import re

import pytest

from gradkit.core.causes import causes
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
@pytest.mark.parametrize("name", readme.PARTS)
def test_what_a_page_reports_counts_and_lists_is_up_to_date(name: str, language: str) -> None:
    page = readme.page(name, language).read_text(encoding="utf-8")
    assert readme.fresh(name, language) == page, "run python tools/readme.py"


@both
def test_it_is_read_in_one_go(language: str) -> None:
    lines = _page(language).splitlines()
    assert len(lines) <= 200
    tables = re.findall(r"(?:^\|.*\n)+", _page(language), re.MULTILINE)
    assert len(tables) >= 2
    assert [table for table in tables if len(table.splitlines()) - 2 > 10] == []


@both
def test_its_first_screen_says_what_it_is_for_shows_the_picture_and_gives_the_command(language: str) -> None:
    screen = "\n".join(_page(language).splitlines()[:26])
    assert "PyTorch" in screen
    assert f'<img src="docs/pictures/cut.{language}.png"' in screen
    assert readme.block(screen + "\n", "command: lab").endswith("gradkit lab\n")


@both
def test_it_names_every_cause_and_every_page_of_docs(language: str) -> None:
    page = _page(language)
    assert [cause for cause in causes() if f"](gradkit/teaching/guides/{cause}/{language}.md)" not in page] == []
    names = {path.name.split(".")[0] for path in (readme.REPO / "docs").glob("*.md")}
    elsewhere = {"teaching", "cost"}  # linked by the pages on notebooks and on where it runs
    assert {name for name in names if not re.search(rf"\]\(docs/{name}[.\w]*\.md", page)} <= elsewhere


@both
def test_every_file_that_it_links_is_there(language: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", _page(language))
    assert [link for link in links if not (readme.REPO / link).exists()] == []


def test_no_page_links_a_notebook_of_a_guide_which_is_built_and_not_committed() -> None:
    pages = [*readme.REPO.glob("*.md"), *(readme.REPO / "docs").glob("*.md")]
    assert len(pages) > 20
    links = {
        page.name: re.findall(r"\]\(([^)]*notebooks/\w+/guides[^)]*)\)", page.read_text("utf-8")) for page in pages
    }
    assert {name: found for name, found in links.items() if found} == {}


def test_the_workflow_to_copy_is_the_same_in_both_languages_and_names_real_commands() -> None:
    english, chinese = (
        readme.block(readme.page("docs/ci", one).read_text(encoding="utf-8"), "workflow") for one in ("en", "zh")
    )
    assert english == chinese
    commands = re.findall(r"gradkit (\w+)", english)
    assert commands == ["verify", "scan"]


@both
def test_every_file_that_a_page_of_docs_links_is_there(language: str) -> None:
    end = ".zh.md" if language == "zh" else ".md"
    folders = (readme.REPO, readme.REPO / "docs")
    pages = [page for one in folders for page in one.glob(f"*{end}") if language == "zh" or ".zh." not in page.name]
    texts = {page: re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in pages}
    links = [(page, link) for page, text in texts.items() for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert [link for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "name", [*readme.PARTS, "CONTRIBUTING", "docs/api", "docs/how_it_works", "docs/how_sure", "docs/where_it_runs"]
)
def test_a_page_has_the_same_headings_and_code_in_both_languages(name: str) -> None:
    english, chinese = ((readme.REPO / f"{name}{end}").read_text(encoding="utf-8") for end in (".md", ".zh.md"))
    for shape in (r"^#+(?= )", r"^```\w+$", r"!\[", r"^- ", r"^\d+\. "):
        assert re.findall(shape, english, re.MULTILINE) == re.findall(shape, chinese, re.MULTILINE), shape


@both
def test_every_file_that_contributing_names_is_there(language: str) -> None:
    page = (readme.REPO / ("CONTRIBUTING.md" if language == "en" else "CONTRIBUTING.zh.md")).read_text(encoding="utf-8")
    named = re.findall(r"(?:python |pytest )((?:tools|tests)/\w+\.py)|`((?:tests|docs)/\w+\.(?:py|md))`", page)
    files = {one or other for one, other in named}
    assert {"tools/readme.py", "tools/api.py", "tools/pictures.py"} <= files
    assert [file for file in files if not (readme.REPO / file).exists()] == []


def test_the_picture_of_how_it_works_has_the_same_arrows_in_both_languages() -> None:
    pictures = readme.REPO / "docs" / "pictures"
    arrows = [re.findall(r"\w+ -> [\w> -]+", (pictures / f"how.{one}.dot").read_text("utf-8")) for one in ("en", "zh")]
    assert arrows[0] == arrows[1]
    assert all((pictures / f"how.{one}.png").stat().st_size > 10_000 for one in ("en", "zh"))


def test_every_change_stands_in_both_changelogs() -> None:
    english, chinese = (
        (readme.REPO / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CHANGELOG.zh.md")
    )
    assert re.findall(r"^(## [0-9.]+|- )", english, re.MULTILINE) == re.findall(
        r"^(## [0-9.]+|- )", chinese, re.MULTILINE
    )
    names = [set(re.findall(r"`[^`]+`", text)) for text in (english, chinese)]
    assert {name for name in names[0] ^ names[1] if "cell" not in name and "单元格" not in name} == set()
