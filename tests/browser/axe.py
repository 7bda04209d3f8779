"""What axe-core has to say about a part of a page."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def faults(page: Page, part: str) -> list[str]:
    """The serious and critical faults inside of ``part`` (a CSS selector), a line each: rule, element, what to do."""
    found = Axe().run(page, context=part, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for fault in found
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]
