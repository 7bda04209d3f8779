"""A student's tour by clicks and keys, in both languages: predict, run, see it beside, check; and the poll."""
# ruff: noqa: RUF001  colons of Chinese

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gradkit.teaching import poll, results
from tests.browser.jupyter import Notebook
from tests.browser.test_workshop import cell, run

expect.set_options(timeout=60_000)

SAID = {
    "en": ("only the head gets a gradient", "predicted: c) only the head", "happened:  c) only the head", "Not yet"),
    "zh": ("只有分类头拿到梯度", "预测：c) 只有分类头", "结果：c) 只有分类头", "还没有解决"),
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_click_on_an_answer_is_kept_and_stands_beside_what_happens(notebook: Notebook, language: str) -> None:
    option, predicted, happened, not_yet = SAID[language]
    marked = [".gradkit-language"] if language == "zh" else []
    page = notebook.open(f"notebooks/{language}/workshop/05_two_cuts.ipynb", *marked).page
    cell(notebook, "def make_batch").locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.insert_text("\ngradkit.testing.progress(forget=True)")  # the settings are those of the whole session
    page.keyboard.press("Control+Enter")
    for holds in ("class Reader", "gradkit.testing.predict"):
        run(notebook, cell(notebook, holds))
    ask = cell(notebook, "gradkit.testing.predict").locator(".gka")
    expect(ask.get_by_role("button")).to_have_count(4)
    answer = ask.get_by_role("button", name=f"c) {option}")
    answer.focus()
    page.keyboard.press("Enter")
    expect(ask).to_contain_text("c")
    expect(answer).to_have_class(re.compile(r"\bgka-mine\b"))
    ask.scroll_into_view_if_needed()
    notebook.shot(f"class-{language}-1-predicted")
    run(notebook, cell(notebook, "gradkit.testing.happened"))
    seen = cell(notebook, "gradkit.testing.happened").locator(".jp-OutputArea-output")
    expect(seen).to_contain_text(predicted)
    expect(seen).to_contain_text(happened)
    seen.scroll_into_view_if_needed()
    notebook.shot(f"class-{language}-2-beside")
    run(notebook, cell(notebook, "gradkit.testing.check"))
    checked = cell(notebook, "gradkit.testing.check").locator(".jp-OutputArea-output")
    expect(checked).to_contain_text(not_yet)
    expect(checked).to_contain_text('gradkit.testing.hint("two_cuts")')
    expect(checked).not_to_contain_text("-->")
    checked.scroll_into_view_if_needed()
    notebook.shot(f"class-{language}-3-checked")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_poll_counts_hands_by_keys_and_guesses_out_of_files(chromium: Browser, tmp_path: Path, language: str) -> None:
    belief = poll.LESSON[0]
    poll.write_poll(tmp_path / "poll.html", (), language)
    files = []
    for number, guess in enumerate(["false", "false", "true"]):
        files.append(tmp_path / f"{number}.csv")
        row = results.Row(f'Ada, "{number}"', results.BELIEF, belief, predicted=guess, happened="false")
        files[-1].write_text("\ufeff" + results.as_csv([row]), encoding="utf-8")
    with chromium.new_context(viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto((tmp_path / "poll.html").as_uri())
        page.keyboard.press("2")
        page.keyboard.press("3")
        page.keyboard.press("Shift+3")
        page.locator("input[type=file]").set_input_files(files)
        counts = {name: page.locator(f"[data-guess={name}] .count") for name in poll.GUESSES}
        expect(counts["false"]).to_have_text("3")
        expect(counts["true"]).to_have_text("1")
        expect(counts["depends"]).to_have_text("0")
        expect(page.locator(".told")).to_be_hidden()
        page.keyboard.press("r")
        expect(page.locator(".told")).to_be_visible()
        expect(page.locator("[data-guess=false]")).to_have_class("row right")
        with page.expect_download() as download:
            page.locator("[data-act=save]").click()
        saved = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
        assert saved[:2] == ["belief,verdict,true,false,depends", f"{belief},false,1,3,0"]
        page.keyboard.press("ArrowRight")
        expect(counts["false"]).to_have_text("0")
        assert wrong == []
