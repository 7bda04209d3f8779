"""The view of a drawing inside JupyterLab itself: through anywidget, with a kernel, beside the lab's own shortcuts."""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.browser.jupyter import REPO

CELL = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
from tests import pictures
from gradkit.widgets.graph_view import PictureView
view = PictureView(pictures.gpt(), view="map", language="en")
view
"""


@pytest.fixture
def opened(notebook, tmp_path):
    path = tmp_path / "picture.ipynb"
    cells = [nbformat.v4.new_code_cell(CELL.strip()), nbformat.v4.new_code_cell("'the last cell'")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    notebook.open(path)
    notebook.run_all()
    notebook.page.wait_for_selector(".gk-paper svg")
    notebook.page.wait_for_timeout(400)
    return notebook


@pytest.mark.parametrize("notebook", ["light", "dark"], indirect=True)
def test_it_draws_answers_and_leaves_a_still_picture_in_the_file(opened):
    page = opened.page
    page.locator("g.node.cut").click()
    assert "model.py:88" in page.locator(".gk-card").inner_text()
    opened.shot(f"graph-view-in-lab-{opened.theme}")

    # single letters are the drawing's: in the notebook, d d deletes the cell and b makes a new one
    for place in (".gk-stage", '[data-name="zoom_in"]'):
        page.locator(place).focus()
        for key in "ddb":
            page.keyboard.press(key)
        page.wait_for_timeout(150)
        assert page.locator(".jp-CodeCell").count() == 2
        assert page.locator(".gk-paper svg").count() == 1

    page.keyboard.press("Control+s")
    newest = max(opened.lab.folder.rglob("picture.ipynb"), key=lambda path: path.stat().st_mtime)
    saved = _wait_for_output(page, newest)
    assert {"application/vnd.jupyter.widget-view+json", "image/png", "image/svg+xml", "text/plain"} <= set(saved)


def test_unfolding_and_the_graph_come_from_the_kernel(opened):
    page = opened.page
    boxes = page.locator("g.node").count()
    page.locator("g.node.live", has_text="h.11").dblclick()
    page.wait_for_function(f"document.querySelectorAll('g.node').length > {boxes}")
    page.locator('[data-name="graph"]').click()
    page.wait_for_function("document.querySelectorAll('g.node').length > 300")


def _wait_for_output(page, path):
    for _ in range(50):
        cell = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
        data = [output["data"] for output in cell["outputs"] if "data" in output]
        if data:
            return data[0]
        page.wait_for_timeout(100)
    return {}
