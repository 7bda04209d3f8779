"""The notebooks run from top to bottom, say what they say in two languages, and carry no outputs in git."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

REPO = Path(__file__).parents[1]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
CJK = re.compile(r"[\u4e00-\u9fff]")


def _named(path: Path) -> str:
    return path.stem


def test_there_is_a_start_notebook() -> None:
    assert "start" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_named)
def test_a_notebook_carries_no_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert "widgets" not in book.metadata


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_named)
def test_a_notebook_speaks_both_languages(path: Path) -> None:
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert texts
    assert [text for text in texts if not CJK.search(text) or not re.search(r"[a-z]+ [a-z]+ [a-z]+", text)] == []


@pytest.fixture(scope="module")
def ran() -> nbformat.NotebookNode:
    """The start notebook after it has run."""
    book = nbformat.read(REPO / "notebooks" / "start.ipynb", as_version=4)
    client = nbclient.NotebookClient(book, timeout=120, store_widget_state=False)
    client.execute(cwd=str(REPO / "notebooks"))
    return book


def _outputs(book: nbformat.NotebookNode, kind: str) -> list[str]:
    """What the cells display, as one kind of MIME bundle."""
    displayed = [output for cell in book.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in displayed if "data" in output and kind in output.data]


@pytest.mark.slow
def test_the_start_notebook_runs_and_prints_nothing_but_what_it_displays(ran: nbformat.NotebookNode) -> None:
    kinds = {output.output_type for cell in ran.cells for output in cell.get("outputs", ())}
    assert kinds == {"execute_result"}


@pytest.mark.slow
def test_the_start_notebook_opens_with_the_panel(ran: nbformat.NotebookNode) -> None:
    first = next(cell for cell in ran.cells if cell.cell_type == "code")
    assert "application/vnd.jupyter.widget-view+json" in first.outputs[0].data


@pytest.mark.slow
def test_typed_diagnoses_display_themselves_and_name_the_line(ran: nbformat.NotebookNode) -> None:
    reports = [text for text in _outputs(ran, "text/html") if "gk-verdict" in text]
    assert len(reports) == 2
    assert "vision_memory.py:63" in reports[0]
    assert "self.encoder(x)" in reports[1]
    assert all("<svg" in report for report in reports)


FREEZE = """
from torch import nn

net = nn.Linear(2, 1)
net.requires_grad_(False)
"""
ASK = """
import torch
import gradkit

panel = gradkit.panel(net, torch.ones(3, 2), loss=lambda output, batch: output.sum())
panel.diagnose.click()
panel.job.wait(60)
found = panel.report.findings[0]
found.cause, found.location.text
"""


@pytest.mark.slow
def test_the_panel_finds_a_line_in_another_cell() -> None:
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in (FREEZE, ASK)]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(REPO))
    assert _outputs(book, "text/plain")[-1:] == ["('frozen_all', 'net.requires_grad_(False)')"]


TYPED = """
import torch
import gradkit

found = gradkit.diagnose(net, torch.ones(3, 2), loss=lambda output, batch: output.sum()).findings[0]
found.cause, found.location and found.location.text
"""


@pytest.mark.slow
def test_a_typed_diagnosis_finds_a_line_in_another_cell_too() -> None:
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in (FREEZE, TYPED)]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(REPO))
    assert _outputs(book, "text/plain")[-1:] == ["('frozen_all', 'net.requires_grad_(False)')"]
