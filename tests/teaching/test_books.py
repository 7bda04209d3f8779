"""The notebooks have one source: every text is there in both languages, fresh, and every notebook is up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt

from gradkit.core.errors import GradkitError
from gradkit.teaching import book as teaching_book
from gradkit.teaching import pages
from tools import books

REPO = Path(__file__).parents[2]

each_book = pytest.mark.parametrize("name", teaching_book.book_names())

PAGE = """\
# %% [markdown] lang="en"
# # A title
#
# Some words.

# %% [markdown] lang="zh" of="{of}"
# # 标题
#
# 几句话。

# %% tags=["hide-input"]
print(1)
"""
FRESH = PAGE.format(of=pages.stamp("# A title\n\nSome words."))


def faults(source: str) -> list[str]:
    return [fault.split(":")[0] for fault in books.faults(pages.parse(source))]


@each_book
def test_every_text_is_there_in_both_languages_and_fresh(name: str) -> None:
    assert list(books.faults(teaching_book.read_book(name))) == []


@each_book
def test_the_code_of_a_book_is_python(name: str) -> None:
    for cell in teaching_book.read_book(name):
        if cell.kind == "code":
            compile(cell.says("en"), name, "exec")


def test_no_notebook_is_out_of_date_or_left_over() -> None:
    assert books.stale(books.committed()) == [], "python -m tools.books"


@each_book
def test_the_notebooks_of_a_book_have_the_same_code_and_cell_ids_in_both_languages(notebooks: Path, name: str) -> None:
    english, chinese = (nbformat.read(notebooks / code / f"{name}.ipynb", as_version=4) for code in ("en", "zh"))
    assert [cell.id for cell in english.cells] == [cell.id for cell in chinese.cells]
    assert len({cell.id for cell in english.cells}) == len(english.cells)
    code = [[cell for cell in book.cells if cell.cell_type == "code"] for book in (english, chinese)]
    assert code[0] == code[1]


@each_book
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_notebook_is_sound_and_carries_no_outputs(notebooks: Path, name: str, language: str) -> None:
    book = nbformat.read(notebooks / language / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert "widgets" not in book.metadata


def written(notebooks: Path, language: str) -> Iterator[tuple[str, str]]:
    """Where a text stands, and the text: cells of the notebooks, and the guides."""
    for path in sorted((notebooks / language).rglob("*.ipynb")):
        cells = nbformat.read(path, 4).cells
        yield from ((path.name, cell.source) for cell in cells if cell.cell_type == "markdown")
    for path in sorted((REPO / "gradkit" / "guides").glob(f"*/{language}.md")):
        yield path.parent.name, path.read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_shows_the_asterisks_of_its_emphasis(notebooks: Path, language: str) -> None:
    """Two asterisks between punctuation and a word close no emphasis, in Chinese neither."""
    parser = MarkdownIt("commonmark")
    blocks = [(place, block) for place, text in written(notebooks, language) for block in parser.parse(text)]
    assert len(blocks) > 1000
    parts = [(place, part) for place, block in blocks for part in block.children or ()]
    assert [(place, part.content) for place, part in parts if part.type == "text" and "*" in part.content] == []


def test_a_fresh_book_has_no_faults() -> None:
    assert faults(FRESH) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("Some words", "Other words"), "the Chinese is stale; read it again, then --stamp"),
        (('# %% [markdown] lang="zh"', '# %% [markdown] lang="fr"'), "not an English text followed by its Chinese"),
        (("# # 标题\n#\n# 几句话。", "# # A title"), "the Chinese text has no Chinese"),
        (("几句话", "几句话 for all of those who read it"), None),
        (('lang="en"', 'lang="en" fuzzy=true'), "the Chinese is marked fuzzy"),
        (("print(1)", "print(1)  # 打印"), "Chinese in code"),
        (("# # A title", "# A title"), "the first cell is no English title"),
    ],
)
def test_a_fault_in_a_book_is_found(change: tuple[str, str], fault: str | None) -> None:
    found = faults(FRESH.replace(*change))
    assert (fault in found) if fault else (found == [])


def test_english_that_was_left_in_the_chinese_is_found() -> None:
    english = "Run the next cell, and look at `what the loss says of it now`."
    assert books.left_in_english(english, "运行 the next cell, and look `x`。") == ""
    assert books.left_in_english(english, "看 Run the next cell, and look at `x`。").startswith("Run the next cell")
    assert books.left_in_english(english, "`what the loss says of it now` 在这里") == ""


def test_stamping_changes_nothing_but_the_stamps() -> None:
    assert books.stamped(PAGE.format(of="")) == books.stamped(PAGE.format(of="00000000")) == FRESH


def test_a_cell_keeps_its_metadata_and_its_id_does_not_depend_on_its_place() -> None:
    (text, code) = pages.bound(pages.parse(FRESH), "zh").cells
    assert (text.source, code.metadata) == ("# 标题\n\n几句话。", {"tags": ["hide-input"]})
    later = pages.bound(pages.parse("# %%\nprint(0)\n" + FRESH + "\n# %%\nprint(1)\n"), "en").cells
    assert [cell.id for cell in later[1:]] == [text.id, code.id, f"{code.id}-2"]


def test_an_unknown_notebook_is_named() -> None:
    with pytest.raises(GradkitError, match="begin"):
        teaching_book.read_book("begin")
