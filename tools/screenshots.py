"""Screenshots of the viewer with real programs in it, to be looked at: does anything overlap, is anything cut off?

python tools/screenshots.py FOLDER [NAME ...]     en and zh, light and dark, of tests/programs/picture.py
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

import gradkit  # noqa: E402
from gradkit.notebook.graph_view import PictureView  # noqa: E402
from tests.browser.shown import Shown  # noqa: E402
from tests.programs import picture as picture_programs  # noqa: E402

LOOKS = (("en", "light"), ("zh", "dark"), ("en", "dark"), ("zh", "light"))


def main() -> None:
    """Diagnose each program, show its picture in Chromium, take a screenshot of each look."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*", default=list(picture_programs.ALL))
    options.add_argument("--views", nargs="+", default=["map", "graph"])
    options.add_argument("--looks", type=int, default=len(LOOKS), help="how many of language and theme")
    options.add_argument("--pick", help="a title: its card is opened")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        for name in given.names:
            model, step = picture_programs.ALL[name]()
            picture = gradkit.diagnose(step, model=model).picture
            for view in given.views:
                for language, theme in LOOKS[: given.looks]:
                    start = time.perf_counter()
                    shown = Shown(page, PictureView(picture, language=language, view=view), theme)
                    if given.pick:
                        shown.node(given.pick).click()
                        shown.settle()
                    page.screenshot(path=given.folder / f"{name}-{view}-{language}-{theme}.png")
                    boxes = page.locator("g.node").count()
                    print(f"{name} {view} {language} {theme}: {boxes} boxes, {time.perf_counter() - start:.1f} s")
        browser.close()


if __name__ == "__main__":
    main()
