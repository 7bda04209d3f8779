"""The notebooks, built from their books: gradkit/teaching/books/NAME.py becomes notebooks/{en,zh}/NAME.ipynb.

Those of the guides, notebooks/{en,zh}/guides, are built too, and not committed: --check leaves them out.

python -m tools.books                   build them
python -m tools.books --check           exit with 1, and say why, if a text is missing or stale, or a notebook is
python -m tools.books --stamp NAME      the Chinese of NAME has been read against the English: note that at each text
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

from gradkit.core import i18n  # noqa: E402
from gradkit.teaching import book as teaching_book  # noqa: E402
from gradkit.teaching import pages  # noqa: E402
from gradkit.teaching.pages import Page  # noqa: E402

NOTEBOOKS = REPO / "notebooks"
HAN = re.compile(r"[\u4e00-\u9fff]")
CHINESE_HEAD = re.compile(r'^# %% \[markdown\] .*lang="zh".*$', re.MULTILINE)


def faults(book: tuple[Page, ...]) -> Iterator[str]:
    """What is wrong with the texts of a book, one sentence each."""
    if not book or not book[0].says("en").startswith("# "):
        yield "the first cell is no English title"
    for page in book:
        english, chinese = page.says("en"), page.says("zh")
        head = (english or chinese).strip().split("\n")[0][:60]
        if page.kind == "code":
            if HAN.search(page.says("")):
                yield f"Chinese in code: {head}"
        elif list(page.text) != ["en", "zh"]:
            yield f"not an English text followed by its Chinese: {head}"
        else:
            yield from (f"{fault}: {head}" for fault in _text_faults(english, chinese, page))


def _text_faults(english: str, chinese: str, page: Page) -> Iterator[str]:
    if page.of != pages.stamp(english):
        yield "the Chinese is stale; read it again, then --stamp"
    if "fuzzy" in page.metadata:
        yield "the Chinese is marked fuzzy"
    if HAN.search(english.replace("中文", "")):
        yield "Chinese in the English text"
    if words_alone(english).strip() and not HAN.search(chinese):
        yield "the Chinese text has no Chinese"
    if prose := left_in_english(english, chinese):
        yield f"English left in the Chinese text ({prose})"


def words_alone(text: str) -> str:
    """A text without code, quotations and addresses, which may be the same in every language."""
    return re.sub(r"```.*?```|`[^`]*`|^>.*?$|\]\([^)]*\)|\"[^\"]*\"|“[^”]*”", " ", text, flags=re.DOTALL | re.MULTILINE)


def left_in_english(english: str, chinese: str) -> str:
    """A run of six English words that stands in both, apart from what may; ``""`` if there is none."""
    for found in re.finditer(r"(?=\b((?:[A-Za-z']+[ ,]+){5}[A-Za-z']+))", words_alone(chinese)):
        if found[1] in words_alone(english):
            return found[1]
    return ""


def stamped(source: str) -> str:
    """A book's source with every Chinese text stamped as written from the English before it."""
    stamps = iter([pages.stamp(page.says("en")) for page in pages.parse(source) if "zh" in page.text])

    def head(found: re.Match[str]) -> str:
        return re.sub(r' of="[^"]*"', "", found[0]).replace('lang="zh"', f'lang="zh" of="{next(stamps)}"')

    return CHINESE_HEAD.sub(head, source)


def built(names: Iterable[str]) -> dict[Path, str]:
    """Every file that should lie below ``notebooks/`` for these books, with its text."""
    files: dict[Path, str] = {}
    for language in i18n.LANGUAGES:
        for name in names:
            path = NOTEBOOKS / language / f"{name}.ipynb"
            files[path] = teaching_book.write_books(name, language)
            files |= {
                path.with_name(other): text for other, text in teaching_book.language_beside(name, language).items()
            }
    return files


def committed() -> dict[Path, str]:
    """Those of them that the repository holds: all but the guides' own."""
    return built(teaching_book.book_sources())


def stale(files: dict[Path, str]) -> list[str]:
    """Which of ``files`` are missing or out of date, and what is committed below ``notebooks/`` and built no longer."""
    there = {path for pattern in ("*.ipynb", "*.css", i18n.MARKER) for path in NOTEBOOKS.rglob(pattern)}
    there = {path for path in there if ".ipynb_checkpoints" not in path.parts}
    old = [path for path, text in files.items() if path not in there or path.read_text(encoding="utf-8") != text]
    left_over = sorted(path for path in there - files.keys() if path.relative_to(NOTEBOOKS).parts[1] != "guides")
    return [path.relative_to(REPO).as_posix() for path in [*old, *left_over]]


def _check() -> int:
    wrong = [
        f"{name}: {fault}" for name in teaching_book.book_names() for fault in faults(teaching_book.read_book(name))
    ]
    wrong += [f"{path} is out of date: python -m tools.books" for path in stale(committed())]
    print("\n".join(wrong) or "every text is there in both languages, and every notebook is up to date")
    return int(bool(wrong))


def _build() -> int:
    files = built(teaching_book.book_names())
    for name in stale(files):
        path = REPO / name
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8", newline="\n")
        else:
            path.unlink()
        print(f"{name} {'written' if path in files else 'removed'}")
    return 0


def main() -> int:
    """Build, check or stamp."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--stamp", metavar="NAME")
    options = parser.parse_args()
    if options.stamp:
        path = teaching_book.books_folder() / f"{options.stamp}.py"
        path.write_text(stamped(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    return _check() if options.check else _build()


if __name__ == "__main__":
    sys.exit(main())
