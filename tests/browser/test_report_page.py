"""A report as one page: from a file, and in a notebook that is alive, that is opened again, or exported."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, FrameLocator, Page, expect

import gradkit
from gradkit.core import i18n
from gradkit.report.report import Report
from tests.browser.axe import faults
from tests.browser.jupyter import REPO, Complaints, Lab, Notebook, wait_until_open

PROGRAM = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)) for _ in range(4))

    def forward(self, x):
        for at, layer in enumerate(self.layers):
            x = layer(x)
            if at == 1:
                x = x.detach()  # "</script><script>alert(1)</script>
        return x

model = nn.ModuleDict({"encoder": Encoder(), "head": nn.Linear(16, 1)})
step = lambda: model["head"](model["encoder"](torch.ones(4, 16))).sum()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    named: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, str(path), "exec"), named)  # the lines of a report are read from the file
    return gradkit.diagnose(named["step"], model=named["model"])


@pytest.fixture(scope="module")
def saved(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    return report.save(tmp_path_factory.mktemp("saved") / "report.html", "en").as_uri()


def drawn(page: Page | FrameLocator) -> None:
    page.locator(".gk-paper svg").wait_for()


def inside(page: Page | FrameLocator, inner: str, outer: str) -> bool:
    a, b = (page.locator(one).first.bounding_box() for one in (inner, outer))
    assert a is not None
    assert b is not None
    return bool(
        a["x"] >= b["x"] - 1
        and a["y"] >= b["y"] - 1
        and a["x"] + a["width"] <= b["x"] + b["width"] + 1
        and a["y"] + a["height"] <= b["y"] + b["height"] + 1
    )


# -- a file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1440, 1024, 768])
def test_the_first_view_has_the_cut_in_sight_at_every_width(page: Page, saved: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(saved)
    drawn(page)
    page.wait_for_timeout(300)
    assert inside(page, "g.node.cut", ".gk-stage")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh", "dark")])
def test_language_and_colours_are_chosen_on_the_page(page: Page, saved: str, language: str, scheme: str) -> None:
    page.goto(saved)
    drawn(page)
    page.locator(f"#gkr-{language}").check(force=True)
    page.locator(f"#gkr-{scheme}").check(force=True)
    page.locator("g.node.cut", has_text={"en": "the gradient is cut here", "zh": "梯度在此处切断"}[language]).wait_for()
    assert page.locator(".gk-verdict:visible").count() == 1
    assert page.locator('[data-name="cut"]').inner_text() == i18n.words("viewer.cut", language)
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (shade < 60) == (scheme == "dark")
    assert page.evaluate("document.documentElement.lang") == ("zh-CN" if language == "zh" else "en")
    page.locator(".gkr-guide:visible summary").first.click()
    assert faults(page, "html") == []


def test_unfolding_paths_cards_search_and_files_work_without_a_kernel(page: Page, saved: str) -> None:
    page.goto(saved)
    drawn(page)
    page.locator(".gkr-look:visible").click()
    assert "detach" in page.locator("aside.gk-card h3").inner_text()
    folded = page.locator("g.node").count()
    page.locator("g.node.starved", has_text="encoder").first.dblclick()
    expect(page.locator("g.node")).not_to_have_count(folded)
    assert page.locator("g.node").count() > folded
    page.locator('[data-name="fold"]').click()
    expect(page.locator("g.node")).to_have_count(folded)
    page.locator(".gk-search").fill("head.weight")
    page.locator(".gk-search").press("Enter")
    page.locator(".gk-path").click()
    assert page.locator(".gk-foot").inner_text().startswith("The gradient comes from the loss to head")
    for view in ("graph", "torchviz", "map"):
        page.locator(f'[data-name="{view}"]').click()
        page.wait_for_timeout(250)
        assert page.locator("g.node.cut").count() == 1
    with page.expect_download() as loading:
        page.locator('[data-name="save_png"]').click()
    assert Path(loading.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_string_of_the_user_ends_no_script(page: Page, saved: str) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(saved)
    drawn(page)
    assert "</script><script>alert(1)</script>" in page.locator(".gk-code").first.inner_text()


def test_a_page_without_scripts_shows_all_words_and_the_still_picture_whole(chromium: Browser, saved: str) -> None:
    with chromium.new_context(java_script_enabled=False, viewport={"width": 1024, "height": 800}) as context:
        page = context.new_page()
        page.goto(saved)
        still = page.locator(".gkr-still:visible img")
        assert inside(page, ".gkr-still:visible img", ".gkr-still:visible")
        assert still.count() == 1
        page.locator("#gkr-zh").check(force=True)
        assert page.locator(".gk-verdict:visible").inner_text().startswith("✗ 反向传播")
        assert page.locator(".gkr-guide:visible").count() == 1


# -- a notebook --------------------------------------------------------------------------------------------------------

CELL = f"import sys\nsys.path.insert(0, {str(REPO)!r})\nimport gradkit\n{PROGRAM}\n"
DIAGNOSED = CELL + "gradkit.language('en')\ngradkit.diagnose(step, model=model)"
PANEL = CELL + "panel = gradkit.panel(step=step, model=model, language='en')\npanel"


def written(folder: Path, *cells: str) -> Path:
    path = folder / "report.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)], metadata=kernel), path)
    return path


def save(notebook: Notebook) -> Path:
    """Save by the keyboard; the file, once it has outputs."""
    page = notebook.page
    page.locator(".jp-InputPrompt").first.click()
    page.keyboard.press("Control+s")
    newest = max(notebook.lab.folder.rglob("report.ipynb"), key=lambda path: path.stat().st_mtime)
    for _ in range(100):
        page.wait_for_timeout(100)
        with contextlib.suppress(ValueError):  # it is being written
            if any(cell.get("outputs") for cell in json.loads(newest.read_text(encoding="utf-8"))["cells"]):
                return newest
    return pytest.fail("the notebook was not saved")


def open_again(notebook: Notebook, path: Path) -> None:
    """Open a saved notebook later: what ran in it is gone."""
    notebook.lab.end_kernels()
    place = path.relative_to(notebook.lab.folder).as_posix()
    url = f"{notebook.lab.url}/lab/workspaces/again{path.parent.name}/tree/{place}"
    notebook.page.goto(f"{url}?token={notebook.lab.token}")
    wait_until_open(notebook.page)


@pytest.mark.parametrize("notebook", ["light", "dark"], indirect=True)
def test_a_typed_diagnosis_is_alive_and_stays_so_when_its_notebook_is_opened_again(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.open(written(tmp_path, DIAGNOSED)).run_all()
    frame = notebook.page.frame_locator("iframe.gk-frame")
    drawn(frame)
    notebook.page.wait_for_timeout(500)
    assert notebook.page.locator(".gk-in-place").is_hidden()
    whole = notebook.page.locator("iframe.gk-frame").bounding_box()
    body = frame.locator("body").bounding_box()
    assert whole is not None
    assert body is not None
    assert abs(whole["height"] - body["height"]) < 4
    shade = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor.match(/\\d+/g)[0]")
    assert (int(shade) < 60) == (notebook.theme == "dark")
    notebook.shot(f"report-in-lab-{notebook.theme}")
    open_again(notebook, save(notebook))
    frame = notebook.page.frame_locator("iframe.gk-frame")
    drawn(frame)
    frame.locator("#gkr-zh").check(force=True)
    frame.locator('[data-name="graph"]').click()
    frame.locator("g.node", has_text="AddmmBackward0").first.wait_for()
    notebook.shot(f"report-again-{notebook.theme}")


def test_a_notebook_that_is_not_trusted_shows_words_and_the_bitmap(
    notebook: Notebook, tmp_path: Path, report: Report
) -> None:
    path = written(tmp_path, "report")
    book = nbformat.read(path, as_version=4)
    data = {"text/html": report.cell("en"), "text/plain": report.text("en")}
    book.cells[0].outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    nbformat.write(book, path)
    notebook.open(path)
    image = notebook.page.locator('.jp-OutputArea img[src^="data:image/png"]')
    image.wait_for()
    assert image.evaluate("image => image.naturalWidth") > 100
    assert notebook.page.locator("iframe.gk-frame").count() == 0
    assert report.verdict("en") in notebook.page.locator(".jp-OutputArea").inner_text()


def test_a_panel_leaves_its_last_report_in_its_cell(chromium: Browser, lab: Lab, tmp_path: Path) -> None:
    complaints = Complaints()
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        notebook = Notebook(context.new_page(), lab)
        complaints.watch(notebook.page)
        page = notebook.page
        notebook.open(written(tmp_path, PANEL)).run_all()
        page.locator("button.gkp-diagnose:visible").click()
        page.locator(".gkp-verdict").wait_for()
        page.wait_for_timeout(1500)
        assert page.locator(".gk-kept").is_hidden()
        path = save(notebook)
        assert complaints.errors == []
        open_again(notebook, path)
        drawn(page.frame_locator("iframe.gk-frame"))
        assert page.get_by_text("Error displaying widget").is_hidden()
        notebook.shot("panel-again")
    assert complaints.outside == []
    assert all("widget model not found" in error for error in complaints.errors)  # the widgets' own manager says so
    lab.end_kernels()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nbconvert_takes_the_page_over(page: Page, report: Report, theme: str, tmp_path: Path) -> None:
    output = nbformat.v4.new_output("execute_result", data=report._repr_mimebundle_(), execution_count=1)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("report", outputs=[output])])
    html, _ = HTMLExporter(theme=theme).from_notebook_node(book)
    path = tmp_path / "exported.html"
    path.write_text(re.sub(r'<script[^>]* src="https:.*?</script>', "", html, flags=re.DOTALL), encoding="utf-8")
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe.gk-frame")
    drawn(frame)
    page.wait_for_timeout(300)
    assert page.locator(".gk-in-place").is_hidden()
    shade = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor.match(/\\d+/g)[0]")
    assert (int(shade) < 60) == (theme == "dark")
