"""The start notebook in Jupyter Notebook 7, which shares JupyterLab's widgets and has a page of its own."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.jupyter import REPO, Complaints, Lab, free_port, own_jupyter, process, wait_for
from tests.browser.test_start_notebook import diagnose, run_panel

pytest.importorskip("notebook", minversion="7.0", reason="Jupyter Notebook 7 is not installed")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """As for every browser test, but for an error that Notebook 7.6 itself raises while it loads its settings."""
    complaints = Complaints()
    with chromium.new_context(viewport={"width": 1280, "height": 900}, service_workers="block") as context:
        fresh = context.new_page()
        fresh.set_default_timeout(60_000)
        complaints.watch(fresh)
        yield fresh
    assert not complaints.outside
    assert [error for error in complaints.errors if "(reading 'schema')" not in error] == []


@pytest.fixture
def server(chromium: Browser, tmp_path: Path) -> Iterator[Lab]:
    folder, port, token = tmp_path / "work", free_port(), secrets.token_hex(16)
    folder.mkdir()
    shutil.copy(REPO / "notebooks" / "en" / "start.ipynb", folder)
    options = (f"--port={port}", "--no-browser", "--allow-root", f"--IdentityProvider.token={token}")
    command = [sys.executable, "-m", "notebook", f"--ServerApp.root_dir={folder}", "--ip=127.0.0.1", *options]
    running = Lab(f"http://127.0.0.1:{port}", token, folder, tmp_path / "gradkit")
    log = tmp_path / "log.txt"
    with process(command, own_jupyter(tmp_path), log, folder) as child:
        wait_for("Jupyter Notebook's first answer", lambda: running.ask("GET", "/api/status"), child, log)
        yield running


def test_the_panel_diagnoses_and_switches_its_language_in_notebook_7(page: Page, server: Lab) -> None:
    page.goto(f"{server.url}/notebooks/start.ipynb?token={server.token}")
    page.locator(".jp-NotebookPanel .jp-CodeCell").first.wait_for()
    expect(page.locator(".jp-Toolbar-kernelName").first).to_contain_text("Python 3")
    expect(page.locator(".jp-Notebook-ExecutionIndicator")).to_have_attribute("data-status", "idle")
    panel = run_panel(page)
    diagnose(panel, "Vision memory: a helper detaches the projection")
    expect(panel.locator(".gkp-finding .gk-hit").first).to_have_text(".detach()")
    panel.get_by_role("button", name="中文", exact=True).click()
    expect(panel.locator(".gkp-verdict")).to_contain_text("梯度完全不通")
    server.end_kernels()
    page.close()  # before its server goes
