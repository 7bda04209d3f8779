"""The sentences: complete in both languages, used, and nowhere but in the catalogues."""

from __future__ import annotations

import ast
import os
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradkit.core import i18n

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).parents[2]
PACKAGE = REPO / "gradkit"
LOCALES = PACKAGE / "locales"
SUBJECTS = sorted(path.name for path in (LOCALES / "en").glob("*.toml"))
PROGRAMS = tuple(
    f"{PACKAGE / one}{os.sep}" for one in ("cases", "teaching/books", "teaching/claims", "teaching/guides")
)
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not str(path).startswith(PROGRAMS))
CASES = sorted((PACKAGE / "cases").rglob("*.py"))
CJK = re.compile(r"[\u4e00-\u9fff]")
FOUR_WORDS = re.compile(r"(?:\b[A-Za-z']+,? ){3,}[A-Za-z']+\b")
FILLERS = re.compile(r"\b(a|an|and|are|in|is|it|no|not|of|or|that|the|this|to|with|you|your)\b")


def _flat(language: str, subject: str) -> dict[str, str]:
    text = (LOCALES / language / subject).read_text(encoding="utf-8")
    return i18n._flat(tomllib.loads(text), "")


def _facts(sentence: str) -> set[str]:
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(sentence) if name}


def _stem(key: str) -> str:
    """The key that the code asks for: the plural forms are chosen by the catalogue."""
    return re.sub(r"\.(none|one|many)$", "", key)


EN, ZH = i18n.catalogue("en"), i18n.catalogue("zh")


def test_both_languages_have_the_same_subjects() -> None:
    assert sorted(path.name for path in (LOCALES / "zh").glob("*.toml")) == SUBJECTS


@pytest.mark.parametrize("subject", SUBJECTS)
def test_both_languages_have_the_same_keys_in_the_same_order(subject: str) -> None:
    assert list(_flat("en", subject)) == list(_flat("zh", subject))


def test_no_key_stands_in_two_files() -> None:
    count = Counter(key for subject in SUBJECTS for key in _flat("en", subject))
    assert [key for key, times in count.items() if times > 1] == []


def test_both_languages_name_the_same_facts() -> None:
    def facts(key: str, sentence: str) -> set[str]:
        return _facts(sentence) - ({"n"} if key.endswith(".one") else set())  # "one" may be said in words

    assert [key for key in EN if facts(key, EN[key]) != facts(key, ZH[key])] == []


def test_a_chinese_sentence_is_in_chinese() -> None:
    def is_phrase(text: str) -> bool:  # not a mere name, such as "JSON" or "{n}"
        return bool(re.search(r"[a-z]{2,} [a-z]{2,}", re.sub(r"\{[^}]*\}|`[^`]*`", "", text)))

    assert [key for key in EN if is_phrase(EN[key]) and not CJK.search(ZH[key])] == []


def test_an_english_sentence_is_in_english() -> None:
    # the name of a language is written in that language
    assert [key for key in EN if CJK.search(EN[key].replace("中文", ""))] == []


@dataclass(frozen=True)
class Asked:
    """A literal in the code that is, or may be, a key."""

    where: str
    shape: re.Pattern[str]  # what the whole key looks like
    is_call: bool = False  # it is the first argument of words() or GradkitError()
    facts: frozenset[str] | None = None  # the facts that go with it, where they can be told

    @property
    def keys(self) -> list[str]:
        return [key for key in EN if self.shape.fullmatch(_stem(key)) or self.shape.fullmatch(key)]


def _asked() -> Iterator[Asked]:
    for path in [*MODULES, *CASES]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(REPO)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and node.args and (shape := _shape(node.args[0])):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                told = isinstance(node.args[0], ast.Constant) and all(word.arg for word in node.keywords)
                facts = frozenset(str(word.arg) for word in node.keywords) if told else None
                if called == "GradkitError":
                    yield Asked(where, re.compile(rf"error\.{shape}"), True, facts)
                elif called in ("words", "spoken", "spoken_html"):
                    yield Asked(where, re.compile(shape), True, facts)
            elif shape := _shape(node):
                yield Asked(where, re.compile(rf"(error\.)?{shape}"))


def _shape(node: ast.AST) -> str:
    """The literal as a regular expression; an f-string's values may be anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[a-z][\w.]*", node.value):
        return re.escape(node.value) + (r"[\w.]+" if node.value.endswith(".") else "")
    if isinstance(node, ast.JoinedStr) and re.fullmatch(r"[a-z]\w*\..*|[a-z]\w*_", _beginning(node)):
        return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else r"[\w.]+" for part in node.values)
    return ""


def _beginning(node: ast.JoinedStr) -> str:
    first = node.values[0]
    return first.value if isinstance(first, ast.Constant) else ""


ASKED = list(_asked())


def test_every_sentence_is_used() -> None:
    used = {_stem(key) for asked in ASKED for key in asked.keys}
    assert sorted({_stem(key) for key in EN} - used) == []


def test_every_sentence_that_is_asked_for_exists() -> None:
    assert [f"{asked.where}: {asked.shape.pattern}" for asked in ASKED if asked.is_call and not asked.keys] == []


def test_every_sentence_gets_the_facts_that_it_names() -> None:
    told = [asked for asked in ASKED if asked.facts is not None]
    assert [f"{a.where}: {key}" for a in told for key in a.keys if not _facts(EN[key]) <= a.facts] == []


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that may reach a user: not docstrings, nor what is compared or matched with."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    quiet: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            quiet.add(id(node.value))
        elif isinstance(node, ast.Compare):
            quiet |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Assert) and node.msg:
            quiet |= {id(inner) for inner in ast.walk(node.msg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
            yield node.lineno, node.value


def _is_prose(text: str) -> bool:
    """Chinese, or English that reads like a sentence: torch's messages and patterns that are looked for do not."""
    english = FOUR_WORDS.search(text) and FILLERS.search(text) and (text[0].isupper() or text.rstrip()[-1] in ".!?:")
    return bool(CJK.search(text) or (english and "\\" not in text))


def test_no_sentence_stands_in_a_module() -> None:
    assert [
        f"{path.relative_to(REPO)}:{line}: {text}"
        for path in MODULES
        for line, text in _strings(path)
        if _is_prose(text)
    ] == []


@pytest.mark.parametrize("word", ["断点", "graph break", "Graph break"])
def test_a_cut_has_one_name(word: str, notebooks: Path) -> None:
    pages = [path for end in ("toml", "md", "ipynb", "py", "js") for path in PACKAGE.rglob(f"*.{end}")]
    pages += [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *notebooks.rglob("*.ipynb")]
    assert [path for path in pages if word in path.read_text(encoding="utf-8")] == []
