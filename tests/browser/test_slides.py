"""The slides of the workshop, shown by RISE in JupyterLab as the teacher's guide says, without the network."""
# ruff: noqa: RUF001  colons of Chinese

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from tests.browser.jupyter import Complaints, Lab, Notebook

expect.set_options(timeout=60_000)

TITLES = {
    "en": ("Who does not learn?", "What you can do afterwards", "Every operation leaves a note", "Question 1: who"),
    "zh": ("谁没在学习", "学完以后你能做到", "每个运算都留下一条记录", "问题一：谁能拿到梯度"),
}

MOST = 30
SEEN = """() => {
  const rect = (one) => one.getBoundingClientRect();
  const shown = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const inSight = (one) => shown(one) && rect(one).height > 0 && rect(one).top < innerHeight && rect(one).bottom > 0;
  const whole = (one) => rect(one).top >= 0 && rect(one).bottom <= innerHeight && rect(one).height > 150;
  const all = (which) => [...document.querySelectorAll(which)].filter(inSight);
  const end = (one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return rect(range).bottom;
  };
  const [slide, text] = ["section.present:not(.stack)", ".jp-RenderedHTMLCommon"];
  const headlines = all(`${slide} ${text} h1, ${slide} ${text} h2`).filter((one) => one.nextElementSibling);
  return {
    asked: all(".jp-Notebook-footer").map((one) => one.textContent),
    covered: headlines.filter((one) => end(one) > rect(one.nextElementSibling).top + 2).map((one) => one.textContent),
    pictures: all(`${slide} .jp-RenderedSVG svg, ${slide} .jp-RenderedSVG img`).some(whole) ? 1 : 0,
    last: all(".controls .navigate-right, .controls .navigate-down").every((one) => !one.classList.contains("enabled")),
  };
}"""


@pytest.fixture
def watched(chromium: Browser, lab: Lab) -> Iterator[tuple[Notebook, Complaints]]:
    """A notebook, and what its page did. RISE complains in the console of widgets, which it knows nothing about."""
    complaints = Complaints()
    with chromium.new_context(viewport={"width": 1280, "height": 900}, service_workers="block") as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        complaints.watch(page)
        yield Notebook(page, lab), complaints
    lab.end_kernels()


def reports_in_sight(page: Page, slides: FrameLocator) -> int:
    """How many reports are on the slide whose picture is in sight from edge to edge."""
    frame = slides.locator("section.present:not(.stack) iframe.gk-frame")
    if not frame.count() or not frame.first.is_visible():
        return 0
    stage = slides.frame_locator("section.present:not(.stack) iframe.gk-frame").locator(".gk-stage")
    stage.locator("svg").wait_for()
    page.wait_for_timeout(500)
    place, size = stage.bounding_box(), page.viewport_size
    assert place is not None
    assert size is not None
    return int(place["y"] >= 0 and place["y"] + place["height"] <= size["height"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_slides_are_shown_one_by_one_and_nothing_is_asked_of_the_network(
    watched: tuple[Notebook, Complaints], language: str
) -> None:
    notebook, complaints = watched
    marked = [".gradkit-language"] if language == "zh" else []
    page = notebook.open(f"notebooks/{language}/workshop/slides.ipynb", "slides.css", *marked).page
    notebook.run_all()
    page.keyboard.press("ControlOrMeta+s")
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.get_by_role("menuitem", name="View").click()
    page.get_by_role("menuitem", name="Render as Reveal Slideshow").click()
    slides = page.frame_locator("iframe[src*='/rise/']")
    for title in TITLES[language]:
        if title.startswith(("Question", "问题")):  # what the slide before it has run comes first
            slides.locator("body").press("Space")
        expect(slides.locator(".reveal section.present h1, .reveal section.present h2").first).to_contain_text(title)
        size = slides.locator(".reveal section.present .jp-RenderedHTMLCommon").first
        assert float(size.evaluate("shown => parseFloat(getComputedStyle(shown).fontSize)")) >= 24
        notebook.shot(f"slides-{language}-{TITLES[language].index(title)}")
        slides.locator("body").press("Space")
    pictures = reports = 0
    for at in range(MOST):
        page.wait_for_timeout(700)
        found = slides.locator("body").evaluate(SEEN)
        assert found["asked"] == [], "what asks to edit the notebook is on a slide"
        assert found["covered"] == [], "a headline lies over what follows"
        pictures += found["pictures"]
        reports += reports_in_sight(page, slides)
        if found["last"]:
            break
        notebook.shot(f"slide-{language}-{at:02d}")
        slides.locator("body").press("Space")
    assert found["last"]
    assert pictures == 1, "the picture is to be seen whole, without scrolling"
    assert reports == 1, "the picture of a report is to be seen whole, before its words"
    assert not complaints.outside, f"requests that leave this machine: {complaints.outside}"
