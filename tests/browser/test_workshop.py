"""An exercise of the workshop as a learner works on it in JupyterLab: run, read a hint, type an answer, check."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import Notebook
from tests.workshop_answers import ANSWERS

expect.set_options(timeout=60_000)

ANSWERS_TO = {answer.kind: answer for answer in ANSWERS if answer.name == "forgotten_no_grad"}
SAID = {
    "en": ("Not yet: A forgotten no_grad", "No gradient arrives at", "Solved: A forgotten no_grad"),
    "zh": ("还没有解决", "拿不到梯度", "已解决"),
}


def cell(notebook: Notebook, holds: str) -> Locator:
    """The cell whose code holds a text. JupyterLab keeps on the page only cells that are near: it is scrolled to."""
    page = notebook.page
    found = page.locator(".jp-CodeCell").filter(has=page.locator(".cm-content", has_text=holds)).first
    for tenth in range(11):
        if found.count():
            found.scroll_into_view_if_needed()
            break
        page.evaluate(
            "part => { const all = document.querySelector('.jp-WindowedPanel-outer');"
            "          all.scrollTop = part * all.scrollHeight; }",
            tenth / 10,
        )
        page.wait_for_timeout(300)
    return found


def run(notebook: Notebook, one: Locator) -> None:
    """By Control + Enter, as a learner who wants to see this cell's output; once more where the keys went elsewhere.

    Cells above that are rendered anew a moment later may take the focus.
    """
    prompt = one.locator(".jp-InputPrompt")
    for _ in range(4):
        before = prompt.inner_text()
        one.locator(".cm-content").click()
        notebook.page.keyboard.press("Control+Enter")
        try:
            expect(prompt).not_to_have_text(before, timeout=5_000)
            expect(prompt).to_have_text(re.compile(r"\d"), timeout=60_000)
        except AssertionError:
            continue
        return


def answer(notebook: Notebook, source: str) -> Locator:
    """Type a program over the learner's, run it and the check; the check's output."""
    program = cell(notebook, "class LeafNet")
    editor, last = program.locator(".cm-content"), source.strip().splitlines()[-1].strip()
    for _ in range(4):
        editor.click()
        expect(editor).to_be_focused()
        notebook.page.keyboard.press("ControlOrMeta+a")
        notebook.page.keyboard.insert_text(source)
        if squeezed(source) == squeezed(editor.inner_text()):
            break
        notebook.page.wait_for_timeout(500)
    expect(editor).to_contain_text(last)
    run(notebook, program)
    check = cell(notebook, "gradkit.testing.check")
    run(notebook, check)
    return check.locator(".jp-OutputArea-output")


def squeezed(text: str) -> str:
    return "".join(text.split())


def unfold(hint: Locator) -> None:
    """Open a hint. Running all cells renders the texts anew, a moment later: what was opened before that is closed."""
    for _ in range(5):
        if not hint.locator("p").is_visible():
            hint.locator("summary").click()
        hint.page.wait_for_timeout(500)
    expect(hint.locator("p")).to_be_visible()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_untouched_and_a_half_right_answer_are_told_what_is_wrong_and_the_right_one_passes(
    notebook: Notebook, language: str
) -> None:
    not_yet, starved, solved = SAID[language]
    marked = [".gradkit-language"] if language == "zh" else []
    notebook.open(f"notebooks/{language}/workshop/01_forgotten_no_grad.ipynb", *marked)
    notebook.run_all()
    output = cell(notebook, "gradkit.testing.check").locator(".jp-OutputArea-output")
    expect(output).to_contain_text(not_yet)
    expect(output).not_to_contain_text("Traceback")
    output.scroll_into_view_if_needed()
    notebook.shot(f"workshop-{language}-1-untouched")

    hint = notebook.page.locator(".jp-MarkdownCell details").first
    expect(hint.locator("p")).to_be_hidden()
    unfold(hint)
    notebook.shot(f"workshop-{language}-2-hint")

    half = answer(notebook, ANSWERS_TO["half right: the head learns"].source())
    expect(half).to_contain_text(starved)
    expect(half).to_contain_text("encoder.weight")
    half.scroll_into_view_if_needed()
    notebook.shot(f"workshop-{language}-3-half-right")

    expect(answer(notebook, ANSWERS_TO["right"].source())).to_contain_text(solved)
    notebook.shot(f"workshop-{language}-4-solved")
