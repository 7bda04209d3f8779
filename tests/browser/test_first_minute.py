"""The first minute with ``gradkit lab``: the panel is there, and a click or two lead to a fixed program."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import REPO, free_port, own_jupyter, process, wait_for, wait_until_open
from tests.browser.test_lab_opens import _address_printed
from tests.browser.test_start_notebook import check_looks, click, entry, settle
from tests.live.test_aside import TRAIN


@contextlib.contextmanager
def started(page: Page, folder: Path, home: Path) -> Iterator[Locator]:
    """``gradkit lab`` in a folder, as a person starts it; nothing is clicked until the panel is there."""
    command = [sys.executable, "-m", "gradkit", "lab", "--no-browser", "--port", str(free_port())]
    log = home / "log.txt"
    page.set_viewport_size({"width": 1440, "height": 900})
    with process(command, {**own_jupyter(home), "PYTHONPATH": str(REPO)}, log, folder) as child:
        page.goto(wait_for("the address", lambda: _address_printed(log), child, log))
        wait_until_open(page)
        panel = page.locator(".gkp")
        expect(panel.get_by_role("button", name="Diagnose", exact=True)).to_be_visible()
        try:
            yield panel
        finally:
            page.close()  # before its server goes


def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("GRADKIT_SHOTS"):
        page.screenshot(path=Path(folder, f"{name}.png"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my work"
    folder.mkdir()
    return folder


DOORS = ("An example", "My file", "My notebook")


def test_in_an_empty_folder_three_doors_are_open_and_an_example_is_mended_by_clicks(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    with started(page, folder, tmp_path) as panel:
        for name in (*DOORS, "Diagnose"):
            expect(panel.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
        settle(panel)
        shot(page, "first-1-doors")
        for name in DOORS[1:]:
            click(panel, name)
            expect(panel.get_by_role("button", name="Diagnose", exact=True)).to_be_in_viewport(ratio=1)
            settle(panel)
            check_looks(panel, "light")
            shot(page, f"first-2-{name}")
        click(panel, "An example")
        click(panel, "Vision memory: a helper detaches the projection")
        click(panel, "Diagnose")
        expect(panel.locator(".gkp-verdict")).to_contain_text("attempts.py", timeout=180_000)
        click(panel, "Walk me through the fix")
        for _ in range(3):
            click(panel, "Next")
        click(panel, "Write it into attempts.py")
        settle(panel)
        shot(page, "first-3-written")
        click(panel, "Diagnose again")
        expect(panel.locator(".gkp-verdict")).to_contain_text("Healthy", timeout=180_000)
        expect(panel.locator(".gkp-compare")).to_contain_text("no longer found: detach")
        settle(panel)
        shot(page, "first-4-fixed")
    assert list(folder.glob("gradkit-examples/vision_memory_detached/vision_memory/*.before-gradkit"))


def test_a_script_of_ones_own_stands_there_and_is_diagnosed_with_its_arguments(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    (folder / "out").mkdir()
    (folder / "train.py").write_text(TRAIN.format(cut=".detach()"), encoding="utf-8")
    with started(page, folder, tmp_path) as panel:
        expect(entry(panel, "Script")).to_have_value("train.py")
        click(panel, "Diagnose")
        expect(panel.get_by_role("alert")).to_contain_text("the following arguments are required: --epochs")
        settle(panel)
        shot(page, "script-1-arguments-missing")
        entry(panel, "Arguments").fill("--epochs 1000 --out out")
        click(panel, "Diagnose")
        expect(panel.locator(".gkp-stages .gkp-current")).to_have_text("Run the script up to its first fault")
        expect(panel.locator(".gkp-verdict")).to_contain_text("train.py:14 (detach)", timeout=180_000)
        expect(panel.locator(".gk-stage g.node").first).to_be_visible()
        settle(panel)
        check_looks(panel, "light")
        shot(page, "script-2-diagnosed")
        page.set_viewport_size({"width": 768, "height": 900})
        click(panel, "Parameters")
        expect(panel.locator(".gkp-is-starved").first).to_be_in_viewport()
        settle(panel)
        shot(page, "script-3-narrow")
    assert not (folder / "out" / "last.pt").exists()
