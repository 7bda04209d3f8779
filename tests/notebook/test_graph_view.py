"""The view of a drawing, from Python's side: what it sends, what it draws anew, what is left where no kernel runs."""

from __future__ import annotations

import gzip
import json
import re
import sys

import pytest
import torch
import traitlets
from torch import nn

import gradkit
from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.notebook.graph_view import GraphView, PictureView
from gradkit.report.picture import cards, dot, render, torchviz_view
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.torchviz_kept import Kept
from tests import pictures


def parcel(view):
    return json.loads(gzip.decompress(view.packed))


def test_drawing_and_cards_travel_gzipped_together():
    view = GraphView(svg="<svg/>", node_info={3: {"title": "fc.weight"}})
    nothing_more = {"arrows": [], "dot": "", "sideways": "", "frames": []}
    assert parcel(view) == {"svg": "<svg/>", "info": {"3": {"title": "fc.weight"}}, **nothing_more}


def test_the_parcel_of_a_large_drawing_is_small():
    svg = render.svg(dot.dot(pictures.gpt(), "graph"))
    assert len(GraphView(svg=svg, node_info=cards.cards(pictures.gpt(), "graph")).packed) < 0.2 * len(svg)


def test_every_label_of_the_page_has_words_in_both_languages():
    english, chinese = GraphView(language="en").labels, GraphView(language="zh").labels
    assert set(english) == set(chinese)
    assert all(english.values())
    assert all(chinese.values())
    assert {key for key in english if english[key] == chinese[key]} == set()


def test_a_switch_of_language_changes_the_labels_of_a_view_that_is_open():
    view = GraphView(language="en")
    view.language = "zh"
    assert view.labels["search"] == i18n.words("viewer.search", "zh")


def test_a_language_that_gradkit_does_not_speak_is_refused():
    with pytest.raises(traitlets.TraitError):
        GraphView(language="fr")


def test_a_switch_of_language_draws_the_same_picture_again_in_chinese():
    view = PictureView(pictures.vision(), view="map", language="en")
    numbers = set(parcel(view)["info"])
    view.language = "zh"
    assert "梯度在此处切断" in parcel(view)["svg"]
    assert "gradient" not in parcel(view)["svg"]
    assert set(parcel(view)["info"]) == numbers


def test_the_view_can_be_switched_and_modules_unfolded():
    view = PictureView(pictures.gpt(), language="en")
    assert view.view == "map"
    view.opened = ["transformer.h"]
    titles = {card["title"] for card in parcel(view)["info"].values()}
    assert "transformer.h.7" in titles
    view.view = "graph"
    assert parcel(view)["info"].keys() == {str(box.number) for box in chart_of(pictures.gpt(), "near").boxes}


def test_a_new_picture_replaces_the_old_one():
    view = PictureView(pictures.gpt(), view="map", language="en")
    view.picture = pictures.vision()
    assert "vision.py:41" in {card["place"] for card in parcel(view)["info"].values()}


def test_where_no_layout_is_to_be_had_the_view_says_so_in_its_language(monkeypatch):
    def refuse(*args, **kwargs):
        raise GradkitError("no_layout")

    monkeypatch.setattr(render, "svgs", refuse)
    view = PictureView(pictures.mlp(), language="zh")
    assert view.message == i18n.words("error.no_layout", "zh")
    assert view.packed == b""
    assert "image/svg+xml" not in view._repr_mimebundle_()[0]


def test_a_page_without_a_kernel_gets_a_still_picture():
    view = PictureView(pictures.mlp(), view="map", language="en")
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert data["image/svg+xml"] == view.svg
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"] == i18n.words("picture.title", "en")


def test_a_huge_drawing_is_not_saved_into_the_notebook():
    data, _ = GraphView(svg=f"<svg>{' ' * 300_000}</svg>", language="en")._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "image/svg+xml" not in data


def test_an_unknown_view_is_refused():
    with pytest.raises(GradkitError, match="no view tree"):
        PictureView(pictures.mlp(), view="tree")


def test_a_view_without_a_picture_is_empty_until_it_gets_one():
    view = PictureView(language="en")
    assert view.packed == b""
    view.picture = pictures.mlp()
    assert parcel(view)["svg"] == render.svg(dot.dot(pictures.mlp(), view.view))


def test_what_can_be_saved_is_named_after_the_model_the_cause_and_the_view():
    view = PictureView(pictures.gpt(), language="en")
    assert view.name == "gradkit-GPT2LMHeadModel-no_grad_block-map"
    assert parcel(view)["dot"].startswith("digraph gradkit")
    assert PictureView(pictures.mlp(cut=False), language="en").name == "gradkit-Net-sound-graph"


def test_the_arrows_travel_with_the_drawing():
    view = PictureView(pictures.mlp(), language="en", view="map")
    ends = {number for tail, head, _ in parcel(view)["arrows"] for number in (tail, head)}
    assert ends <= {int(number) for number in parcel(view)["info"]}
    assert {status for *_, status in parcel(view)["arrows"]} == {"live", "dead", "cut"}


def test_what_is_left_out_is_said_in_the_language_of_the_view():
    view = PictureView(pictures.gpt(), language="en", view="graph")
    said = view.limit
    view.language = "zh"
    assert said
    assert view.limit not in ("", said)


@pytest.fixture(scope="module")
def torn():
    model = nn.ModuleDict({"inner": nn.Linear(3, 4), "outer": nn.Linear(4, 1)})
    return gradkit.diagnose(lambda: model["outer"](model["inner"](torch.ones(5, 3)).detach()).sum(), model=model)


def drawn_by_torchviz(report, language="en"):
    return PictureView(report.picture, autograd=report.autograd, view="torchviz", language=language)


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_the_third_view_is_the_drawing_that_a_report_has_of_torchviz(torn, language):
    view = drawn_by_torchviz(torn, language)
    assert parcel(view)["dot"] == torn.graph("torchviz", language).source
    assert view.name == "gradkit-ModuleDict-detach-torchviz"


def test_boxes_of_torchvizs_drawing_have_the_numbers_and_cards_that_the_graph_gives_them(torn):
    view = drawn_by_torchviz(torn)
    cards_by_torchviz = parcel(view)["info"]
    view.view = "graph"
    for number, card in parcel(view)["info"].items():
        if card["kind"] != "input":
            assert cards_by_torchviz[number]["title"] == card["title"]
            assert cards_by_torchviz[number]["place"] == card["place"]


def test_every_box_and_arrow_of_torchvizs_drawing_is_known_to_the_page(torn):
    sent = parcel(drawn_by_torchviz(torn))
    boxes, arrows = set(re.findall(r'id="n(\d+)"', sent["svg"])), set(re.findall(r'id="e(\d+-\d+)"', sent["svg"]))
    assert boxes == set(sent["info"])
    assert arrows == {f"{tail}-{head}" for tail, head, _ in sent["arrows"]}


def test_a_starved_parameter_leads_through_torchvizs_drawing_to_the_cut(torn):
    sent = parcel(drawn_by_torchviz(torn))
    at = next(int(number) for number, card in sent["info"].items() if card["title"] == "inner.weight")
    ahead = {tail: head for tail, head, _ in sent["arrows"]}
    while sent["info"][str(at)]["kind"] != "cut":
        at = ahead[at]
    assert sent["info"][str(at)]["place"].startswith("test_graph_view.py:")


def test_where_nothing_was_kept_for_torchviz_the_view_says_so_and_the_map_comes_back():
    view = PictureView(pictures.mlp(), view="torchviz", language="zh")
    assert view.message == i18n.words("error.torchviz_nothing", "zh")
    assert view.packed == b""
    view.view = "map"
    assert view.message == ""
    assert view.packed


def test_a_graph_that_is_too_large_for_torchviz_is_said_in_the_language_of_the_view():
    view = PictureView(pictures.mlp(), autograd=Kept(count=301), view="torchviz", language="en")
    assert view.message == i18n.words("error.torchviz_too_large", "en", n=301, most=300)
    view.language = "zh"
    assert view.message == i18n.words("error.torchviz_too_large", "zh", n=301, most=300)


def test_without_torchviz_the_view_says_how_to_get_it(torn, monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(name)

    monkeypatch.delitem(sys.modules, "torchviz", raising=False)
    monkeypatch.setattr(torchviz_view.importlib, "import_module", refuse)
    view = drawn_by_torchviz(torn)
    assert view.message == i18n.words("error.torchviz_missing", "en")
