"""The notebooks run from top to bottom and show what their texts promise, in the language of their folder."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["en", "zh"])
def ran(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    """The start notebook of a language after it has run in its own folder."""
    path = REPO / "notebooks" / request.param / "start.ipynb"
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(path.parent))
    book.metadata["language"] = request.param
    return book


def _outputs(book: nbformat.NotebookNode, kind: str) -> list[str]:
    """What the cells display, as one kind of MIME bundle."""
    displayed = [output for cell in book.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in displayed if "data" in output and kind in output.data]


@pytest.mark.slow
def test_the_start_notebook_runs_and_prints_nothing_but_what_it_displays(ran: nbformat.NotebookNode) -> None:
    shown = [output for cell in ran.cells for output in cell.get("outputs", ())]
    others = [output for output in shown if output.output_type != "execute_result"]
    assert all("gk-kept" in output.data["text/html"] for output in others)  # what the panel leaves in its cell


@pytest.mark.slow
def test_the_start_notebook_opens_with_the_panel(ran: nbformat.NotebookNode) -> None:
    first = next(cell for cell in ran.cells if cell.cell_type == "code")
    assert any("application/vnd.jupyter.widget-view+json" in output.data for output in first.outputs)


@pytest.mark.slow
def test_typed_diagnoses_display_themselves_and_name_the_line(ran: nbformat.NotebookNode) -> None:
    reports = [text for text in _outputs(ran, "text/html") if "gk-verdict" in text]
    assert len(reports) == 2
    assert "attempts.py:59" in reports[0]
    assert "self.encoder(x)" in reports[1]
    assert all("<iframe" in report and "data:image/png" in report for report in reports)


@pytest.mark.slow
def test_a_notebook_speaks_its_language_by_itself(ran: nbformat.NotebookNode) -> None:
    verdict = {"en": "detach", "zh": "切断"}[ran.metadata["language"]]
    assert verdict in _outputs(ran, "text/html")[-1]


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


@pytest.mark.slow
@pytest.mark.parametrize(("language", "verdict"), [("en", "**it depends**"), ("zh", "**视情况而定**")])
def test_the_notebook_of_myths_runs_and_every_verdict_holds(language: str, verdict: str) -> None:
    path = REPO / "notebooks" / language / "myths.ipynb"
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(path.parent))
    assert _outputs(book, "text/plain")[-1] == "[]"
    assert verdict in _outputs(book, "text/markdown")[-1]
    assert {output.output_type for cell in book.cells for output in cell.get("outputs", ())} == {"execute_result"}
