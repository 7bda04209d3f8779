"""JupyterLab in a real Chromium.

A browser test asks for ``notebook``::

    def test_something(notebook):
        notebook.open("notebooks/en/start.ipynb")     # a copy of it, with a kernel that is idle
        notebook.run_all()
        notebook.page.get_by_role("button", name="Diagnose").click()
        notebook.shot("diagnosed")                 # into the folder that GRADKIT_SHOTS names, if it is set

and fails by itself if the page wrote an error to its console, threw one, or asked for anything that is not on this
machine. Without a Chromium it is skipped; ``GRADKIT_REQUIRE_BROWSER=1`` makes that a failure.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from gradkit.notebook.lab import lab_command, lab_environment
from tests.browser.jupyter import Complaints, Lab, Notebook, free_port, own_jupyter, process, wait_for

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests can be chosen, or left out, by ``-m browser``. They come last.

    Playwright switches greenlets; once it has, ``sys.settrace``, which scans of a step use, hangs in that process
    (seen on Python 3.11 with greenlet 3.5).
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        reason = f"no Chromium on PATH (looked for {', '.join(BROWSERS)})"
        if os.environ.get("GRADKIT_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    expect.set_options(timeout=60_000)  # machines that run tests are busy
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*QUIET, *root])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page; the test fails at its end if the page complained or tried to leave this machine."""
    complaints = Complaints()
    with chromium.new_context(viewport={"width": 1280, "height": 900}, service_workers="block") as context:
        fresh = context.new_page()
        fresh.set_default_timeout(60_000)
        complaints.watch(fresh)
        yield fresh
    assert not complaints.outside, f"requests that leave this machine: {complaints.outside}"
    assert not complaints.errors, f"errors in the page: {complaints.errors}"


@pytest.fixture(scope="session")
def lab(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab, started the way that ``gradkit lab`` starts it, in an empty folder."""
    home, folder = tmp_path_factory.mktemp("jupyter"), tmp_path_factory.mktemp("work")
    port, token, log = free_port(), secrets.token_hex(16), home / "log.txt"
    options = (f"--IdentityProvider.token={token}", "--ServerApp.port_retries=0")
    command = lab_command(folder, Path("none.ipynb"), browser=False, port=port, ip="127.0.0.1", options=options)
    command = [word for word in command if "labextensions" not in word]  # a test runs the panel's cell itself
    running = Lab(f"http://127.0.0.1:{port}", token, folder, home / "gradkit")
    with process(command, lab_environment(own_jupyter(home)), log, folder) as child:
        wait_for("JupyterLab's first answer", lambda: running.ask("GET", "/api/status"), child, log)
        yield running


@pytest.fixture
def notebook(page: Page, lab: Lab, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """A :class:`Notebook`. Both themes: ``@pytest.mark.parametrize("notebook", ["light", "dark"], indirect=True)``."""
    yield Notebook(page, lab, getattr(request, "param", "light"))
    lab.end_kernels()
    lab.forget()
