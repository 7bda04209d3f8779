"""Places as links on a page that stands in VS Code, and on one that stands nowhere."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page

from gradkit.core.printable import entities
from gradkit.report import html

FOLLOWED = """() => {
  window.followed = [];
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link) return;
    event.preventDefault();
    window.followed.push(link.href);
  }, true);
  linkPlaces(document.body);
  followPlaces(document.body);
}"""


def opened(page: Page, file: str, around: str, cell: str = "") -> None:
    at = f' data-cell="{cell}"' if cell else ""
    place = f'<span id="place" data-file="{entities(file)}" data-line="41"{at}>the place</span>'
    page.set_content(f'<!doctype html><body class="{around}">{place}</body>')
    page.add_script_tag(content=html.places_script())
    page.evaluate(FOLLOWED)


@pytest.mark.parametrize(
    ("file", "link"),
    [
        ("/home/ann/train.py", "vscode://file/home/ann/train.py:41"),
        ("/home/ann/my runs/train.py", "vscode://file/home/ann/my%20runs/train.py:41"),
        ("/home/安/训练 脚本.py", "vscode://file/home/%E5%AE%89/%E8%AE%AD%E7%BB%83%20%E8%84%9A%E6%9C%AC.py:41"),
        (r"C:\Users\Ann\my runs\train.py", "vscode://file/C:/Users/Ann/my%20runs/train.py:41"),
        ("/runs/50% #2?/a:b.py", "vscode://file/runs/50%25%20%232%3F/a%3Ab.py:41"),
    ],
)
@pytest.mark.parametrize("theme", ["vscode-dark", "vscode-light"])
def test_in_vs_code_a_place_opens_the_file_at_its_line(page: Page, file: str, link: str, theme: str) -> None:
    opened(page, file, theme)
    place = page.locator('#place[role="link"][tabindex="0"]')
    place.click()
    place.press("Enter")
    assert page.evaluate("window.followed") == [link, link]
    assert unquote(urlsplit(link).path) == f"/{file.replace(chr(92), '/').lstrip('/')}:41"
    assert page.locator("a").count() == 0


@pytest.mark.parametrize(("around", "cell"), [("", ""), ("vscode-dark", "3")])
def test_where_a_place_cannot_be_opened_it_is_plain_text(page: Page, around: str, cell: str) -> None:
    opened(page, "/home/ann/train.py", around, cell)
    page.locator("#place").click()
    assert page.evaluate("window.followed") == []
    assert page.locator("[role=link]").count() == 0
