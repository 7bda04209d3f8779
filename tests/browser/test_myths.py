"""The notebook of myths in a real JupyterLab: guess, see, change the experiment; by keys alone, in both languages."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import Notebook
from tests.browser.test_start_notebook import BRIGHT, WIDER, WORDS

expect.set_options(timeout=60_000)

WORDING = {
    "en": {"false": "False", "next": "Next", "run": "Run my version", "restore": "Put it back", "one": "1 right of 1"},
    "zh": {
        "false": "错误",
        "next": "下一条",
        "run": "运行我的版本",
        "restore": "恢复原样",
        "one": "对 1 条",
    },
}
DETACHED = "weight.clone().detach().requires_grad_()"


def opened(notebook: Notebook, language: str) -> Locator:
    """The quiz, its cell run by a click."""
    notebook.open(f"notebooks/{language}/myths.ipynb")
    notebook.page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    notebook.page.locator("[data-command='notebook:run-cell-and-select-next']").first.click()
    quiz = notebook.page.locator(".gkp")
    expect(quiz.locator(".gkq-belief")).to_be_visible(timeout=120_000)
    if language == "zh":  # a Chinese notebook has its language from a file beside it, which this copy lacks
        quiz.get_by_role("button", name="中文").click()
        expect(quiz.get_by_role("button", name="视情况而定")).to_be_visible()
    return quiz


def button(quiz: Locator, name: str) -> Locator:
    return quiz.get_by_role("button", name=name, exact=True)


@pytest.mark.parametrize(("notebook", "language"), [("light", "en"), ("dark", "zh")], indirect=["notebook"])
def test_guess_see_change_and_go_on(notebook: Notebook, language: str) -> None:
    said = WORDING[language]
    quiz = opened(notebook, language)
    expect(quiz.locator("textarea")).to_be_hidden()
    notebook.shot(f"myths-{language}-1-question")

    quiz.locator("[data-press=clone_detaches]").click()
    expect(quiz.locator(".gkq-belief")).to_contain_text(".clone()")
    button(quiz, said["false"]).click()
    expect(quiz.locator(".gkq-verdict")).to_have_class("gkq-verdict gkq-right")
    expect(quiz.locator(".gkq-score")).to_contain_text(said["one"])
    expect(quiz.locator(".gkq-table").first.locator("tbody tr")).to_have_count(3)
    notebook.shot(f"myths-{language}-2-seen")

    code = quiz.locator("textarea")
    code.fill(code.input_value().replace("weight.clone()", DETACHED))
    button(quiz, said["run"]).click()
    expect(quiz.locator(".gkq-attempt .gkq-as_believed")).to_have_count(2)
    code.scroll_into_view_if_needed()
    notebook.shot(f"myths-{language}-3-changed")
    button(quiz, said["restore"]).click()
    expect(quiz.locator(".gkq-attempt .gkq-table")).to_have_count(0)
    expect(code).not_to_have_value(DETACHED)

    assert quiz.evaluate(WIDER) == []
    if notebook.theme == "dark":
        assert quiz.evaluate(BRIGHT) == []
    button(quiz, said["next"]).click()
    expect(quiz.locator(".gkq-belief")).not_to_contain_text(".clone()")
    expect(quiz.locator(".gkq-belief")).to_be_focused()


def test_by_keys_alone_the_cells_of_the_notebook_stay_and_shift_enter_runs_the_code(notebook: Notebook) -> None:
    quiz = opened(notebook, "en")
    page, cells = notebook.page, notebook.page.locator(".jp-Cell")
    before = cells.count()
    quiz.locator("[data-press=clone_detaches]").focus()
    page.keyboard.press("Enter")
    expect(quiz.locator(".gkq-belief")).to_be_focused()
    page.keyboard.press("Tab")
    expect(button(quiz, "True")).to_be_focused()
    page.keyboard.press("d")
    page.keyboard.press("d")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(quiz.locator(".gkq-verdict")).to_be_focused()
    expect(quiz.locator(".gkq-verdict")).to_contain_text("You guessed right")

    code = quiz.locator("textarea")
    code.focus()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.type("\nif copy is None:\nreturn {}")
    assert code.input_value().endswith("    }\n    if copy is None:\n        return {}")
    page.keyboard.press("Shift+Enter")
    expect(quiz.locator(".gkq-attempt .gkq-table")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(quiz.locator(".gkq-attempt .gkq-table")).to_be_visible()
    assert code.input_value().endswith("return {}"), "the cell that holds the quiz was run anew"
    assert cells.count() == before


def test_what_was_guessed_is_still_there_when_the_cell_is_run_again(notebook: Notebook) -> None:
    quiz = opened(notebook, "en")
    first = quiz.locator(".gkq-belief").inner_text()
    button(quiz, "True").click()
    expect(quiz.locator(".gkq-verdict")).to_contain_text("Not so")
    notebook.page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    notebook.page.locator("[data-command='notebook:run-cell-and-select-next']").first.click()
    expect(quiz.locator(".gkq-score")).to_contain_text("0 right of 1")
    expect(quiz.locator(".gkq-belief")).not_to_have_text(first)
    expect(quiz.locator(".gkq-dot.gkq-wrong")).to_have_count(1)
    button(quiz, "Start over").click()
    expect(quiz.locator(".gkq-belief")).to_have_text(first)
    expect(quiz.locator(".gkq-dot.gkq-wrong")).to_have_count(0)


def test_no_english_is_left_in_the_chinese_quiz(notebook: Notebook) -> None:
    quiz = opened(notebook, "zh")
    quiz.locator("[data-press=frozen_batchnorm_stands_still]").click()
    button(quiz, "错误").click()
    expect(quiz.locator(".gkq-verdict")).to_contain_text("视情况而定")
    words = quiz.evaluate(WORDS)
    known = ("English", "Shift", "torch", "http", "BatchNorm", "requires_grad", "eval()", "train()")
    prose = [text for text in words if text.isascii() and any(letter.isalpha() for letter in text)]
    assert [text for text in prose if not any(name in text for name in known)] == []
