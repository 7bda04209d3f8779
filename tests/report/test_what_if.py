"""What would flow without a cut: only what a rerun has shown, in the boxes that are drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.i18n import speaking
from gradkit.core.records import LIKELY
from gradkit.report.picture import what_if
from gradkit.report.picture.cards import cards
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.words import Phrases
from tests import pictures
from tests.programs import picture as programs


def undo(picture, index=0, view="map"):
    """What would change, by the titles of the boxes: their statuses, and the arrows; and what is said."""
    chart = chart_of(picture, view)
    words = Phrases(picture)
    made = what_if.shown(what_if.Flows(picture), chart, words, index)
    if made is None:
        return None
    title = {box.number: words.title(box) for box in chart.boxes} | {
        box.number: "plate" for box in chart.boxes if box.kind == "cut" and box.finding == index
    }
    boxes = {title[number]: status for number, status, _ in made["boxes"]}
    return boxes, {(title[a], title[b]) for a, b in made["arrows"]}, made["said"]


def diagnosed(make):
    torch.manual_seed(0)
    model, step = make()
    return gradkit.diagnose(step, model=model).picture


def test_the_boxes_before_the_cut_come_alive_and_the_arrows_through_it():
    boxes, arrows, said = undo(pictures.mlp())
    assert (boxes["fc1"], boxes["fc2"], boxes["plate"]) == ("live", "live", "live")
    assert "fc3" not in boxes
    assert any(tail == "plate" for tail, _ in arrows)
    assert any(head == "plate" for _, head in arrows)
    assert said.startswith("As in the rerun without the cut at train.py:18: 4 parameters get a gradient.")


def test_the_words_of_the_boxes_and_of_the_loss_are_those_of_the_rerun():
    picture = pictures.mlp()
    made = what_if.shown(what_if.Flows(picture), chart_of(picture, "map"), Phrases(picture), 0)
    texts = [pair for _, _, pairs in made["boxes"] for pair in pairs]
    assert ["✗ should train, no gradient", "✓ would get a gradient"] in texts
    assert [
        "backward() runs, but 4 of 6 parameters never learn",
        "backward() runs: every parameter that should train gets a gradient",
    ] in texts


def test_it_is_said_in_chinese_too():
    with speaking("zh"):
        assert "代码没有改动" in undo(pictures.mlp())[2]


def test_of_a_finding_without_a_proof_nothing_is_shown():
    assert undo(pictures.functional()) is None
    proven = pictures.mlp()
    unsure = replace(proven.findings[0], proof=LIKELY)
    assert undo(replace(proven, findings=(unsure,))) is None


def test_where_another_cut_lies_behind_it_nothing_is_drawn_through_that():
    assert undo(pictures.two_cuts(), 0) is None


def test_parameters_that_the_rerun_did_not_bring_back_stay_as_they_are():
    picture = pictures.mlp()
    some = replace(picture.findings[0], revived=("fc2.weight", "fc2.bias"))
    boxes, _, _ = undo(replace(picture, findings=(some,)))
    assert "fc1" not in boxes
    assert boxes["fc2"] == "live"


def test_a_box_of_which_only_some_parameters_come_back_says_so():
    picture = pictures.mlp()
    some = replace(picture.findings[0], revived=("fc2.weight",))
    flows = what_if.Flows(replace(picture, findings=(some,)))
    made = what_if.shown(flows, chart_of(picture, "map"), Phrases(picture), 0)
    assert "partly" in [status for _, status, _ in made["boxes"]]


@pytest.mark.parametrize("make", [programs.mlp, programs.unet, lambda: programs.rnn(steps=20)])
def test_of_real_programs_every_starved_box_before_the_cut_is_linked_with_the_plate(make):
    picture = diagnosed(make)
    boxes, arrows, _ = undo(picture)
    reached = {"plate"}
    for _ in arrows:
        reached |= {tail for tail, head in arrows if head in reached}
    assert {name for name, status in boxes.items() if status == "live" and "loss" not in name} <= reached


def test_each_of_two_cuts_brings_back_its_own():
    picture = diagnosed(programs.two_cuts)
    found = [undo(picture, index)[0] for index in (0, 1)]
    mine = {frozenset(name for name in boxes if name in ("encoder", "codes")) for boxes in found}
    assert mine == {frozenset({"encoder"}), frozenset({"codes"})}


class Quantized(nn.Module):
    """A choice that has no gradient by nature, beside a cut: what flows into the choice alone stays without one."""

    def __init__(self):
        super().__init__()
        self.body, self.codes, self.head = nn.Linear(4, 4), nn.Embedding(8, 4), nn.Linear(4, 1)

    def forward(self, x):
        body = self.body(x)
        nearest = torch.cdist(body, self.codes.weight).argmin(1)
        return self.head(self.codes(nearest).detach() + body)


def test_no_arrow_is_drawn_through_a_choice_that_has_no_gradient_by_nature():
    def make():
        net, x = Quantized(), torch.randn(6, 4)
        return net, lambda: net(x).square().mean()

    picture = diagnosed(make)
    chart, words = chart_of(picture, "graph"), Phrases(picture)
    made = what_if.shown(what_if.Flows(picture), chart, words, 0)
    title = {box.number: words.title(box) for box in chart.boxes}
    through = [ends for ends in made["arrows"] if {"argmin", "cdist"} & {title[number] for number in ends}]
    assert through == []


def test_torchviz_is_shown_as_it_is():
    picture = diagnosed(programs.mlp)
    chart = chart_of(picture, "graph")
    assert any(card["undo"] for card in cards(picture, "graph", shown=chart).values())
    assert not any(card["undo"] for card in cards(picture, shown=replace(chart, view="torchviz")).values())
