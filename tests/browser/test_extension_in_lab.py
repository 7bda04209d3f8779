"""``%load_ext gradkit`` in JupyterLab: the report beneath a failed cell, and the panel that its button opens."""

from __future__ import annotations

import nbformat
import pytest

from tests.browser.jupyter import REPO

LOAD = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
import gradkit
gradkit.language("LANGUAGE")
%load_ext gradkit
"""
SETUP = """
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(8, 16), nn.Linear(16, 1)
model = nn.Sequential(encoder, nn.ReLU(), head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 8), torch.randn(32, 1)
"""
SILENT = """
%%gradkit
for epoch in range(20):
    optimizer.zero_grad()
    features = encoder(x).relu().detach()
    loss = (head(features) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
LOSS = """
with torch.no_grad():
    out = model(x)
loss = (out - y).pow(2).mean()
"""
BACKWARD = "loss.backward()\noptimizer.step()"


@pytest.fixture
def opened(notebook, tmp_path, request):
    language = request.param
    path = tmp_path / "training.ipynb"
    texts = [LOAD.replace("LANGUAGE", language), SETUP, SILENT, LOSS, BACKWARD]
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in texts]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    notebook.open(path)
    return notebook, language


CASES = pytest.mark.parametrize(
    ("notebook", "opened"), [("light", "en"), ("dark", "zh"), ("dark", "en"), ("light", "zh")], indirect=True
)


@CASES
def test_a_report_stands_beneath_the_cell_and_a_button_opens_the_panel(opened):
    notebook, language = opened
    page = notebook.page
    notebook.run_all()
    reports = page.locator(".jp-OutputArea .gkr")
    print(page.locator(".jp-Notebook").inner_text())
    page.wait_for_timeout(3000)
    for at, cell in enumerate(page.locator(".jp-CodeCell").all()):
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        notebook.shot(f"extension-{at}-{language}-{notebook.theme}")
