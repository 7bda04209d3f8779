"""Pictures of real programs, from two layers to thousands of nodes, deep and wide: few boxes, readable, soon there."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

import gradkit
from gradkit.notebook.graph_view import PictureView
from gradkit.report.picture import chart as picture_chart
from gradkit.report.picture import fold, render
from gradkit.report.picture.cards import cards
from gradkit.report.picture.dot import dot
from gradkit.report.picture.outline import MOST
from tests.programs import picture as programs

PROGRAMS = {
    "mlp": programs.mlp,
    "gpt2": lambda: programs.gpt2(layers=6, width=16, frozen=3),
    "transformer of 48 layers with LoRA": lambda: programs.qwen_lora(layers=48, width=16),
    "resnet": lambda: programs.resnet(depths=(2, 2, 3, 2)),
    "unet": programs.unet,
    "two cuts": programs.two_cuts,
    "all frozen": programs.all_frozen,
    "recurrent, 1,500 steps": lambda: programs.rnn(steps=1500),
    "256 experts": programs.experts,
    "700 residual blocks": programs.residual,
}
WIDEST = 1440
"""Points that fit into a page of 1,280 pixels at a size that can be read."""


@functools.cache
def drawn(name):
    """The picture, and what a view of it shows at first."""
    model, step = PROGRAMS[name]()
    picture = gradkit.diagnose(step, model=model, replay=False).picture
    return SimpleNamespace(picture=picture, view=PictureView(picture, language="en", view="map"))


@pytest.fixture(params=PROGRAMS)
def shown(request):
    return drawn(request.param)


def test_the_first_picture_has_few_boxes_and_fits_the_width_of_a_page(shown):
    assert shown.view.message == ""
    assert 2 < len(shown.view.node_info) <= MOST
    assert render.size(shown.view.svg)[0] <= WIDEST


def test_the_graph_begins_with_few_boxes_too_and_is_drawn_in_time(shown):
    assert 2 < len(fold.chart_of(shown.picture, "near").boxes) <= MOST
    assert render.svg(dot(shown.picture, "near"), timeout=10)


def test_the_cut_is_in_both_views(shown):
    for view in ("map", "near"):
        kinds = {card["kind"] for card in cards(shown.picture, view).values()}
        assert kinds & {"cut", "plate"}


def test_like_layers_are_folded_with_their_number():
    titles = "\n".join(
        text for card in drawn("transformer of 48 layers with LoRA").view.node_info.values() for _, text in card["rows"]
    )
    assert "Qwen3DecoderLayer ×48" in titles
    assert "Sequential ×256" in "\n".join(
        text for card in drawn("256 experts").view.node_info.values() for _, text in card["rows"]
    )


def test_a_graph_deeper_than_the_limit_says_what_is_left_out_and_stays_connected():
    deep = drawn("recurrent, 1,500 steps")
    assert deep.picture.left_out > 10_000
    assert f"{deep.picture.left_out:,}" in deep.view.svg
    status = {card["title"]: card["status"] for card in deep.view.node_info.values()}
    assert (status["embed"], status["cell"], status["out"]) == ("starved", "live", "live")


def test_a_large_transformer_is_drawn_node_by_node_in_its_graph():
    picture = drawn("transformer of 48 layers with LoRA").picture
    assert len(picture.nodes) > 4000
    assert picture.left_out == 0


def test_above_five_thousand_nodes_each_drawing_says_what_is_folded_or_left_out():
    large = drawn("700 residual blocks")
    assert len(large.picture.nodes) > 5000
    assert large.picture.left_out == 0
    for text in ("blocks.0 – blocks.350", "Block ×351", "blocks.351 – blocks.699", "Block ×349"):
        assert text in large.view.svg.replace("\N{NO-BREAK SPACE}", " ")
    near = fold.chart_of(large.picture, "near")
    assert sum(len(box.members) for box in near.boxes) == len(large.picture.nodes)
    titles = [card["title"] for card in cards(large.picture, "near").values()]
    assert all(f"{len(box.members)} more nodes" in " ".join(titles) for box in near.boxes if box.kind == "more")


def test_the_arrow_into_the_experts_is_thicker_than_the_one_into_the_head():
    chart = fold.chart_of(drawn("256 experts").picture, "map")
    reach = chart.reach()
    title = {box.number: box for box in chart.boxes}
    sizes = {title[tail].part.paths[0]: size for (tail, _), size in reach.items() if title[tail].part}
    assert sizes["head"] > sizes["experts"] == 256 * 2 * (8 * 8 + 8)


def test_a_chart_with_very_many_arrows_is_not_weighed():
    arrows = tuple(picture_chart.Arrow(n, n + 1, "live") for n in range(picture_chart.LARGEST_WEIGHED + 1))
    boxes = tuple(picture_chart.Box(n, "node", "live") for n in range(picture_chart.LARGEST_WEIGHED + 2))
    assert picture_chart.Chart("graph", boxes, arrows).reach() == {}
