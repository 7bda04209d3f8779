"""The view of a drawing in a real page: mouse, keys, search, themes; a stand-in for the model, no kernel."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from gradkit.widgets.graph_view import PictureView
from tests import pictures

STATIC = Path(__file__).parents[2] / "gradkit" / "widgets" / "static"
SYNCED = ("language", "labels", "selected", "opened", "view", "message", "height")
MOUNT = """
async ([esm, css, state]) => {
  const bytes = (text) => new DataView(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer);
  const listeners = {};
  window.saved = {};
  window.model = {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const act of listeners[`change:${name}`] ?? []) act();
    },
    on: (name, act) => (listeners[name] ??= []).push(act),
    off: (name, act) => { listeners[name] = (listeners[name] ?? []).filter((other) => other !== act); },
    save_changes: () => { window.saved = { selected: state.selected, opened: state.opened, view: state.view }; },
    receive(news) { for (const name in news) this.set(name, name === "packed" ? bytes(news[name]) : news[name]); },
  };
  state.packed = bytes(state.packed);
  const sheet = document.createElement("style");
  sheet.textContent = css;
  document.head.append(sheet);
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  window.leave = module.default.render({ model: window.model, el: document.getElementById("here") });
}
"""
THEMES = {
    "light": '<body data-jp-theme-light="true" style="margin: 16px">',
    "dark": '<body data-jp-theme-light="false" style="margin: 16px; background: #111; --jp-layout-color1: #111;'
    " --jp-layout-color2: #212121; --jp-ui-font-color1: rgba(255, 255, 255, 0.87); --jp-border-color2: #424242;"
    ' --jp-ui-font-color2: rgba(255, 255, 255, 0.6); --jp-brand-color1: #1976d2">',
}


class Shown:
    """A view on a page."""

    def __init__(self, page, view, theme="light"):
        self.page, self.view = page, view
        page.set_content(f"<!doctype html><html><head></head>{THEMES[theme]}<div id=here></div></body></html>")
        esm, css = ((STATIC / f"graph_view.{end}").read_text(encoding="utf-8") for end in ("js", "css"))
        page.evaluate(MOUNT, [esm, css, self.state()])
        page.wait_for_selector(".gk-paper svg")
        self.stage = page.locator(".gk-stage")
        self.card = page.locator(".gk-card")
        self.settle()

    def state(self):
        packed = base64.b64encode(self.view.packed).decode()
        return {**{name: getattr(self.view, name) for name in SYNCED}, "packed": packed}

    def receive(self, **traits):
        """What the kernel would do: set traits, draw anew, send all."""
        for name, value in traits.items():
            setattr(self.view, name, value)
        self.page.evaluate("(state) => window.model.receive(state)", self.state())
        self.settle()

    def settle(self):
        self.page.wait_for_timeout(260)

    @property
    def saved(self):
        return self.page.evaluate("window.saved")

    def number(self, title):
        return next(n for n, card in self.view.node_info.items() if card["title"].startswith(title))

    def node(self, title):
        return self.page.locator(f'g.node[data-number="{self.number(title)}"]')

    def zoom(self):
        return int(self.page.locator('[data-name="actual"]').inner_text().removesuffix("%").strip())

    def shot(self, name):
        if folder := os.environ.get("GRADKIT_SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"view-{name}.png")


@pytest.fixture
def show(page):
    return lambda picture, **arguments: Shown(
        page, PictureView(picture, language=arguments.pop("language", "en"), **arguments)
    )


def inside(inner, outer):
    a, b = inner.bounding_box(), outer.bounding_box()
    return (
        a["x"] >= b["x"] - 1
        and a["y"] >= b["y"] - 1
        and a["x"] + a["width"] <= b["x"] + b["width"] + 1
        and a["y"] + a["height"] <= b["y"] + b["height"] + 1
    )


def test_a_drawing_that_fits_is_shown_whole(show):
    shown = show(pictures.vision(), view="map")
    assert all(inside(node, shown.stage) for node in shown.page.locator("g.node").all())


def test_a_large_drawing_opens_on_the_cut_at_a_readable_size(show):
    shown = show(pictures.gpt(), view="graph")
    assert shown.zoom() >= 75
    assert inside(shown.node("✂"), shown.stage)


def test_a_large_drawing_without_a_cut_opens_on_the_loss(show):
    shown = show(pictures.gpt(cut_in=None), view="graph")
    assert shown.zoom() >= 75
    assert inside(shown.node("loss"), shown.stage)


def test_a_click_on_the_plate_shows_its_line_and_tells_python(show):
    shown = show(pictures.vision(), view="map")
    shown.node("✂").click()
    assert "vision.py:41" in shown.card.inner_text()
    assert shown.card.locator("mark").inner_text() == ".detach()"
    assert shown.saved["selected"] == shown.number("✂")
    shown.shot("card")


def test_escape_closes_the_card_and_python_knows(show):
    shown = show(pictures.vision(), view="map")
    shown.node("proj").click()
    assert shown.card.is_visible()
    shown.page.keyboard.press("Escape")
    assert shown.card.is_hidden()
    assert shown.saved["selected"] is None


def test_python_can_pick_a_node(show):
    shown = show(pictures.gpt(), view="graph")
    shown.receive(selected=shown.number("loss"))
    assert "10.83" in shown.card.inner_text()
    assert inside(shown.node("loss"), shown.stage)


def test_the_keyboard_walks_from_node_to_node(show):
    shown = show(pictures.gpt(), view="map")
    shown.receive(selected=shown.number("lm_head"))
    shown.stage.focus()
    shown.page.keyboard.press("ArrowDown")
    assert shown.saved["selected"] == shown.number("loss")
    shown.page.keyboard.press("ArrowUp")
    shown.page.keyboard.press("ArrowUp")
    assert shown.saved["selected"] == shown.number("transformer.ln_f")
    assert shown.page.locator("[aria-live]").inner_text().startswith("transformer.ln_f")


def test_tab_goes_through_all_nodes_and_then_on(show):
    shown = show(pictures.mlp(), view="map")
    shown.stage.focus()
    shown.page.keyboard.press("ArrowUp")
    for _ in range(len(shown.view.node_info)):
        shown.page.keyboard.press("Tab")
    assert not shown.page.evaluate("document.activeElement.matches('.gk-stage')")


def test_enter_opens_the_card_of_the_node_at_hand(show):
    shown = show(pictures.gpt(), view="map")
    shown.stage.focus()
    shown.page.keyboard.press("Enter")
    assert shown.card.is_visible()


def test_keys_and_buttons_zoom(show):
    shown = show(pictures.gpt(), view="map")
    shown.stage.focus()
    before = shown.zoom()
    shown.page.keyboard.press("+")
    assert shown.zoom() == pytest.approx(before * 1.25, abs=1)
    shown.page.locator('[data-name="zoom_out"]').click()
    assert shown.zoom() == pytest.approx(before, abs=1)
    shown.page.keyboard.press("0")
    shown.settle()


def test_zero_shows_all_of_it(show):
    shown = show(pictures.gpt(), view="map")
    shown.stage.focus()
    shown.page.keyboard.press("0")
    shown.settle()
    assert all(inside(node, shown.stage) for node in shown.page.locator("g.node").all())


def test_a_plain_wheel_scrolls_the_page_and_ctrl_wheel_zooms(show):
    shown = show(pictures.gpt(), view="map")
    shown.page.evaluate("document.body.style.height = '4000px'")
    box = shown.stage.bounding_box()
    shown.page.mouse.move(box["x"] + 200, box["y"] + 200)
    before = shown.zoom()
    shown.page.mouse.wheel(0, 200)
    shown.settle()
    assert shown.zoom() == before
    assert shown.page.evaluate("scrollY") > 0
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -200)
    shown.page.keyboard.up("Control")
    shown.settle()
    assert shown.zoom() > before


def test_a_drag_moves_the_drawing_and_picks_nothing(show):
    shown = show(pictures.gpt(), view="map")
    node = shown.node("✂")
    before = node.bounding_box()
    shown.page.mouse.move(before["x"] + 20, before["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(before["x"] - 60, before["y"] + 70, steps=4)
    shown.page.mouse.up()
    shown.settle()
    after = node.bounding_box()
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((-80, 60), abs=6)
    assert shown.card.is_hidden()


def test_search_marks_what_it_finds_and_enter_goes_through_it(show):
    shown = show(pictures.mlp(), view="graph")
    shown.page.fill(".gk-search", "fc2")
    shown.settle()
    hits = shown.page.locator("rect.gk-hit").count()
    assert hits == len([c for c in shown.view.node_info.values() if "fc2" in str(c)])
    assert shown.page.locator(".gk-count").inner_text() == f"{hits} found"
    shown.page.keyboard.press("Enter")
    first = shown.saved["selected"]
    shown.page.keyboard.press("Enter")
    assert shown.saved["selected"] != first
    shown.page.fill(".gk-search", "nowhere")
    shown.settle()
    assert shown.page.locator(".gk-count").inner_text() == "nothing found"


def test_a_switch_of_language_changes_all_and_keeps_the_place(show):
    shown = show(pictures.gpt(), view="map")
    shown.receive(selected=shown.number("✂"))
    before = shown.node("✂").bounding_box()
    shown.receive(language="zh")
    after = shown.node("✂").bounding_box()
    assert "梯度在此处切断" in shown.card.inner_text()
    assert shown.page.locator(".gk-search").get_attribute("placeholder") == "搜索"
    assert shown.page.locator(".gk-view").get_attribute("lang") == "zh-CN"
    middle = before["y"] + before["height"] / 2
    assert after["y"] + after["height"] / 2 == pytest.approx(middle, abs=40)


def test_the_unfold_button_asks_python_and_fold_all_takes_it_back(show):
    shown = show(pictures.gpt(), view="map")
    shown.node("transformer.h.6").click()
    shown.page.locator(".gk-unfold").click()
    assert shown.saved["opened"] == ["transformer.h"]
    shown.receive(opened=["transformer.h"])
    assert shown.node("transformer.h.7").count() == 1
    shown.page.locator('[data-name="fold"]').click()
    assert shown.saved["opened"] == []


def test_the_switch_between_map_and_graph_asks_python(show):
    shown = show(pictures.mlp(), view="map")
    shown.page.locator('[data-name="graph"]').click()
    assert shown.saved["view"] == "graph"
    shown.receive(view="graph")
    assert shown.page.locator("g.node").count() == len(pictures.mlp().nodes)
    assert shown.page.locator('[data-name="graph"]').get_attribute("aria-pressed") == "true"


def test_single_letters_stay_here_but_ctrl_s_reaches_the_notebook(show):
    shown = show(pictures.mlp(), view="map")
    suppressed = "document.activeElement.hasAttribute('data-lm-suppress-shortcuts')"
    shown.stage.focus()
    assert shown.page.evaluate(suppressed)
    shown.page.keyboard.press("d")
    assert shown.page.evaluate(suppressed)
    shown.page.keyboard.down("Control")
    assert not shown.page.evaluate(suppressed)
    shown.page.keyboard.up("Control")
    assert shown.page.evaluate(suppressed)


def test_an_error_of_the_layout_is_said_where_the_drawing_would_be(show):
    shown = show(pictures.mlp(), view="map")
    shown.receive(message="No Graphviz here.")
    assert shown.page.locator(".gk-note").inner_text() == "No Graphviz here."


def test_a_drawing_in_a_tab_that_is_not_shown_yet_opens_when_it_is(page):
    shown = Shown(page, PictureView(pictures.gpt(), view="graph", language="en"))
    shown.page.evaluate("document.getElementById('here').style.display = 'none'")
    shown.receive(view="map")
    shown.page.evaluate("document.getElementById('here').style.display = ''")
    shown.settle()
    assert shown.page.locator("g.node").count() == len(shown.view.node_info)


def test_two_views_on_a_page_share_no_id(page):
    shown = Shown(page, PictureView(pictures.mlp(), view="map", language="en"))
    ids = page.evaluate("[...document.querySelectorAll('g.node[id]')].length")
    assert ids == 0
    assert shown.stage.get_attribute("role") == "application"
    assert shown.stage.get_attribute("aria-label") == "Picture of the autograd graph"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_words_of_the_page_can_be_read_in_every_theme(page, theme, language):
    shown = Shown(page, PictureView(pictures.gpt(), view="map", language=language), theme)
    shown.receive(selected=shown.number("transformer.h.0"))
    ratios = page.evaluate(CONTRAST)
    shown.shot(f"{theme}-{language}")
    assert ratios
    assert min(ratios.values()) >= 4.5, ratios
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.gk-stage')).backgroundColor") == "rgb(255, 255, 255)"
    )


CONTRAST = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const back = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const light = (color) => color.map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const found = {};
  for (const element of document.querySelectorAll(".gk-bar button, .gk-bar input, .gk-card *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own && element.tagName !== "INPUT") continue;
    if (!element.checkVisibility()) continue;
    const under = back(element);
    const [r, g, b, a = 1] = parse(getComputedStyle(element).color);
    const over = [r, g, b].map((part, index) => part * a + under[index] * (1 - a));
    const [x, y] = [light(over), light(under)].sort((one, other) => other - one);
    found[`${element.tagName}.${element.className} ${element.textContent.slice(0, 20)}`] = (x + 0.05) / (y + 0.05);
  }
  return found;
}
"""
