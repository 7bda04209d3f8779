"""What the browser tests are made of: child processes, a JupyterLab, a page that is watched, an open notebook."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, Route

from gradkit.core import settings

REPO = Path(__file__).parents[2]
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def own_jupyter(home: Path) -> dict[str, str]:
    """An environment in which Jupyter neither reads nor writes anything of the person who runs the tests."""
    folders = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    ours = {settings.FOLDER: str(home / "gradkit"), "IPYTHONDIR": str(home / "ipython"), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **folders, **ours}


@contextlib.contextmanager
def process(
    command: list[str], environment: dict[str, str], log: Path, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that is ended with the block, kindly first. Its output goes to ``log``."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(
    what: str, ready: Callable[[], Any], child: subprocess.Popen[bytes], log: Path, seconds: float = 180
) -> Any:
    """Ask ``ready`` until it returns something true; fail with ``what`` and the end of ``log`` if it never does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(OSError):
            if answer := ready():
                return answer
        time.sleep(0.1)
    return pytest.fail(f"waited in vain for {what}\n{log.read_text(errors='replace')[-3000:]}")


@dataclass
class Lab:
    """A running JupyterLab: where it listens, its token, the folder that it shows, and that of gradkit's settings."""

    url: str
    token: str
    folder: Path
    settings: Path

    def ask(self, method: str, path: str, data: object = None) -> Any:
        """One call of the server's REST interface."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if data is None else json.dumps(data).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else {}

    def theme(self, name: str) -> None:
        """``"light"`` or ``"dark"``, for the pages that are opened from now on."""
        raw = json.dumps({"theme": f"JupyterLab {name.capitalize()}"})
        self.ask("PUT", "/lab/api/settings/@jupyterlab/apputils-extension:themes", {"raw": raw})

    def forget(self) -> None:
        """No choice that was made on a panel is remembered any more."""
        (self.settings / settings.file().name).unlink(missing_ok=True)

    def end_kernels(self) -> None:
        for session in self.ask("GET", "/api/sessions"):
            self.ask("DELETE", f"/api/sessions/{session['id']}")


@dataclass
class Complaints:
    """What a page did that it must not do."""

    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(f"{error}\n{error.stack}"))
        page.on("websocket", lambda socket: self._leaves(socket.url))
        page.route("**/*", self._let_pass)

    def _leaves(self, url: str) -> bool:
        parts = urlsplit(url)
        leaves = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in LOOPBACK
        if leaves:
            self.outside.append(url)
        return leaves

    def _let_pass(self, route: Route) -> None:
        if self._leaves(route.request.url):
            route.abort()
        else:
            route.continue_()


@dataclass
class Notebook:
    """One notebook, open in JupyterLab."""

    page: Page
    lab: Lab
    theme: str = "light"

    def open(self, source: str | Path, *beside: str) -> Notebook:
        """Copy ``source`` (absolute, or relative to the repository) into the lab's folder and open it. Files of its
        folder that it needs as well are named ``beside``."""
        source = REPO / source
        folder = self.lab.folder / secrets.token_hex(4)
        folder.mkdir()
        for name in (source.name, *beside):
            shutil.copy(source.with_name(name), folder)
        self.lab.theme(self.theme)
        path = quote(f"{folder.name}/{source.name}")
        self.page.goto(f"{self.lab.url}/lab/workspaces/{folder.name}/tree/{path}?token={self.lab.token}")
        wait_until_open(self.page)
        return self

    def run_all(self, seconds: float = 120) -> None:
        """Run every cell, and wait until the last one is done."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        self.page.locator("[data-command='runmenu:run-all']").click()
        self.page.wait_for_function(
            """() => [...document.querySelectorAll('.jp-CodeCell')]
                .filter(cell => cell.querySelector('.cm-content')?.innerText.trim())
                .every(cell => /\\[\\d+\\]/.test(cell.querySelector('.jp-InputPrompt')?.innerText ?? ''))""",
            timeout=seconds * 1000,
        )

    def shot(self, name: str) -> None:
        """Take a picture of the page, if ``GRADKIT_SHOTS`` names a folder to keep it."""
        if folder := os.environ.get("GRADKIT_SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder, f"{name}.png"))


def wait_until_open(page: Page) -> None:
    """Wait for a notebook whose kernel is idle. The toolbar's light says idle without any kernel too; the status bar
    names the kernel."""
    page.locator(".jp-NotebookPanel:visible .jp-Notebook").wait_for()
    status = page.locator("#jp-main-statusbar").get_by_text("| Idle")
    status.wait_for(timeout=120_000)
    assert "No Kernel" not in status.inner_text()
