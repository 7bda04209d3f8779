"""The quiz: guess, see, change, go on; nothing is lost between kernels or languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

import gradkit
from gradkit.core import i18n, settings
from gradkit.notebook import quiz as notebook_quiz
from gradkit.notebook.quiz import PROGRESS, Quiz
from gradkit.teaching import claim


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Progress goes into an empty folder, and the language is afterwards as it was."""
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    before = i18n.language()
    yield
    i18n.language(before)


def at(name: str, language: str = "en") -> Quiz:
    quiz = Quiz(language)
    quiz.go(quiz.ids.index(name))
    return quiz


def hidden(part: object) -> bool:
    return bool(part.layout.display == "none")


def test_the_answer_is_hidden_until_there_is_a_guess() -> None:
    quiz = at("clone_detaches")
    assert all(map(hidden, (quiz.verdict, quiz.answer, quiz.attempt)))
    quiz.buttons["false"].click()
    assert not any(map(hidden, (quiz.verdict, quiz.answer, quiz.attempt)))


def test_a_right_guess_counts_and_a_wrong_one_does_not() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    assert "You guessed right" in quiz.verdict.value
    quiz.go(quiz.ids.index("detach_copies"))
    quiz.guess("true")
    assert "Not so" in quiz.verdict.value
    assert f"1 right of 2 answered; {len(quiz.ids)} in all" in quiz.score.value


def test_a_guess_can_not_be_taken_back_by_another() -> None:
    quiz = at("clone_detaches")
    quiz.guess("true")
    quiz.guess("false")
    assert quiz.guesses == {"clone_detaches": "true"}
    assert all(button.disabled for button in quiz.buttons.values())


def test_what_is_seen_comes_from_a_run_of_the_experiment() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    for row in gradkit.claim("clone_detaches", "en").run().rows:
        assert f"<code>{row.seen}</code>" in quiz.answer.value


def test_the_reader_changes_the_experiment_and_sees_another_verdict() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    code = quiz.attempt.code
    code.value = code.value.replace("weight.clone()", "weight.clone().detach().requires_grad_()")
    quiz.attempt.start.click()
    assert quiz.attempt.seen.verdict == "true"
    assert quiz.attempt.outcome.value.count("gkq-as_believed") == 2
    quiz.attempt.restore.click()
    assert code.value == quiz.claim.code
    assert quiz.attempt.outcome.value == ""


def test_shift_enter_runs_what_stands_in_the_box_also_while_its_last_letters_are_on_their_way() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    box = quiz.attempt.code
    box.value = 'BELIEVED = {"holds": True}\n\ndef observe():\n    if True:'
    whole = box.value + '\n        return {"holds": True}\n'
    box._handle_custom_msg({"run": True, "code": whole}, [])
    assert (box.value, quiz.attempt.seen.verdict) == (whole, "true")


def test_code_that_fails_shows_its_own_lines_and_what_it_printed() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    quiz.attempt.code.value = "BELIEVED = {}\n\ndef observe():\n    print('so far')\n    return 1 / 0\n"
    quiz.attempt.run()
    shown = unescape(quiz.attempt.outcome.value)
    assert "so far" in shown
    assert "line 5, in observe" in shown
    assert "ZeroDivisionError" in shown
    assert "gradkit" not in shown


def test_code_that_is_no_python_or_has_no_observe_is_told_too() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    for code, error in (
        ("def", "SyntaxError"),
        ("BELIEVED = {}", "KeyError"),
        ("import sys; sys.exit()", "SystemExit"),
    ):
        quiz.attempt.code.value = code
        quiz.attempt.run()
        assert error in quiz.attempt.outcome.value


def test_progress_is_kept_for_the_next_kernel_beside_the_language() -> None:
    i18n.choose("en")
    quiz = at("clone_detaches")
    quiz.guess("depends")
    again = Quiz()
    assert again.guesses == {"clone_detaches": "depends"}
    assert again.claim.id == again.ids[0]
    assert settings.remembered("language") == "en"
    again.start_over()
    assert Quiz().guesses == {}


def test_the_next_kernel_begins_at_the_first_open_question() -> None:
    quiz = Quiz("en")
    settings.remember(PROGRESS, json.dumps({quiz.ids[0]: "true", quiz.ids[1]: "false"}))
    assert Quiz("en").number == 2


@pytest.mark.parametrize("kept", ["[]", "not json", '{"gone": "true", "clone_detaches": "perhaps"}'])
def test_progress_that_can_not_be_read_is_none(kept: str) -> None:
    settings.remember(PROGRESS, kept)
    assert Quiz("en").guesses == {}


def test_behind_the_last_belief_comes_the_first() -> None:
    quiz = Quiz("en")
    quiz.back.click()
    assert quiz.number == len(quiz.ids) - 1
    quiz.next.click()
    assert quiz.number == 0


def test_another_language_keeps_all_that_was_done() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    quiz.attempt.code.value += "\n# mine"
    quiz.speak("zh")
    assert "猜对了" in quiz.verdict.value
    assert quiz.attempt.code.value.endswith("# mine")
    assert quiz.claim.belief in quiz.question.value.replace("<code>", "`").replace("</code>", "`")


def test_every_belief_has_a_button_that_says_how_it_was_answered() -> None:
    quiz = at("clone_detaches")
    quiz.guess("false")
    board = quiz.board.html
    assert board.count("data-press=") == len(claim.claim_names())
    number = quiz.number + 1
    assert f'aria-label="Belief {number}, guessed right" title="Belief {number}, guessed right" aria-current' in board


def test_a_library_that_is_missing_is_told_and_the_answer_is_there_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: object) -> None:
        raise ImportError("No module named 'peft'")

    monkeypatch.setattr(claim.Claim, "run", broken)
    quiz = at("adapter_loads_frozen")
    quiz.guess("true")
    assert "No module named" in quiz.answer.value
    assert "You guessed right" in quiz.verdict.value


@pytest.mark.parametrize(("language", "word"), [("en", "needs a live kernel"), ("zh", "需要运行中的内核")])
def test_a_page_without_widgets_shows_all_beliefs_with_the_answers_folded_away(language: str, word: str) -> None:
    bundle = Quiz(language)._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert word in data["text/plain"]
    with i18n.speaking(language):
        assert data["text/html"] == notebook_quiz.still_to_guess()
    assert data["text/html"].count("<details>") == len(claim.claim_names())
    assert "application/vnd.jupyter.widget-view+json" in data
