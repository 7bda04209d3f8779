"""The graph of a large model: node by node around the cuts, a box for every part beyond."""

from __future__ import annotations

import pytest

from gradkit.core.i18n import speaking
from gradkit.core.records import Edge, Node, Picture
from gradkit.report.picture.cards import cards
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.outline import MOST
from gradkit.report.picture.words import picture_limits
from tests import pictures


def members(shown):
    return sorted(node.number for box in shown.boxes for node in box.members)


def beyond(shown):
    return [box for box in shown.boxes if box.kind == "more"]


@pytest.mark.parametrize("name", pictures.ALL)
def test_every_node_is_in_exactly_one_box(name):
    picture = pictures.ALL[name]()
    assert members(chart_of(picture, "near")) == [node.number for node in picture.nodes]


@pytest.mark.parametrize("name", pictures.ALL)
def test_few_boxes_are_shown_at_first(name):
    assert len(chart_of(pictures.ALL[name](), "near").boxes) <= MOST


@pytest.mark.parametrize("name", pictures.ALL)
def test_every_link_between_two_boxes_is_drawn(name):
    picture = pictures.ALL[name]()
    shown = chart_of(picture, "near")
    box = {node.number: one.number for one in shown.boxes for node in one.members}
    wanted = {(box[edge.source], box[edge.target]) for edge in picture.edges} - {(n, n) for n in box.values()}
    assert {(arrow.tail, arrow.head) for arrow in shown.arrows} == wanted


def test_the_nodes_next_to_the_cut_and_the_loss_are_shown_one_by_one():
    picture = pictures.gpt()
    cut = next(node.number for node in picture.nodes if node.kind == "cut")
    around = {edge.source for edge in picture.edges if edge.target == cut}
    around |= {edge.target for edge in picture.edges if edge.source == cut}
    alone = {box.number for box in chart_of(picture, "near").boxes if box.kind != "more"}
    assert around | {cut, len(picture.nodes)} <= alone


def test_a_small_graph_is_shown_whole():
    assert beyond(chart_of(pictures.mlp(), "near")) == []


def test_the_card_of_a_part_beyond_opens_it():
    picture = pictures.gpt()
    shown = chart_of(picture, "near")
    opens = {number: card["open"] for number, card in cards(picture, "near", shown=shown).items()}
    largest = max(beyond(shown), key=lambda box: len(box.members))
    more = chart_of(picture, "near", [opens[largest.number]])
    assert sum(box.kind == "node" for box in more.boxes) > sum(box.kind == "node" for box in shown.boxes)
    assert members(more) == members(shown)


def test_a_part_beyond_in_which_something_starves_says_so():
    assert {box.status for box in beyond(chart_of(pictures.gpt(), "near"))} & {"starved", "partly"}


def test_parts_beyond_of_a_wide_graph_are_few():
    nodes = [Node(1, "x", "input", "dead"), *(Node(n, f"expert{n}", "autograd", "live") for n in range(2, 600))]
    nodes += [Node(600, "StackBackward0", "autograd", "live"), Node(601, "loss", "loss", "live")]
    edges = [Edge(1, n, "dead") for n in range(2, 600)] + [Edge(n, 600, "live") for n in range(2, 600)]
    wide = Picture(tuple(nodes), (*edges, Edge(600, 601, "live")), (), ())
    assert len(chart_of(wide, "near").boxes) <= MOST
    assert sum(len(box.members) for box in chart_of(wide, "near").boxes) == 601


def test_of_a_weight_that_every_step_uses_two_uses_are_drawn_and_the_others_counted():
    nodes = [
        Node(1, "w", "parameter", "live", shape=(2,)),
        *(Node(n, "MulBackward0", "autograd", "live") for n in range(2, 90)),
    ]
    edges = [Edge(1, n, "live") for n in range(2, 90)] + [Edge(n, n + 1, "live") for n in range(2, 90)]
    shown = chart_of(Picture((*nodes, Node(90, "loss", "loss", "live")), tuple(edges), (), ()), "near")
    weight = next(box for box in shown.boxes if box.number == 1)
    assert sum(arrow.tail == 1 for arrow in shown.arrows) == 2
    assert weight.more_uses > 10


def test_how_much_is_shown_is_said_in_both_languages():
    picture = pictures.gpt()
    shown = chart_of(picture, "near")
    one_by_one = len(picture.nodes) - sum(len(box.members) for box in beyond(shown))
    for language in ("en", "zh"):
        with speaking(language):
            said = picture_limits(picture, shown)
        assert str(one_by_one) in said
        assert str(len(picture.nodes)) in said
    assert picture_limits(pictures.mlp(), chart_of(pictures.mlp(), "near")) == ""
