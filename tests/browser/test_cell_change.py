"""A notebook's own cell is changed by a click, by the model of the notebook: the editor's undo takes it back."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import REPO, Notebook

START = f"import sys; sys.path.insert(0, {str(REPO)!r}); import gradkit"
CLASS = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        hidden = self.encoder(x).detach()
        return self.head(hidden).sum()"""
MAKE = "net = Net()\nx = torch.ones(2, 4)"
PANEL = "gradkit.language({language!r})\ngradkit.panel(model=net, batch=x)"
WORDS = {
    "en": ("Diagnose", "Write it into notebook cell [2]", "Nothing was run yet: Diagnose again runs [2], [3] first."),
    "zh": ("开始诊断", "写入 notebook 单元格 [2]", "点“重新诊断”会先运行 [2]、[3]。"),
}
CURED = CLASS.replace(".detach()", "")


def opened(notebook: Notebook, folder: Path, language: str = "en", cells: tuple[str, ...] = (CLASS, MAKE)) -> Locator:
    """The panel in a notebook, at the change to a line of a cell."""
    texts = (START, *cells, PANEL.format(language=language))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "own.ipynb")
    notebook.open(folder / "own.ipynb")
    notebook.run_all()
    panel = notebook.page.locator(".gkp")
    panel.get_by_role("button", name=WORDS[language][0], exact=True).click()
    panel.locator(".gkp-finding .gkp-accent").first.click()
    panel.locator(".gkp-step").nth(3).click()
    return panel


def text_of(notebook: Notebook, number: int) -> str:
    lines = notebook.page.locator(".jp-CodeCell").nth(number).locator(".cm-line").all_inner_texts()
    return "\n".join(line.strip("\n\u200b") for line in lines)


@pytest.mark.parametrize(("notebook", "language"), [("light", "en"), ("dark", "zh")], indirect=["notebook"])
def test_a_cell_is_written_run_on_request_and_found_cured(notebook: Notebook, tmp_path: Path, language: str) -> None:
    _, write, runs = WORDS[language]
    panel = opened(notebook, tmp_path, language)
    expect(panel.locator(".gkp-own-change .gk-minus")).to_contain_text(".detach()")
    assert text_of(notebook, 1) == CLASS
    notebook.shot(f"cell-before-{language}")
    panel.get_by_role("button", name=write, exact=True).click()
    expect(panel.locator(".gkp-own-change")).to_contain_text(runs)
    assert text_of(notebook, 1) == CURED
    assert notebook.page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt").inner_text().strip() == "[2]:"
    notebook.shot(f"cell-written-{language}")
    panel.locator(".gkp-change-again").click()
    expect(panel.locator(".gkp-verdict.gkp-good")).to_be_visible()
    prompts = notebook.page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()
    assert [one.strip() for one in prompts] == ["[1]:", "[5]:", "[6]:", "[4]:"]
    expect(panel.locator(".gkp-compare .gkp-fixed").first).to_contain_text(".detach()")
    notebook.page.wait_for_timeout(400)
    notebook.shot(f"cell-cured-{language}")


def test_the_undo_of_the_editor_and_that_of_the_panel_bring_the_cell_back(notebook: Notebook, tmp_path: Path) -> None:
    panel = opened(notebook, tmp_path)
    panel.locator(".gkp-write").click()
    panel.locator(".gkp-undo").click()
    expect(panel.locator(".gkp-write")).to_be_visible()
    assert text_of(notebook, 1) == CLASS
    panel.locator(".gkp-write").click()
    expect(panel.locator(".gkp-undo")).to_be_visible()
    assert text_of(notebook, 1) == CURED
    notebook.page.locator(".jp-CodeCell").nth(1).locator(".cm-content").press("Control+z")
    assert text_of(notebook, 1) == CLASS


def test_a_cell_that_was_changed_or_is_gone_is_left_alone_and_says_so(notebook: Notebook, tmp_path: Path) -> None:
    panel = opened(notebook, tmp_path)
    editor = notebook.page.locator(".jp-CodeCell").nth(1).locator(".cm-content")
    editor.press("Control+End")
    editor.press_sequentially("  # mine")
    panel.locator(".gkp-write").click()
    expect(panel.get_by_role("alert")).to_contain_text("Cell [2] was changed after it ran.")
    assert text_of(notebook, 1) == f"{CLASS}  # mine"
    notebook.page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt").click()
    notebook.page.keyboard.press("d")
    notebook.page.keyboard.press("d")
    expect(notebook.page.locator(".jp-CodeCell")).to_have_count(3)
    panel.locator(".gkp-write").click()
    expect(panel.get_by_role("alert")).to_contain_text("Cell [2] no longer stands in this notebook as it ran.")


def test_a_cell_that_the_person_ran_again_is_not_run_a_second_time(notebook: Notebook, tmp_path: Path) -> None:
    panel = opened(notebook, tmp_path)
    panel.locator(".gkp-write").click()
    expect(panel.locator(".gkp-undo")).to_be_visible()
    for number in (1, 2):
        notebook.page.locator(".jp-CodeCell").nth(number).locator(".cm-content").press("Control+Enter")
    prompt = notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(2)
    expect(prompt).to_have_text(re.compile(r"\[6\]:"))
    panel.locator(".gkp-change-again").click()
    expect(panel.locator(".gkp-verdict.gkp-good")).to_be_visible()
    assert prompt.inner_text().strip() == "[6]:"
