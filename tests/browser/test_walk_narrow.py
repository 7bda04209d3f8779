"""The panel in Chinese, on a dark page of 1,024 pixels: a program of one's own, to the mended file."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import REPO, Notebook
from tests.browser.test_start_notebook import check_looks, click, entry, settle
from tests.live.test_aside import TRAIN

START = f"import sys; sys.path.insert(0, {str(REPO)!r}); import gradkit\ngradkit.language('zh')\ngradkit.panel()"


@pytest.fixture
def panel(notebook: Notebook, tmp_path: Path) -> Locator:
    """The panel, beside a train.py that takes arguments."""
    (tmp_path / "train.py").write_text(TRAIN.format(cut=".detach()"), encoding="utf-8")
    (tmp_path / "out").mkdir()
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(START)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, tmp_path / "narrow.ipynb")
    notebook.page.set_viewport_size({"width": 1024, "height": 768})
    notebook.open(tmp_path / "narrow.ipynb", "train.py")
    notebook.run_all()
    return notebook.page.locator(".gkp")


@pytest.mark.parametrize("notebook", ["dark"], indirect=True)
def test_every_page_of_the_panel_fits(notebook: Notebook, panel: Locator) -> None:
    def shot(stage: str) -> None:
        settle(panel)
        check_looks(panel, "dark")
        notebook.shot(f"narrow-{stage}")

    click(panel, "我的文件")
    entry(panel, "命令行参数").fill("--epochs 1000 --out .")
    shot("1-form")
    click(panel, "开始诊断")
    expect(panel.locator(".gkp-verdict")).to_be_visible(timeout=180_000)
    expect(panel.locator(".gk-stage g.node").first).to_be_visible()
    shot("2-verdict")
    click(panel, "在图中查看")
    expect(panel.locator(".gk-view .gk-card .gk-place")).to_be_visible()
    shot("3-picture")
    click(panel, "参数")
    shot("4-parameters")
    click(panel, "按模块统计")
    expect(panel.locator(".gkp-modules .gkp-is-starved").first).to_be_in_viewport(ratio=1)
    settle(panel)
    notebook.shot("narrow-5-by-module")
    click(panel, "逐个列出")
    click(panel, "带我一步步修复")
    for number in range(6):
        if number in (0, 3):
            shot(f"6-guide-{number + 1}")
        if number < 5:
            click(panel, "下一步")
    panel.locator(".gkp-step").nth(3).click()
    panel.locator(".gkp-write").click()
    expect(panel.locator(".gkp-undo")).to_be_visible()
    shot("7-written")
    panel.locator(".gkp-change-again").click()
    expect(panel.locator(".gkp-verdict.gkp-good")).to_be_visible(timeout=180_000)
    shot("8-compare")
    click(panel, "图")
    expect(panel.locator(".gk-stage g.node").first).to_be_visible()
    shot("9-fixed")
