"""Places as links, in a real JupyterLab: a file opens at its line, the place of a cell leads to the cell."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import REPO, Notebook

TRAIN = """import torch
from torch import nn

model = nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 1)})


def step():
    hidden = model["encoder"](torch.ones(2, 4))
    return model["head"](hidden.detach()).sum()
"""
START = f"import sys; sys.path.insert(0, {str(REPO)!r}); import gradkit"
OWN = "import torch\nnet = torch.nn.Linear(2, 2)\ndef loss():\n    return net(torch.ones(1, 2)).detach().sum()"


def opened(notebook: Notebook, folder: Path, *cells: str) -> Notebook:
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (START, *cells)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "links.ipynb")
    notebook.open(folder / "links.ipynb", "train.py")
    notebook.run_all()
    return notebook


def leads_to_the_line(notebook: Notebook, link: Locator) -> None:
    link.click()
    expect(notebook.page.locator(".jp-FileEditor .cm-content")).to_contain_text("hidden.detach()")
    expect(notebook.page.locator("#jp-main-statusbar")).to_contain_text(re.compile("Ln 9, Col 1"))


def test_the_place_of_a_finding_in_the_panel_opens_the_file_at_its_line(notebook: Notebook, tmp_path: Path) -> None:
    opened(notebook, tmp_path, "import train\ngradkit.panel(model=train.model, step=train.step)")
    panel = notebook.page.locator(".gkp")
    panel.get_by_role("button", name="Diagnose", exact=True).click()
    link = panel.locator('[data-file][role="link"]').first
    expect(link).to_have_text(re.compile(r"train\.py:9"))
    notebook.shot("links-panel")
    leads_to_the_line(notebook, link)


def test_the_place_in_a_typed_report_opens_the_file_by_a_key(notebook: Notebook, tmp_path: Path) -> None:
    opened(notebook, tmp_path, "import train\ngradkit.diagnose(train.step, model=train.model)")
    link = notebook.page.frame_locator("iframe.gk-frame").locator('.gk-card [data-file][role="link"]:visible').first
    expect(link).to_be_visible()
    link.press("Enter")
    expect(notebook.page.locator("#jp-main-statusbar")).to_contain_text("Ln 9, Col 1")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_place_of_a_cell_leads_to_the_cell(notebook: Notebook, tmp_path: Path, language: str) -> None:
    far = "\n".join(["# far away"] * 60)
    opened(notebook, tmp_path, OWN, far, f"gradkit.language({language!r})\ngradkit.diagnose(loss, model=net)")
    link = notebook.page.frame_locator("iframe.gk-frame").locator('.gk-card [data-cell="2"][role="link"]:visible').first
    expect(link).to_contain_text("[2]:4")
    link.click()
    expect(notebook.page.locator(".jp-CodeCell").nth(1)).to_be_in_viewport()
    expect(notebook.page.locator(".jp-CodeCell").nth(1).locator(".cm-content")).to_be_focused()
