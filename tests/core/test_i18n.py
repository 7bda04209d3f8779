"""In which language a sentence is said: that of the block around it, else that of the process."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words

PACKAGE = Path(i18n.__file__).parents[1]
HELP = {"en": words("report.help", "en"), "zh": words("report.help", "zh")}


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(i18n, "_current", "en")


def said_in_a_thread(call: Callable[[], str]) -> str:
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(call()))
    thread.start()
    thread.join()
    return heard[0]


def help_word() -> str:
    return words("report.help")


def test_within_a_block_words_are_in_its_language() -> None:
    with speaking("zh"):
        assert words("report.help") == HELP["zh"]


def test_after_a_block_words_are_in_the_language_before_it() -> None:
    with speaking("zh"):
        pass
    assert (words("report.help"), i18n.language()) == (HELP["en"], "en")


def test_a_block_within_a_block_gives_back_the_outer_language() -> None:
    with speaking("zh"):
        with speaking("en"):
            assert i18n.language() == "en"
        assert i18n.language() == "zh"


def test_a_block_that_asks_for_no_language_goes_on_in_the_one_around_it() -> None:
    with speaking("zh"), speaking(None):
        assert words("report.help") == HELP["zh"]


def test_a_block_that_asks_for_no_language_hears_a_switch() -> None:
    with speaking():
        i18n.language("zh")
        assert words("report.help") == HELP["zh"]


def test_an_exception_in_a_block_gives_back_the_language_before_it() -> None:
    with pytest.raises(ZeroDivisionError), speaking("zh"):
        raise ZeroDivisionError
    assert i18n.language() == "en"


def test_a_language_that_nobody_speaks_is_refused_before_a_word_is_said() -> None:
    with pytest.raises(ValueError, match="fr"), speaking("fr"):
        pytest.fail("the block ran")
    assert i18n.language() == "en"


def test_a_sentence_in_a_language_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(ValueError, match="fr"):
        words("report.help", "fr")


def test_a_block_takes_the_codes_that_a_switch_takes() -> None:
    with speaking("zh_CN"):
        assert words("report.help") == HELP["zh"]


def test_a_switch_within_a_block_is_heard_after_it() -> None:
    with speaking("en"):
        assert i18n.language("zh") == "zh"
        assert words("report.help") == HELP["en"]
    assert words("report.help") == HELP["zh"]


def test_a_sentence_that_is_asked_for_in_a_language_is_said_in_it_in_any_block() -> None:
    with speaking("zh"):
        assert words("report.help", "en") == HELP["en"]


def test_an_error_says_itself_in_the_language_of_the_block_where_it_is_shown() -> None:
    error = GradkitError("no_such_file", path="train.py")
    with speaking("zh"):
        assert str(error) == error.text("zh")
    assert str(error) == error.text("en")


def test_another_thread_does_not_hear_a_block() -> None:
    with speaking("zh"):
        assert said_in_a_thread(help_word) == HELP["en"]


def test_a_block_in_another_thread_is_not_heard_here() -> None:
    entered, looked = threading.Event(), threading.Event()

    def speak() -> None:
        with speaking("zh"):
            entered.set()
            looked.wait(10)

    thread = threading.Thread(target=speak)
    thread.start()
    entered.wait(10)
    here = words("report.help")
    looked.set()
    thread.join()
    assert here == HELP["en"]


def test_a_thread_that_is_handed_the_context_speaks_as_the_block_that_made_it() -> None:
    with speaking("zh"):
        context = contextvars.copy_context()
    assert said_in_a_thread(lambda: context.run(help_word)) == HELP["zh"]


def test_tasks_side_by_side_speak_each_their_own() -> None:
    async def say(language: str) -> str:
        with speaking(language):
            await asyncio.sleep(0)
            return words("report.help")

    async def both() -> list[str]:
        return await asyncio.gather(say("en"), say("zh"))

    assert asyncio.run(both()) == [HELP["en"], HELP["zh"]]


def test_what_is_computed_after_a_block_speaks_as_of_then() -> None:
    def lines() -> Iterator[str]:
        yield words("report.help")

    with speaking("zh"):
        late = lines()
    assert next(late) == HELP["en"]


def functions_with_a_language(room: str) -> Iterator[str]:
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if any(one.arg == "language" for one in given):
                    yield node.name


@pytest.mark.parametrize("room", ["report", "api"])
def test_a_language_is_asked_of_public_functions_and_handed_to_no_other(room: str) -> None:
    asked = set(functions_with_a_language(room))
    assert "text" in asked
    assert [name for name in asked if name.startswith("_")] == []


@pytest.mark.parametrize("room", ["source", "tracing", "diagnosis", "report/picture"])
def test_what_only_says_words_takes_no_language(room: str) -> None:
    assert list(functions_with_a_language(room)) == []
