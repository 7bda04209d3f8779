"""The panel for everybody: axe-core finds no serious fault in any state of it, and keys are enough."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import faults
from tests.browser.jupyter import Notebook
from tests.browser.test_start_notebook import click, diagnose, run_panel, settle

EXAMPLE = "Vision memory: a helper detaches the projection"
WHERE = """() => {
    const at = document.activeElement;
    return [at.closest(".gkp") ? "panel" : "elsewhere", at.innerText || at.ariaLabel || at.placeholder || at.tagName];
}"""


@pytest.fixture
def panel(notebook: Notebook) -> Locator:
    notebook.open("notebooks/en/start.ipynb")
    return run_panel(notebook.page)


@pytest.mark.parametrize("notebook", ["light", "dark"], indirect=True)
def test_axe_finds_no_serious_fault_in_any_state_of_the_panel(notebook: Notebook, panel: Locator) -> None:
    page, found = notebook.page, {}

    def look(state: str) -> None:
        settle(panel)
        found[state] = faults(page, ".gkp")

    for source in ("My file", "My notebook", "Adapter or weights", "An example"):
        click(panel, source)
        look(f"form: {source}")
    click(panel, EXAMPLE)
    click(panel, "Load only")
    expect(panel.locator(".gkp-loaded")).to_contain_text("parameters")
    look("loaded")
    diagnose(panel, EXAMPLE)
    look("results")
    click(panel, "Show in the picture")
    look("picture")
    click(panel, "Parameters")
    look("table")
    click(panel, "By module")
    panel.locator(".gkp-fold").first.click()
    look("by module")
    click(panel, "Guide")
    look("guide")
    click(panel, "Change model or batch")
    click(panel, "My file")
    click(panel, "Diagnose again")
    expect(panel.get_by_role("alert")).to_be_visible()
    look("error")
    assert {state: several for state, several in found.items() if several} == {}


def test_from_the_form_to_the_guide_by_keys_alone(panel: Locator) -> None:
    page = panel.page
    panel.get_by_role("button", name="An example").focus()
    walk_to(page, EXAMPLE)
    page.keyboard.press("Enter")
    walk_to(page, "Diagnose", back=True)
    page.keyboard.press("Enter")
    expect(panel.locator(".gkp-verdict")).to_be_focused()
    walk_to(page, "Parameters")
    page.keyboard.press("Enter")
    expect(panel.locator(".gkp-sort").first).to_be_visible()
    walk_to(page, re.compile(r"Norm\b"))
    page.keyboard.press("Enter")
    head = panel.locator('th[aria-sort="ascending"]')
    expect(head).to_contain_text("Norm")
    expect(head.locator("button")).to_be_focused()
    page.keyboard.press("Space")
    expect(panel.locator('th[aria-sort="descending"]')).to_contain_text("Norm")
    walk_to(page, "Walk me through the fix", back=True)
    page.keyboard.press("Enter")
    expect(panel.locator(".gkp-guide")).to_be_visible()
    walk_to(page, "Next")
    page.keyboard.press("Enter")
    expect(panel.locator(".gkp-step").nth(1)).to_have_attribute("aria-current", "step")


def walk_to(page: Page, name: str | re.Pattern[str], *, back: bool = False) -> None:
    """Press Tab until the focus is on what is called so; it must not leave the panel on the way."""
    seen = []
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        place, text = page.evaluate(WHERE)
        seen.append(text.strip()[:40])
        assert place == "panel", f"the focus left the panel: {seen}"
        if text.strip() == name if isinstance(name, str) else name.match(text.strip()):
            return
    pytest.fail(f"no way to {name}: {seen}")
