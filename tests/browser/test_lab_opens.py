"""``gradkit lab``, started as a person starts it."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.jupyter import REPO, free_port, own_jupyter, process, wait_for, wait_until_open


def _address_printed(log: Path) -> str | None:
    """The address, once somebody listens there: ``OSError`` before that."""
    found = re.search(r"http://127\.0\.0\.1:(\d+)/\S*token=\w+\s", log.read_text(errors="replace"))
    if found is None:
        return None
    socket.create_connection(("127.0.0.1", int(found[1])), timeout=1).close()
    return found.group().strip()


def _address_opened(page: Page, folder: Path, home: Path) -> str:
    command = [sys.executable, "-m", "gradkit", "lab", "--no-browser", "--port", str(free_port())]
    log = home / "log.txt"
    with process(command, own_jupyter(home), log, folder) as child:
        page.goto(wait_for("the address", lambda: _address_printed(log), child, log))
        wait_until_open(page)
        expect(page.locator(".jp-Dialog")).to_have_count(0)
        expect(page.get_by_text("Would you like to get notified")).to_have_count(0)
        address = page.url
        page.close()  # before its server goes
    return address


def test_in_an_empty_folder_a_copy_of_the_start_notebook_opens(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "my work"
    folder.mkdir()
    assert _address_opened(page, folder, tmp_path).endswith("/tree/gradkit-start.ipynb")
    assert (folder / "gradkit-start.ipynb").is_file()


def test_in_a_clone_its_own_start_notebook_opens(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    shutil.copytree(REPO / "notebooks", folder / "notebooks")
    assert _address_opened(page, folder, tmp_path).endswith("/tree/notebooks/en/start.ipynb")
    assert not (folder / "gradkit-start.ipynb").exists()
