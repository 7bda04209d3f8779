"""``%load_ext gradkit`` in JupyterLab: the report beneath a failed cell, and the panel that its button opens."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

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


OPEN = {"en": "Open this in the panel", "zh": "在面板中打开"}
CASES = pytest.mark.parametrize(
    ("notebook", "opened"), [("light", "en"), ("dark", "zh"), ("dark", "en"), ("light", "zh")], indirect=True
)


@CASES
def test_a_report_stands_beneath_the_cell_and_a_button_opens_the_panel_on_it(opened):
    notebook, language = opened
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 5000})
    notebook.run_all()
    silent, failed = page.locator(".jp-CodeCell").nth(2), page.locator(".jp-CodeCell").nth(4)
    expect(silent.locator(".gk-hit").first).to_have_text(".detach()")
    expect(failed.locator(".gk-hit").first).to_have_text(".no_grad()")
    button = failed.get_by_role("button", name=OPEN[language])
    assert button.evaluate("one => one.scrollWidth <= one.clientWidth"), "the words of the button do not fit into it"
    notebook.shot(f"extension-{language}-{notebook.theme}")

    button.click()
    panel = failed.locator(".gkp")
    expect(panel.locator(".gkp-verdict")).to_contain_text("no_grad_block")
    expect(panel.locator(".gkp-summary")).to_contain_text("[5]")
    expect(panel.locator(".gkp-diagnose:visible")).to_have_count(0)
    panel.locator(".gk-paper svg, .gk-stage svg").first.wait_for()
    notebook.shot(f"extension-panel-{language}-{notebook.theme}")

    panel.locator(".gkp-finding .gkp-accent").first.click()
    panel.locator(".gkp-step").last.click()
    expect(panel.locator(".gkp-guide .gkp-note:visible")).to_have_count(1)
    expect(panel.locator(".gkp-guide-again:visible")).to_have_count(0)
    panel.locator(".gkp-change").click()
    expect(panel.locator(".gkp-diagnose:visible")).to_have_count(1)
    expect(panel.locator(".gkp-verdict")).to_be_visible()
    notebook.shot(f"extension-form-{language}-{notebook.theme}")
