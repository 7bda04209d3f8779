"""The view of a drawing in a real page: mouse, keys, search, themes; a stand-in for the model, no kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import i18n
from gradkit.notebook.graph_view import PictureView
from gradkit.report.picture import render
from tests import pictures
from tests.browser.shown import Shown


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


@pytest.mark.parametrize(("theme", "dark"), [("light", False), ("dark", True)])
def test_the_drawing_is_dark_where_the_page_is_and_its_file_stays_white(page, theme, dark):
    shown = Shown(page, PictureView(pictures.gpt(), view="map", language="en"), theme)
    shade = page.evaluate("getComputedStyle(document.querySelector('.gk-stage')).backgroundColor.match(/\\d+/)[0]")
    turned = page.evaluate("getComputedStyle(document.querySelector('.gk-paper svg')).filter")
    assert (int(shade) < 60, turned != "none") == (dark, dark)
    with page.expect_download() as loading:
        page.locator('[data-name="save_svg"]').click()
    assert "filter" not in Path(loading.value.path()).read_text(encoding="utf-8")
    shown.shot(f"drawing-{theme}")


def test_full_screen_gives_the_drawing_the_whole_screen_and_back(show):
    shown = show(pictures.vision(), view="map")
    low = shown.stage.bounding_box()["height"]
    shown.page.locator('[data-name="full"]').click()
    shown.page.wait_for_function("document.fullscreenElement !== null")
    shown.settle()
    assert shown.stage.bounding_box()["height"] > low
    shown.shot("full-screen")
    shown.page.locator('[data-name="full"]').click()
    shown.page.wait_for_function("document.fullscreenElement === null")
    shown.settle()
    assert shown.stage.bounding_box()["height"] == pytest.approx(low, abs=2)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_line_says_what_the_lines_mean_and_which_keys_there_are(show, language):
    shown = show(pictures.vision(), view="map", language=language)
    legend = shown.page.locator(".gk-legend")
    words = [i18n.words(f"viewer.{name}", language) for name in ("legend_live", "legend_cut", "legend_dead", "keys")]
    assert legend.locator("span").all_inner_texts() == words
    assert legend.bounding_box()["height"] < 40


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


# ------------------------------------------------------------------------------------------------ the path


def lit(shown):
    """Titles of the boxes that stay bright."""
    numbers = shown.page.eval_on_selector_all("g.node.gk-lit", "all => all.map((node) => Number(node.dataset.number))")
    return {card["title"] for number, card in shown.view.node_info.items() if number in numbers}


@pytest.mark.parametrize(
    ("language", "said"),
    [("en", "The path of proj ends at the cut at vision.py:41."), ("zh", "proj 的路径止于 vision.py:41 处的切断。")],
)
def test_the_path_of_a_starved_module_stops_at_the_cut_and_says_so(show, language, said):
    shown = show(pictures.vision(), view="map", language=language)
    shown.node("proj").click()
    shown.page.locator(".gk-path").click()
    assert {title[:4] for title in lit(shown)} == {"proj", "✂  t" if language == "en" else "✂  梯"}
    assert shown.page.locator("[aria-live]").inner_text() == said
    assert shown.page.locator(".gk-foot").inner_text() == said
    shown.shot(f"path-{language}")


def test_escape_takes_the_path_away_first_and_then_the_card(show):
    shown = show(pictures.vision(), view="map")
    shown.node("proj").click()
    shown.page.locator(".gk-path").click()
    assert shown.page.locator(".gk-path").get_attribute("aria-pressed") == "true"
    shown.page.keyboard.press("Escape")
    assert lit(shown) == set()
    assert shown.card.is_visible()
    shown.page.keyboard.press("Escape")
    assert shown.card.is_hidden()


def test_the_path_of_a_parameter_in_the_graph_is_drawn_node_by_node(show):
    shown = show(pictures.mlp(), view="graph")
    shown.receive(selected=shown.number("fc1.weight"))
    shown.page.locator(".gk-path").click()
    assert {"fc1.weight", "TBackward0", "AddmmBackward0", "ReluBackward0"} <= lit(shown)
    assert not {"fc3.weight", "loss  0.6931", "batch"} & lit(shown)
    assert "train.py:18" in shown.page.locator(".gk-foot").inner_text()


def test_a_path_that_carries_a_gradient_goes_on_to_the_loss(show):
    shown = show(pictures.gpt(), view="map")
    shown.node("transformer.ln_f").click()
    shown.page.locator(".gk-path").click()
    assert lit(shown) == {"transformer.ln_f", "lm_head", "loss  10.83"}
    said = "The gradient comes from the loss to transformer.ln_f along this path."
    assert shown.page.locator(".gk-foot").inner_text() == said


def test_a_module_that_took_no_part_has_no_path(show):
    shown = show(pictures.vision(used=False), view="map")
    shown.node("proj").click()
    shown.page.locator(".gk-path").click()
    assert shown.page.locator(".gk-foot").inner_text() == "Nothing leads from proj to the loss in this run."


def test_the_path_stays_when_the_language_changes(show):
    shown = show(pictures.vision(), view="map")
    shown.receive(selected=shown.number("proj"))
    shown.page.locator(".gk-path").click()
    shown.receive(language="zh")
    assert shown.page.locator("g.node.gk-lit").count() == 2
    assert "止于" in shown.page.locator(".gk-foot").inner_text()


# ------------------------------------------------------------------------------------------------ search


@pytest.mark.parametrize(
    ("wanted", "titles"),
    [
        ("transformer.h.9.mlp.c_fc.weight", {"transformer.h.6"}),
        ("h.9.attn", {"transformer.h.6"}),
        ("gelu", {"transformer.h.0", "transformer.h.6"}),
        ("nll_loss", {"loss"}),
        ("model.py:88", {"✂"}),
        ("88", {"✂"}),
    ],
)
def test_search_finds_parameters_modules_operations_and_lines_in_folded_boxes(show, wanted, titles):
    shown = show(pictures.gpt(), view="map")
    shown.page.fill(".gk-search", wanted)
    shown.settle()
    hits = shown.page.evaluate("document.querySelector('.gk-count').innerText")
    shown.page.keyboard.press("Enter")
    if wanted == "nll_loss":
        return
    assert hits == f"{len(titles)} found"
    title = shown.card.locator("h3").inner_text()
    assert any(title.startswith(one) for one in titles)
    assert "Found here" in shown.card.inner_text()


def test_a_line_is_not_found_by_a_part_of_its_number(show):
    shown = show(pictures.gpt(), view="map")
    for wanted in ("model.py:8", "el.py:88", "888"):
        shown.page.fill(".gk-search", wanted)
        shown.settle()
        assert shown.page.locator(".gk-count").inner_text() == "nothing found", wanted


def test_a_number_that_is_no_line_is_looked_for_among_the_shapes(show):
    shown = show(pictures.gpt(), view="map")
    shown.page.fill(".gk-search", "128")
    shown.settle()
    shown.page.keyboard.press("Enter")
    assert "128" in shown.card.inner_text()


def test_n_and_p_go_through_what_was_found(show):
    shown = show(pictures.mlp(), view="graph")
    shown.page.fill(".gk-search", "addmm")
    shown.settle()
    shown.stage.focus()
    seen = []
    for key in "nnnpp":
        shown.page.keyboard.press(key)
        seen.append((shown.page.evaluate("window.model.get('selected')"), shown.page.locator(".gk-count").inner_text()))
    assert [text for _, text in seen] == ["1 of 3", "2 of 3", "3 of 3", "2 of 3", "1 of 3"]
    assert seen[0] == seen[4]
    assert len({number for number, _ in seen}) == 3


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(("form", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("dot", b"digraph gradkit")])
def test_the_picture_is_saved_by_the_browser_under_a_telling_name(show, form, begins):
    shown = show(pictures.gpt(), view="map")
    with shown.page.expect_download() as loading:
        shown.page.locator(f'[data-name="save_{form}"]').click()
    assert loading.value.suggested_filename == f"gradkit-GPT2LMHeadModel-no_grad_block-map.{form}"
    assert Path(loading.value.path()).read_bytes().startswith(begins)
    assert shown.page.locator("[aria-live]").inner_text().endswith(f"-map.{form}.")


def test_a_saved_bitmap_shows_the_whole_drawing_at_twice_its_size(show):
    shown = show(pictures.vision(), view="map")
    with shown.page.expect_download() as loading:
        shown.page.locator('[data-name="save_png"]').click()
    saved = Path(loading.value.path()).read_bytes()
    width, height = (int.from_bytes(saved[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == pytest.approx([2 * side * 96 / 72 for side in render.size(shown.view.svg)], abs=3)
    assert len(set(saved)) > 100


# ------------------------------------------------------------------------------------------------ large graphs


def test_the_graph_of_a_large_model_begins_with_the_nodes_around_the_cut(show):
    shown = show(pictures.gpt(), view="graph")
    assert shown.page.locator("g.node").count() <= 60
    assert inside(shown.node("✂"), shown.stage)
    assert f"of {len(pictures.gpt().nodes)}" in shown.page.locator(".gk-foot").inner_text()


def test_a_part_beyond_is_unfolded_by_its_card(show):
    shown = show(pictures.gpt(), view="graph")
    number = next(n for n, card in shown.view.node_info.items() if card["kind"] == "more")
    shown.receive(selected=number)
    shown.page.locator(".gk-unfold").click()
    opened = shown.saved["opened"]
    assert opened[0].startswith("@")
    before = shown.page.locator("g.node").count()
    shown.receive(opened=opened)
    assert shown.page.locator("g.node").count() > before


def test_every_control_has_a_name_and_the_order_of_focus_is_the_order_of_sight(show):
    shown = show(pictures.gpt(), view="map")
    names = []
    shown.page.locator("body").click(position={"x": 2, "y": 2})
    for _ in range(16):
        shown.page.keyboard.press("Tab")
        names.append(
            shown.page.evaluate(
                "(() => { const e = document.activeElement; return e.getAttribute('aria-label') || e.innerText; })()"
            )
        )
    until = names[: names.index("Picture of the autograd graph")]
    assert all(until)
    assert until[:4] == ["Map", "Graph", "torchviz", "Search"]
    assert until[-3:] == [
        "Save as SVG: sharp at every size",
        "Save as PNG: a bitmap",
        "Save as DOT: the source, for Graphviz",
    ]


@pytest.fixture(scope="module")
def torn():
    """Of a model with long names, whose first half is cut off."""
    name = "a_projection_with_quite_a_long_name_for_a_module"
    model = nn.ModuleDict({"encoder": nn.Linear(8, 16), name: nn.Linear(16, 16), "head": nn.Linear(16, 1)})
    step = lambda: model["head"](model[name](model["encoder"](torch.ones(4, 8)).relu()).detach()).sum()  # noqa: E731
    return gradkit.diagnose(step, model=model)


@pytest.fixture
def by_torchviz(page, torn):
    def show(language="en", theme="light", view="torchviz", width=1280):
        page.set_viewport_size({"width": width, "height": 900})
        made = PictureView(torn.picture, autograd=torn.autograd, view=view, language=language)
        return Shown(page, made, theme)

    return show


@pytest.mark.parametrize(
    ("language", "theme", "width"), [("en", "light", 1280), ("zh", "dark", 1280), ("zh", "dark", 480)]
)
def test_torchviz_is_the_third_choice_and_shows_the_plate_on_the_cut(by_torchviz, language, theme, width):
    shown = by_torchviz(language, theme, "map", width)
    button = shown.page.locator('[data-name="torchviz"]')
    button.click()
    assert shown.saved["view"] == "torchviz"
    shown.receive(view="torchviz")
    assert button.get_attribute("aria-pressed") == "true"
    assert button.get_attribute("title") == i18n.words("viewer.torchviz_hint", language)
    plate = shown.page.locator("g.node.cut")
    assert "test_graph_view.py" in plate.text_content()
    assert inside(plate, shown.stage)
    shown.shot(f"torchviz-{language}-{theme}-{width}")


def test_search_and_cards_and_the_path_to_the_cut_work_in_torchvizs_drawing(by_torchviz):
    shown = by_torchviz()
    shown.page.locator(".gk-search").fill("encoder.weight")
    shown.page.locator(".gk-search").press("Enter")
    assert shown.page.locator(".gk-count").inner_text() == "1 of 2"  # the plate names it as well
    assert shown.card.locator("h3").inner_text() == "encoder.weight"
    shown.card.locator(".gk-path").click()
    assert "ends at the cut at test_graph_view.py:" in shown.page.locator(".gk-foot").inner_text()
    assert "gk-lit" in shown.page.locator("g.node.cut").get_attribute("class")
    shown.shot("torchviz-path")


def test_a_node_stays_picked_from_the_graph_to_torchvizs_drawing(by_torchviz):
    shown = by_torchviz(view="graph")
    shown.receive(selected=shown.number("encoder.weight"))
    shown.receive(view="torchviz")
    assert shown.card.locator("h3").inner_text() == "encoder.weight"


def test_torchvizs_drawing_can_be_saved_as_source(by_torchviz):
    shown = by_torchviz()
    with shown.page.expect_download() as loading:
        shown.page.locator('[data-name="save_dot"]').click()
    assert loading.value.suggested_filename == "gradkit-ModuleDict-detach-torchviz.dot"
    assert "AccumulateGrad" in Path(loading.value.path()).read_text()


@pytest.mark.parametrize(("language", "theme"), [("en", "light"), ("zh", "dark")])
def test_where_torchviz_cannot_draw_it_a_sentence_says_why_and_no_control_is_dead(page, language, theme):
    shown = Shown(page, PictureView(pictures.mlp(), view="map", language=language), theme)
    shown.receive(view="torchviz")
    why = i18n.words("error.torchviz_nothing", language)
    assert shown.page.locator(".gk-note").inner_text() == why
    assert shown.page.locator("g.node").count() == 0
    for name in ("save_svg", "zoom_in", "fit", "cut"):
        control = shown.page.locator(f'[data-name="{name}"]')
        assert control.is_disabled()
        assert control.get_attribute("title") == why
    assert shown.page.locator(".gk-search").is_disabled()
    shown.shot(f"torchviz-nothing-{language}-{theme}")
    shown.page.locator('[data-name="map"]').click()
    shown.receive(view="map")
    assert shown.page.locator("g.node").count() > 0
    assert shown.page.locator('[data-name="save_svg"]').is_enabled()


def test_folding_is_disabled_with_its_reason_where_torchviz_draws_every_node(by_torchviz):
    shown = by_torchviz()
    shown.receive(opened=["encoder"])
    fold = shown.page.locator('[data-name="fold"]')
    assert fold.is_disabled()
    assert fold.get_attribute("title") == i18n.words("viewer.no_fold", "en")
