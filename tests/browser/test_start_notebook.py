"""The start notebook in a real JupyterLab: from load to guide by clicks alone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import Notebook

expect.set_options(timeout=60_000)  # the first example imports transformers, perhaps beside other work

CJK = re.compile(r"[\u4e00-\u9fff]")
PROSE = re.compile(r"\b[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}\b")

LINE = {
    "Resume a LoRA run: the adapter comes back frozen": "PeftModel.from_pretrained(model, adapter)",
    "Vision memory: the projection never runs": "nn.Sequential(",
    "Vision memory: a helper detaches the projection": ".detach()",
}
WORDS = """panel => {
    const seen = element => element.checkVisibility({ visibilityProperty: true });
    const code = "pre, code, style, svg, .gkp-live, .gk-quiet, .gkp-folder";
    const found = [];
    for (const element of panel.querySelectorAll("*")) {
        if (!seen(element) || element.closest(code)) continue;
        const own = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent.trim());
        found.push(own.join(" "), element.title ?? "", element.ariaLabel ?? "", element.placeholder ?? "");
    }
    return found.filter(text => text);
}"""
BRIGHT = """panel => [...panel.querySelectorAll("*")].filter(element => {
    if (!element.checkVisibility() || element.closest(".gk-stage")) return false;
    const parts = getComputedStyle(element).backgroundColor.match(/[\\d.]+/g).map(Number);
    return (parts[3] ?? 1) > 0.5 && Math.min(...parts.slice(0, 3)) > 200 && element.clientHeight > 8;
}).map(element => element.className)"""
WIDER = """panel => [panel, ...panel.querySelectorAll("*")].filter(element =>
    element.checkVisibility() && element.scrollWidth > element.clientWidth + 1 && element.clientWidth
    && !["visible", "clip"].includes(getComputedStyle(element).overflowX)
    && !element.closest("pre, .gk-view, .gkp-live")
).map(element => element.className)"""


@pytest.fixture
def panel(notebook: Notebook) -> Locator:
    """The panel of the start notebook, its cell run by a click."""
    notebook.open("notebooks/en/start.ipynb")
    return run_panel(notebook.page)


def run_panel(page: Page) -> Locator:
    page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    page.locator("[data-command='notebook:run-cell-and-select-next']").first.click()
    shown = page.locator(".gkp")
    expect(shown.get_by_role("button", name="Diagnose", exact=True)).to_be_visible(timeout=60_000)
    return shown


def click(panel: Locator, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).filter(visible=True).first.click()


def entry(panel: Locator, name: str) -> Locator:
    return panel.get_by_label(name, exact=True).filter(visible=True)


def diagnose(panel: Locator, example: str) -> None:
    click(panel, example)
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-verdict")).to_be_visible(timeout=60_000)
    expect(panel.locator(".gk-stage g.node").first).to_be_visible()


def settle(panel: Locator) -> None:
    """Wait until nothing moves any more, so that a picture of the page is of what a person sees."""
    panel.page.wait_for_timeout(400)


def check_looks(panel: Locator, theme: str) -> None:
    assert panel.evaluate(WIDER) == []
    if theme == "dark":
        assert panel.evaluate(BRIGHT) == []


WALKS = [
    ("light", "Resume a LoRA run: the adapter comes back frozen"),
    ("dark", "Resume a LoRA run: the adapter comes back frozen"),
    ("dark", "Vision memory: the projection never runs"),
    ("light", "Vision memory: a helper detaches the projection"),
]


@pytest.mark.parametrize(("notebook", "example"), WALKS, indirect=["notebook"])
def test_from_load_to_the_last_step_of_the_guide_by_clicks_alone(
    notebook: Notebook, panel: Locator, example: str
) -> None:
    name = f"{notebook.theme}-{'-'.join(re.findall('[a-z]+', example.lower())[:5])}"

    def shot(stage: str) -> None:
        settle(panel)
        check_looks(panel, notebook.theme)
        notebook.shot(f"{name}-{stage}")

    shot("1-form")
    click(panel, example)
    click(panel, "Load only")
    expect(panel.locator(".gkp-loaded")).to_contain_text("parameters")
    shot("2-loaded")
    diagnose(panel, example)
    expect(panel.locator(".gkp-finding .gk-hit").first).to_have_text(LINE[example])
    shot("3-verdict")

    click(panel, "Show in the picture")
    expect(panel.locator(".gk-view .gk-card .gk-place")).to_be_visible()
    shot("4-picture")
    click(panel, "Show all")
    panel.locator(".gk-stage g.node.starved").first.click()
    expect(panel.locator(".gk-view .gk-card")).to_contain_text("should train, no gradient")

    click(panel, "Parameters")
    expect(panel.locator(".gkp-is-starved, .gkp-is-unused").first).to_be_visible()
    panel.get_by_label("State", exact=True).select_option("without gradient")
    shot("5-parameters")
    click(panel, "By module")
    expect(panel.locator(".gkp-modules .gkp-is-starved").first).to_be_visible()
    shot("5-by-module")

    click(panel, "Walk me through the fix")
    steps = panel.locator(".gkp-step")
    for number in range(5):
        expect(steps.nth(number)).to_have_attribute("aria-current", "step")
        if number in (0, 3):
            shot(f"6-guide-{number + 1}")
        click(panel, "Next")
    expect(steps.nth(5)).to_have_attribute("aria-current", "step")
    expect(panel.locator(".gkp-guide-again")).to_be_visible()

    click(panel, "中文")
    for tab in ("指南", "参数", "图"):
        click(panel, tab)
        if tab == "图":
            expect(panel.locator(".gk-stage")).to_contain_text(re.compile("[梯损]"))
        shot(f"7-zh-{tab}")
        assert [text for text in panel.evaluate(WORDS) if PROSE.search(text) and not CJK.search(text)] == []


def test_the_whole_notebook_runs_and_its_typed_results_display_themselves(notebook: Notebook) -> None:
    notebook.open("notebooks/en/start.ipynb").run_all()
    page = notebook.page
    expect(page.locator(".gkp")).to_be_visible()
    typed = page.locator(".jp-RenderedHTML iframe.gk-frame")
    expect(typed).to_have_count(2)
    expect(page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)
    typed.first.scroll_into_view_if_needed()
    settle(page.locator(".gkp"))
    notebook.shot("typed")


def test_a_file_of_ones_own_is_diagnosed_mended_and_diagnosed_again(notebook: Notebook) -> None:
    notebook.open("notebooks/en/start.ipynb")
    folder = max(notebook.lab.folder.iterdir(), key=lambda path: path.stat().st_mtime)
    program = (
        "import torch\nfrom torch import nn\n\nmodel = nn.Linear(2, 1)\n\n\ndef step():\n"
        "    return model(torch.ones(3, 2)).detach().sum()\n"
    )
    (folder / "train.py").write_text(program, encoding="utf-8")
    panel = run_panel(notebook.page)
    click(panel, "My file")
    click(panel, "One step function")
    entry(panel, "Step").fill("train.py:stop")
    click(panel, "Diagnose")
    expect(panel.get_by_role("alert")).to_contain_text("train.py has no stop. It holds: step")
    settle(panel)
    notebook.shot("error")
    entry(panel, "Step").fill("train.py:step")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-verdict")).to_contain_text("train.py:8 (detach)")
    (folder / "train.py").write_text(program.replace(".detach()", ""), encoding="utf-8")
    click(panel, "Diagnose again")
    expect(panel.locator(".gkp-verdict")).to_contain_text("Healthy")
    settle(panel)
    notebook.shot("healthy")
    click(panel, "Change model or batch")
    expect(entry(panel, "Step")).to_have_value("train.py:step")


TRAIN = """import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():
            features = self.encoder(x)
        return self.head(features)


model = Reader()


def step():
    return model(torch.ones(3, 16)).square().mean()
"""


@pytest.mark.parametrize("notebook", ["light", "dark"], indirect=True)
def test_the_fix_is_written_into_ones_own_file_and_compared_with_before(notebook: Notebook) -> None:
    theme = notebook.theme
    notebook.open("notebooks/en/start.ipynb")
    file = max(notebook.lab.folder.iterdir(), key=lambda path: path.stat().st_mtime) / "mine.py"
    file.write_text(TRAIN, encoding="utf-8")
    panel = run_panel(notebook.page)
    click(panel, "My file")
    click(panel, "One step function")
    entry(panel, "Step").fill("mine.py:step")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-verdict")).to_contain_text("no_grad_block")
    click(panel, "Walk me through the fix")
    for name in ("Next", "Next"):
        click(panel, name)
    expect(panel.locator(".gkp-own")).to_contain_text("with torch.no_grad():")
    settle(panel)
    notebook.shot(f"own-line-{theme}")
    click(panel, "Next")
    expect(panel.locator(".gkp-own-change")).to_contain_text("- with torch.no_grad():")
    settle(panel)
    check_looks(panel, theme)
    notebook.shot(f"own-change-{theme}")
    click(panel, "Write it into mine.py")
    expect(panel.locator(".gkp-own-change")).to_contain_text("mine.py.before-gradkit")
    assert "no_grad" not in file.read_text(encoding="utf-8")
    click(panel, "Diagnose again")
    expect(panel.locator(".gkp-compare")).to_contain_text("no longer found: no_grad_block", timeout=60_000)
    expect(panel.locator(".gkp-side img")).to_have_count(2)
    settle(panel)
    check_looks(panel, theme)
    notebook.shot(f"before-and-after-{theme}")
    click(panel, "中文")
    expect(panel.locator(".gkp-compare")).to_contain_text("不再出现")
    settle(panel)
    notebook.shot(f"before-and-after-zh-{theme}")
    click(panel, "指南")
    expect(panel.locator(".gkp-own-change")).to_be_visible()
    click(panel, "撤销")
    expect(panel.locator(".gkp-own-change")).to_contain_text("写入 mine.py")
    settle(panel)
    assert file.read_text(encoding="utf-8") == TRAIN


def test_a_batch_that_fits_the_model_is_proposed_and_a_loss_is_said(notebook: Notebook) -> None:
    notebook.open("notebooks/en/start.ipynb")
    folder = max(notebook.lab.folder.iterdir(), key=lambda path: path.stat().st_mtime)
    (folder / "mine.py").write_text(TRAIN, encoding="utf-8")
    panel = run_panel(notebook.page)
    click(panel, "My file")
    click(panel, "A model and a batch")
    entry(panel, "Model").fill("mine.py:Reader")
    click(panel, "Propose a batch and try it")
    expect(entry(panel, "Batch")).to_have_value("float32[4, 16]")
    entry(panel, "Loss").fill("output.square().mean()")
    settle(panel)
    check_looks(panel, notebook.theme)
    notebook.shot("proposed")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-verdict")).to_contain_text("no_grad_block")


def test_cancel_is_heard_while_the_model_runs(notebook: Notebook) -> None:
    notebook.open("notebooks/en/start.ipynb")
    folder = max(notebook.lab.folder.iterdir(), key=lambda path: path.stat().st_mtime)
    program = (
        "from torch import nn\n\nmodel = nn.Linear(2, 1)\n\n\ndef step():\n    while True:\n        model.bias.sum()\n"
    )
    (folder / "slow.py").write_text(program, encoding="utf-8")
    panel = run_panel(notebook.page)
    click(panel, "My file")
    click(panel, "One step function")
    entry(panel, "Step").fill("slow.py:step")
    click(panel, "Diagnose")
    expect(panel.locator(".gkp-stages .gkp-current")).to_have_text("Run the step")
    expect(panel.locator(".gkp-progress")).to_contain_text(re.compile(r"[1-9]\.\d s"))
    expect(panel.get_by_role("button", name="Cancel")).to_be_focused()
    notebook.shot("running")
    click(panel, "中文")
    click(panel, "取消")
    expect(panel).to_contain_text("已取消。模型与诊断前完全一样。")
    settle(panel)
    notebook.shot("cancelled")


def test_keys_are_enough_and_go_to_the_panel_not_to_the_notebook(panel: Locator) -> None:
    page = panel.page
    panel.get_by_role("button", name="An example").focus()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "Vision memory: as it should be":
            break
    page.keyboard.press("Enter")
    expect(panel.get_by_role("button", name="Vision memory: as it should be")).to_have_attribute("aria-pressed", "true")
    page.keyboard.type("dd")
    panel.get_by_role("button", name="Diagnose", exact=True).focus()
    page.keyboard.press("Enter")
    expect(panel.locator(".gkp-verdict.gkp-good")).to_be_focused(timeout=30_000)
    expect(panel).to_be_visible()


def test_a_narrow_page_needs_no_sideways_scrolling(panel: Locator) -> None:
    panel.page.set_viewport_size({"width": 760, "height": 900})
    diagnose(panel, "Vision memory: a helper detaches the projection")
    for tab in ("Picture", "Parameters", "Guide"):
        click(panel, tab)
        settle(panel)
        assert set(panel.evaluate(WIDER)) <= {"gkp-scroll"}  # a table may scroll in a box of its own
