"""The frames of a map: names that many boxes begin with are said once, and what is framed lies together."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gradkit.core.records import Edge, ModuleInfo, Node, Picture
from gradkit.report.picture import viewer
from gradkit.report.picture.dot import dot
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.nested import nested, prefixes
from gradkit.report.picture.style import broken, framed
from gradkit.report.picture.torchviz_kept import Kept
from tests import pictures


def frames(picture, opened=()):
    return [frame for frame, _ in nested(chart_of(picture, "map", opened)).below()]


def paths(picture, opened=()):
    return [frame.path for frame in frames(picture, opened) if frame.path]


def inside(picture, path):
    frame = next(frame for frame in frames(picture) if frame.path == path)
    boxes = {box.number: box for box in chart_of(picture, "map").boxes}
    return {boxes[number].kind for number in frame.all_boxes}


@pytest.mark.parametrize("name", pictures.ALL)
def test_every_box_stands_in_one_frame(name):
    shown = chart_of(pictures.ALL[name](), "map")
    assert sorted(prefixes(nested(shown))) == sorted(box.number for box in shown.boxes)


def test_what_many_names_begin_with_stands_on_the_frame_and_on_no_box():
    source = dot(pictures.adapter(), "map").source
    assert paths(pictures.adapter()) == ["base_model.model", "base_model.model.model"]
    labels = " ".join(re.findall(r"<b>(.*?)</b>", source))
    assert labels.count("base_model") == 1
    assert "model\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}Qwen3Model" in labels


def test_frames_stand_in_each_other():
    attention = next(frame for frame in frames(pictures.residual()) if frame.path == "layers.5.attn")
    layers = next(frame for frame in frames(pictures.residual()) if frame.path == "layers")
    assert attention.all_boxes < layers.all_boxes


def test_a_cut_inside_of_a_module_stands_in_its_frame():
    assert "cut" in inside(pictures.residual(), "layers.5.attn")


def test_what_no_gradient_reaches_is_framed_where_it_is():
    shaded = [frame for frame in frames(pictures.residual()) if frame.shaded]
    attention = next(frame for frame in frames(pictures.residual()) if frame.path == "layers.5.attn")
    assert [frame.path for frame in shaded] == [""]
    assert shaded[0].all_boxes < attention.all_boxes


def a_module_that_is_left_and_entered_again():
    order = ("net.a", "other.x", "net.b", "other.y")
    nodes = tuple(Node(n, f"op{n}", "autograd", "live", path) for n, path in enumerate(order, 1))
    links = tuple(Edge(n, n + 1, "live") for n in range(1, 5))
    info = tuple(ModuleInfo(path, "Linear", 4, 4, 4, True) for path in order)
    return Picture((*nodes, Node(5, "loss", "loss", "live")), links, info, ())


def test_a_module_that_the_flow_leaves_and_enters_again_has_no_frame_and_full_names():
    source = dot(a_module_that_is_left_and_entered_again(), "map", open=["net", "other"]).source
    assert "cluster" not in source
    assert all(name in source for name in ("net.a", "net.b", "other.x", "other.y"))


def test_one_that_it_passes_through_once_has_a_frame():
    crossed = a_module_that_is_left_and_entered_again()
    order = ("net.a", "net.b", "other.x", "other.y", "")
    through = replace(
        crossed, nodes=tuple(replace(node, module=path) for node, path in zip(crossed.nodes, order, strict=True))
    )
    assert paths(through, ["net", "other"]) == ["net", "other"]


def test_a_number_is_no_name():
    assert "layers.5" in dot(pictures.residual(), "map").source
    assert not re.search(r"<b>\d+</b>", dot(pictures.residual(), "map").source)


def test_a_frame_is_folded_and_unfolded_again():
    picture = pictures.gpt()
    assert "transformer" in paths(picture)
    assert paths(picture, ["-transformer"]) == []
    titles = [box.part.paths for box in chart_of(picture, "map", ["-transformer"]).boxes if box.part]
    assert ("transformer",) in titles
    assert paths(picture, ["-transformer", "transformer.h"]) == []


def test_a_frame_of_several_modules_in_a_row_folds_the_outermost():
    assert frames(pictures.adapter())[0].folds == "base_model"


def test_a_graph_node_by_node_has_no_frames_of_modules():
    assert [frame.path for frame, _ in nested(chart_of(pictures.mlp(), "graph")).below() if frame.path] == []


def test_the_loss_stands_at_the_end_of_every_drawing():
    for view in ("map", "graph", "near"):
        source = dot(pictures.gpt(layers=36), view).source
        assert re.search(r"rank=sink\s+n\d+", source)


# -- from left to right ------------------------------------------------------------------------------------------------


def shown(picture, view="map"):
    return viewer.drawn(picture, Kept(), view, viewer.chart_of(picture, Kept(), view))


def test_a_drawing_of_few_boxes_is_drawn_from_left_to_right_as_well():
    def size(svg):
        return tuple(float(one) for one in re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', svg).groups())

    made = shown(pictures.mlp())
    (width, height), (across, low) = size(made.svg), size(made.sideways)
    assert across > low
    assert height > width
    assert len(re.findall('class="node', made.svg)) == len(re.findall('class="node', made.sideways))


def test_one_of_many_boxes_is_drawn_from_top_to_bottom_only():
    assert shown(pictures.gpt(layers=36), "graph").sideways == ""


# -- long lines --------------------------------------------------------------------------------------------------------

LONG = "loss = criterion(self.decoder(self.bottleneck(torch.cat([features, context], dim=1))).detach(), targets, masks)"


def test_a_long_line_is_broken_and_not_cut_off():
    at = LONG.index(".detach()") + 1
    place = replace(pictures.mlp().findings[0].location, text=LONG, column=at, end_column=at + 9)
    rows = broken(*framed(place, 50, 4), 50)
    assert "".join(code for code, _ in rows) == LONG
    assert all(len(code) <= 50 for code, _ in rows)
    marked = "".join(code[i] for code, marks in rows for i, mark in enumerate(marks) if mark == "^")
    assert marked == ".detach()"


def test_a_plate_holds_the_whole_of_a_line_that_is_twice_as_long():
    picture = pictures.mlp()
    at = LONG.index(".detach()") + 1
    place = replace(picture.findings[0].location, text=LONG, column=at, end_column=at + 9)
    source = dot(replace(picture, findings=(replace(picture.findings[0], location=place),)), "map").source
    assert "…" not in source
    assert "masks)" in source
