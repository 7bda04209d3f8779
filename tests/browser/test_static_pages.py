"""A report where no widget runs: the HTML that nbconvert makes of a notebook, and a file of its own."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page

import gradkit
from gradkit.notebook.panel import Panel
from gradkit.report.report import Report
from gradkit.teaching.examples import from_builtin
from tests.browser.axe import faults

VIEW = "application/vnd.jupyter.widget-view+json"
PAPER = "() => getComputedStyle(document.querySelector('.gk .gk-paper')).backgroundColor"
SHADES = """() => [".gk", ".gk-verdict", ".gk-code"].map(name => {
    let shade = 255;
    const layers = [];
    for (let up = document.querySelector(name); up; up = up.parentElement) {
        layers.unshift(getComputedStyle(up).backgroundColor.match(/[\\d.]+/g).map(Number));
    }
    for (const [red, , , alpha] of layers) shade += ((red) - shade) * (alpha ?? 1);
    return Math.round(shade);
})"""


@pytest.fixture(scope="module")
def report() -> Report:
    return gradkit.diagnose(from_builtin("vision_memory_detached"))


def exported(bundle: dict[str, object], theme: str) -> str:
    """The page that nbconvert makes of a cell with this result, in a notebook that was saved without widget state."""
    output = nbformat.v4.new_output("execute_result", data=bundle, execution_count=1)
    cell = nbformat.v4.new_code_cell("report", outputs=[output], execution_count=1)
    page, _ = HTMLExporter(theme=theme, embed_images=True).from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    return page.replace("<script", "<!-- script").replace(
        "</script>", " -->"
    )  # MathJax and the like come from elsewhere


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_still_report_in_an_exported_notebook_has_its_picture_in_both_themes(
    page: Page, report: Report, theme: str
) -> None:
    page.set_content(exported({"text/html": report.html()}, theme))
    assert page.locator(".gk .gk-paper svg").is_visible()
    assert page.locator(".gk .gk-hit").first.inner_text() == ".detach()"
    assert page.evaluate(PAPER) == ("rgb(26, 26, 26)" if theme == "dark" else "rgb(255, 255, 255)")
    shades = page.evaluate(SHADES)
    assert max(shades) < 70 if theme == "dark" else min(shades) > 220
    assert faults(page, ".gk") == []


def test_nbconvert_shows_the_last_report_of_a_panel(page: Page, report: Report) -> None:
    panel = Panel(language="en")
    panel.form.source.names.value = "vision_memory_detached.title"
    panel.diagnose.click()
    panel.job.wait(60)
    bundle = panel._repr_mimebundle_()
    assert VIEW in bundle
    page.set_content(exported(bundle, "light"))
    assert page.frame_locator("iframe.gk-frame").locator(".gk-verdict").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_saved_file_follows_the_colours_of_the_system(
    page: Page, report: Report, scheme: str, language: str, tmp_path: Path
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_content(report.save(tmp_path / "report.html", language).read_text(encoding="utf-8"))
    page.locator(".gk-view .gk-paper svg").wait_for()
    shades = page.evaluate(SHADES)
    assert max(shades) < 70 if scheme == "dark" else min(shades) > 220
    assert faults(page, "html") == []


def test_a_printed_report_shows_the_whole_picture(page: Page, report: Report, tmp_path: Path) -> None:
    page.set_content(report.save(tmp_path / "report.html").read_text(encoding="utf-8"))
    page.locator(".gk-view .gk-paper svg").wait_for()
    page.emulate_media(media="print")
    assert page.locator(".gk-view").is_hidden()
    still = page.locator(".gkr-still:visible")
    assert still.count() == 1
    assert still.evaluate("still => still.scrollWidth <= still.clientWidth + 1")
