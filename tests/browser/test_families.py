"""All causes below the panel, by family: unfolded by a key, and a guide opened by a click."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from gradkit.core import causes
from tests.browser.jupyter import Notebook

expect.set_options(timeout=60_000)

SAID = {"en": ("All {n} causes", "detach() lies on the path"), "zh": ("全部 {n} 种原因", "detach()")}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_causes_are_listed_by_family_and_a_click_opens_a_guide(notebook: Notebook, language: str) -> None:
    button, title = (text.format(n=len(causes.causes())) for text in SAID[language])
    marked = [".gradkit-language"] if language == "zh" else []
    page = notebook.open(f"notebooks/{language}/start.ipynb", *marked).page
    page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    toggle = page.get_by_role("button", name=button)
    toggle.focus()
    page.keyboard.press("Enter")
    listed = page.locator(".gkp-families")
    expect(listed.locator("h4")).to_have_count(len(causes.FAMILIES))
    listed.scroll_into_view_if_needed()
    notebook.shot(f"families-{language}-1")
    listed.locator("[data-press=detach]").click()
    expect(listed.locator("h1").first).to_contain_text(title)
    expect(listed.locator(".gkp-cause-page")).to_be_focused()
    expect(listed.locator("h1").first).to_be_in_viewport()
    notebook.shot(f"families-{language}-2")
