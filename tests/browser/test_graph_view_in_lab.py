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
from gradkit.notebook.graph_view import PictureView
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
    page.locator("g.node", has_text="AddmmBackward0").first.wait_for()
    page.locator("g.node", has_text="more nodes").first.dispatch_event("pointerdown", {"button": 0})
    page.locator("g.node", has_text="more nodes").first.dispatch_event("pointerup", {"button": 0})
    boxes = page.locator("g.node").count()
    page.locator(".gk-unfold").click()
    page.wait_for_function(f"document.querySelectorAll('g.node').length > {boxes}")


def test_path_and_search_work_by_keys_alone_and_leave_the_notebook_be(opened):
    page = opened.page
    page.locator(".gk-search").focus()
    page.keyboard.type("h.2.mlp")
    page.keyboard.press("Enter")
    page.locator(".gk-stage").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.classList.contains('gk-path')")
    page.keyboard.press("Enter")
    said = page.locator(".gk-foot").inner_text()
    assert said.startswith("The path of transformer.h.0")
    assert said.endswith("ends at the cut at model.py:88.")
    opened.shot(f"path-in-lab-{opened.theme}")
    page.locator(".gk-stage").focus()
    for key in ("n", "p", "d", "d", "x", "Escape"):
        page.keyboard.press(key)
    assert page.locator(".gk-foot").is_hidden()
    assert page.locator(".jp-CodeCell").count() == 2
    with page.expect_download() as loading:
        page.locator('[data-name="save_png"]').focus()
        page.keyboard.press("Enter")
    assert loading.value.suggested_filename.endswith("-map.png")


def test_a_wheel_over_the_picture_scrolls_the_notebook(opened):
    page = opened.page
    page.set_viewport_size({"width": 1100, "height": 420})
    page.wait_for_timeout(400)
    inside = ".gk-view"
    before = page.locator(inside).bounding_box()["y"]
    box = page.locator(".gk-stage").bounding_box()
    page.mouse.move(box["x"] + 120, min(box["y"] + 60, 380))
    page.mouse.wheel(0, 160)
    page.wait_for_timeout(400)
    assert page.locator(inside).bounding_box()["y"] < before - 40


TORN = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
import torch
import gradkit
from torch import nn
from gradkit.notebook.graph_view import PictureView
model = nn.ModuleDict({{"encoder": nn.Linear(8, 16), "head": nn.Linear(16, 1)}})
report = gradkit.diagnose(lambda: model["head"](model["encoder"](torch.ones(4, 8)).detach()).sum(), model=model)
PictureView(report.picture, autograd=report.autograd, view="map", language="LANGUAGE")
"""


@pytest.mark.parametrize(("notebook", "language"), [("light", "en"), ("dark", "zh")], indirect=["notebook"])
def test_torchviz_draws_the_third_view_in_the_kernel(notebook, tmp_path, language):
    path = tmp_path / "torchviz.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(TORN.replace("LANGUAGE", language).strip())]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    notebook.open(path)
    notebook.run_all()
    page = notebook.page
    page.locator('[data-name="torchviz"]').click()
    page.locator("g.node", has_text="AccumulateGrad").first.wait_for()
    page.locator("g.node.cut").click()
    assert "detach" in page.locator(".gk-card mark").inner_text()
    page.wait_for_timeout(400)
    notebook.shot(f"torchviz-in-lab-{language}-{notebook.theme}")


def _wait_for_output(page, path):
    for _ in range(100):
        page.wait_for_timeout(100)
        text = path.read_text(encoding="utf-8")
        if not text:  # it is being written
            continue
        cell = json.loads(text)["cells"][0]
        data = [output["data"] for output in cell["outputs"] if "data" in output]
        if data:
            return data[0]
    return {}
