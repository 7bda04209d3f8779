"""The panel's work and the notebook's cells take turns, in a real JupyterLab."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import Notebook
from tests.browser.test_start_notebook import click, settle

SLOW = """import time, torch
from torch import nn
import gradkit

model, seconds = nn.Linear(2, 1), 8


def step():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)
    return model(torch.rand(3, 2)).sum()


gradkit.panel(model=model, step=step)"""


def opened(notebook: Notebook, folder: Path, *cells: str) -> tuple[Locator, Locator]:
    """A notebook with a panel on a slow step and the cells after it; the panel, and the cells."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (SLOW, *cells)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "turns.ipynb")
    notebook.open(folder / "turns.ipynb")
    shown = notebook.page.locator(".jp-CodeCell")
    run(shown.nth(0))
    panel = notebook.page.locator(".gkp")
    expect(panel.get_by_role("button", name="Diagnose", exact=True)).to_be_visible(timeout=60_000)
    return panel, shown


def run(cell: Locator) -> None:
    """By the keyboard: the panel moves what is below it as it grows, so a click may hit another cell.

    A panel that grows at that moment may take the focus: the cell then shows no sign of a run, and is asked again.
    """
    for _ in range(3):
        cell.locator(".cm-content").press("Shift+Enter")
        try:
            expect(cell.locator(".jp-InputPrompt")).not_to_have_text(re.compile(r"^\s*\[ \]:?\s*$"), timeout=5_000)
        except AssertionError:
            continue
        return


def test_a_cell_waits_for_the_panel_and_says_so(notebook: Notebook, tmp_path: Path) -> None:
    panel, cells = opened(notebook, tmp_path, "print('ran', model.weight.grad)")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-stages .gkp-current")).to_have_text("Run the step")
    run(cells.nth(1))
    expect(cells.nth(1).locator(".jp-OutputArea-output")).to_contain_text("This cell waits until gradkit's diagnosis")
    expect(panel).to_contain_text("a cell waits until this has ended")
    settle(panel)
    notebook.shot("cell-waits")
    expect(cells.nth(1).locator(".jp-OutputArea-output")).to_have_text(re.compile("^ran None\\s*$"), timeout=60_000)
    settle(panel)
    notebook.shot("cell-ran")


def test_the_interrupt_button_stops_the_diagnosis_that_a_cell_waits_for(notebook: Notebook, tmp_path: Path) -> None:
    panel, cells = opened(notebook, tmp_path, "print('ran')")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-stages .gkp-current")).to_have_text("Run the step")
    run(cells.nth(1))
    expect(cells.nth(1).locator(".jp-OutputArea-output")).to_contain_text("This cell waits")
    notebook.page.locator("[data-command='notebook:interrupt-kernel']").first.click()
    expect(cells.nth(1).locator(".jp-OutputArea-output")).to_contain_text("The diagnosis was stopped")
    expect(panel).to_contain_text("Cancelled")
    settle(panel)
    notebook.shot("cell-interrupted")


def test_a_click_while_a_cell_runs_waits_for_the_cell(notebook: Notebook, tmp_path: Path) -> None:
    long = "for second in range(6):\n    time.sleep(1)\nprint('done')"
    panel, cells = opened(notebook, tmp_path, long, "seconds = 0")
    run(cells.nth(2))
    run(cells.nth(1))
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-stages .gkp-current, .gkp-verdict").first).to_be_visible(timeout=60_000)
    notebook.shot("click-while-cell-runs")
    expect(panel.locator(".gkp-verdict")).to_be_visible(timeout=60_000)
    expect(cells.nth(1).locator(".jp-OutputArea-output")).to_contain_text("done")
