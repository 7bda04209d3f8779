"""Drawing: what is in a picture is in the DOT, in words, in shape and in colour. Golden files show all of it.

GRADKIT_REGOLD=1 writes the golden files anew.
"""

# ruff: noqa: RUF001 - what is asserted is what a person reads, dashes and Chinese commas included

from __future__ import annotations

import html
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import columns, speaking
from gradkit.core.records import Edge, Finding, Location, ModuleInfo, Node, Picture
from gradkit.report.picture.cards import cards
from gradkit.report.picture.dot import dot
from gradkit.report.picture.fold import FIRST_GRAPH, chart_of
from gradkit.report.picture.outline import MOST
from gradkit.report.picture.render import size, svg
from gradkit.report.picture.style import framed, is_wide
from gradkit.report.picture.words import Phrases
from tests import pictures

GOLDEN = Path(__file__).parents[1] / "goldens" / "drawing"
VIEWS, LANGUAGES = ("map", "graph"), ("en", "zh")
NODE = re.compile(r"^\t+(n\d+) \[label=<(.*)> class=(\w+)(.*)\]$", re.MULTILINE)
ROW = re.compile("</tr>|</font><font[^>]*>(?:<b>)?\u00a0\u00a0")  # a state may stand beside a title
EDGE = re.compile(r"^\t+(n\d+) -> (n\d+) \[(.*)\]$", re.MULTILINE)


def everything():
    return [(name, view, language) for name in pictures.ALL for view in VIEWS for language in LANGUAGES]


def nodes(source):
    """``{"n3": (visible text of each row, class, other attributes)}``."""
    found = {}
    for name, label, status, rest in NODE.findall(source):
        rows = [html.unescape(re.sub(r"<[^>]+>", "", row)) for row in re.split(ROW, label)]
        found[name] = ([row.replace("\u00a0", " ").replace("\\\\", "\\") for row in rows if row], status, rest)
    return found


def edges(source):
    return {(tail, head): attributes for tail, head, attributes in EDGE.findall(source)}


def texts(source):
    return "\n".join(row for rows, _, _ in nodes(source).values() for row in rows)


def by_title(source, title):
    return next(found for found in nodes(source).values() if found[0][0].startswith(title))


# ------------------------------------------------------------------------------------------------ golden files


@pytest.mark.parametrize(
    ("name", "view", "language"),
    [
        *((name, "map", "en") for name in pictures.ALL),
        ("gpt_no_grad", "map", "zh"),
        ("vision_detach", "map", "zh"),
        ("adapter_frozen", "map", "zh"),
        ("mlp_detach", "graph", "en"),
        ("hostile", "graph", "zh"),
    ],
)
def test_a_picture_is_drawn_as_it_was_looked_at_last(name, view, language):
    path = GOLDEN / f"{name}.{view}.{language}.dot"
    with speaking(language):
        source = dot(pictures.ALL[name](), view).source
    if os.environ.get("GRADKIT_REGOLD") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8", newline="\n")
    assert source == path.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------ every drawing


@pytest.mark.parametrize(("name", "view", "language"), everything())
def test_every_box_has_a_stable_number_a_class_and_a_tooltip(name, view, language):
    picture = pictures.ALL[name]()
    with speaking(language):
        source = dot(picture, view).source
    drawn = nodes(source)
    assert len(drawn) == len(re.findall(r"\bid=n\d+\b", source)) > 1
    known = {f"n{node.number}" for node in picture.nodes}
    above = {f"n{len(picture.nodes) + 1 + index}" for index in range(len(picture.findings))}
    for name_, (_, status, rest) in drawn.items():
        assert f"id={name_} " in rest
        assert "tooltip=" in rest
        assert status in {"live", "dead", "starved", "partly", "frozen", "cut", "input", "loss"}
        assert name_ in known | above


@pytest.mark.parametrize(("name", "view", "language"), everything())
def test_no_label_begins_with_an_empty_line(name, view, language):
    with speaking(language):
        source = dot(pictures.ALL[name](), view).source
    assert all(rows[0].strip() for rows, _, _ in nodes(source).values())


@pytest.mark.parametrize(("name", "view"), [(name, view) for name in pictures.ALL for view in VIEWS])
def test_two_runs_draw_the_same(name, view):
    first, second = (dot(pictures.ALL[name](), view).source for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("name", "view"), [(name, view) for name in pictures.ALL for view in VIEWS])
def test_every_box_has_a_card(name, view):
    picture = pictures.ALL[name]()
    assert {f"n{number}" for number in cards(picture, view)} == set(nodes(dot(picture, view).source))


@pytest.mark.parametrize("name", pictures.ALL)
def test_every_finding_has_exactly_one_full_plate(name):
    picture = pictures.ALL[name]()
    for view in VIEWS:
        source = dot(picture, view).source
        for finding in picture.findings:
            place = f"{finding.location.file.replace(chr(92), '/').rpartition('/')[2]}:{finding.location.line}  "
            assert texts(source).count(place) == 1


@pytest.mark.parametrize("name", ["mlp_healthy", "gpt_healthy", "vision_healthy", "adapter_healthy"])
def test_a_healthy_picture_has_no_plate_and_no_red(name):
    source = dot(pictures.ALL[name](), "map").source
    assert "#D92D20" not in source
    assert "✗" not in source
    assert "every parameter that should train gets a gradient" in texts(source)


def test_the_graph_view_draws_every_node():
    picture = pictures.gpt()
    assert len(nodes(dot(picture, "graph").source)) == len(picture.nodes)


def test_a_mask_that_feeds_every_layer_of_a_large_graph_is_counted_not_drawn_twelve_times():
    picture = pictures.gpt()
    mask = next(node.number for node in picture.nodes if node.label == "where")
    source = dot(picture, "graph").source
    assert len([tail for tail, _ in edges(source) if tail == f"n{mask}"]) == 1
    assert "used in 11 more places" in nodes(source)[f"n{mask}"][0][1]


def test_no_link_that_a_gradient_could_take_is_left_out_of_a_large_graph():
    picture = pictures.gpt()
    drawn = set(edges(dot(picture, "graph").source))
    mask = next(node.number for node in picture.nodes if node.label == "where")
    assert {(f"n{edge.source}", f"n{edge.target}") for edge in picture.edges if edge.source != mask} <= drawn


def test_a_recurrent_weight_is_linked_once_and_its_further_uses_counted():
    sketch = pictures.Sketch()
    h, weight = sketch.input("x", (4,)), sketch.weight("rnn.weight", (4, 4), "live")
    for _ in range(70):
        h = sketch.op("addmm", "live", h, weight, module="rnn")
    sketch.node("loss", "loss", "live", h)
    source = dot(sketch.picture("1", True), "graph").source
    assert len([tail for tail, _ in edges(source) if tail == f"n{weight}"]) == 1
    assert nodes(source)[f"n{weight}"][0][1] == "(4, 4) · used in 69 more places · ✓ gets a gradient"


def test_auto_is_the_graph_up_to_24_nodes_and_the_map_above():
    assert len(pictures.mlp().nodes) <= FIRST_GRAPH < len(pictures.gpt().nodes)
    assert chart_of(pictures.mlp()).view == "graph"
    assert chart_of(pictures.gpt()).view == "map"


def test_another_view_is_refused_by_name():
    with pytest.raises(GradkitError, match="no view tree"):
        dot(pictures.mlp(), "tree")


# ------------------------------------------------------------------------------------------------ colour, shape, words


def test_states_differ_in_words_and_in_outline_not_only_in_colour():
    source = dot(pictures.gpt(), "map").source
    frozen = dot(pictures.vision(), "map").source
    drawn = {
        "live": by_title(source, "lm_head"),
        "starved": by_title(source, "wte"),
        "dead": by_title(source, "add"),
        "frozen": by_title(frozen, "ocr_encoder"),
    }
    outlines = {re.sub(r'#\w+|(fill)?color="[^"]*"', "", re.sub(r" (id|tooltip)=\S+.*?(?= \w+=|$)", "", rest))
                for _, _, rest in drawn.values()}  # fmt: skip
    assert "rounded,dashed" in drawn["dead"][2]
    assert "peripheries=2" in drawn["starved"][2]
    assert "rounded" not in drawn["starved"][2]
    assert len(outlines) == 4
    assert drawn["live"][0][1] == "✓ gets a gradient"
    assert drawn["starved"][0][1] == "✗ should train, no gradient"
    assert drawn["frozen"][0][1] == "frozen"


def test_the_gradient_is_a_thick_green_arrow_backward_and_its_absence_a_dashed_grey_line():
    drawn = edges(dot(pictures.gpt(), "map").source)
    live = [look for look in drawn.values() if "class=live" in look]
    dead = [look for look in drawn.values() if "class=dead" in look and "style" in look]
    cut = [look for look in drawn.values() if "class=cut" in look]
    assert live
    assert all("dir=back" in look and width(look) > 1.5 and "#12A150" in look for look in live)
    assert dead
    assert all("arrowhead=vee" in look and "style=dashed" in look for look in dead)
    assert len(cut) == 2
    assert all("#D92D20" in look and "style=dashed" in look and "arrowhead=vee" in look for look in cut)


def width(look):
    return float(re.search(r"penwidth=([\d.]+)", look)[1])


def test_the_more_parameters_a_gradient_goes_on_to_the_thicker_its_arrow():
    drawn = edges(dot(pictures.gpt(), "map").source)
    loss, layers = (drawn[ends] for ends in live_ends(drawn, "lm_head", "transformer.h.6"))
    assert width(loss) > width(layers) > 1.6
    assert re.search(r'tooltip="carries the gradient of [\d.]+ M values"', loss)


def live_ends(drawn, *titles):
    """The arrow that brings a box its gradient, for each title."""
    found = cards(pictures.gpt(), "map")
    numbers = [next(n for n, card in found.items() if card["title"].startswith(title)) for title in titles]
    return [next(e for e, look in drawn.items() if e[0] == f"n{n}" and "class=live" in look) for n in numbers]


def test_the_carets_stand_under_the_very_call():
    rows, _, _ = by_title(dot(pictures.vision(), "map").source, "✂")
    code, carets = rows[1], rows[2]
    assert code.endswith("vision_embeds = self.proj(feats).detach()")
    assert code[carets.index("^") : carets.rindex("^") + 1] == ".detach()"


def test_carets_keep_their_place_behind_chinese():
    text = "    数据 = 网络(输入).detach()"
    column = text.index(".detach") + 1
    code, carets = framed(Location("拟合.py", 3, column, column + len(".detach()"), "f", text))
    before = carets.rstrip("^")
    assert [is_wide(char) for char in before] == [is_wide(char) for char in code[: code.index(".detach")]]
    assert carets.count("^") == len(".detach()")


def test_a_long_line_is_shortened_around_the_call():
    text = "    result = " + "first_part(a, b, c) + " * 6 + "kept.detach()" + " + last_part(d, e, f)" * 6
    column = text.index(".detach") + 1
    code, carets = framed(Location("a.py", 1, column, column + len(".detach()"), "f", text))
    assert columns(code) <= 64
    assert (code[0], code[-1]) == ("…", "…")
    assert code[carets.index("^") : carets.rindex("^") + 1] == ".detach()"


def test_a_line_without_a_known_expression_has_no_carets():
    assert framed(Location("a.py", 1, 5, 5, "f", "    x = y")) == ("x = y", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vision_detach", "proven: in a rerun without it, 4 parameters get a gradient"),
        ("functional", "likely: seen in the recorded run, not proven by a rerun"),
        ("frozen_all", "observed: read from the model; no rerun needed"),
    ],
)
def test_a_plate_says_how_sure_it_is(name, words):
    assert words in texts(dot(pictures.ALL[name](), "map").source)


def test_the_loss_says_its_value_and_whether_backward_runs():
    assert by_title(dot(pictures.gpt(), "map").source, "loss")[0] == [
        "loss  10.83",
        "backward() runs, but 62 of 124 parameters never learn",
    ]
    with speaking("zh"):
        source = dot(pictures.vision(), "map").source
    assert by_title(source, "损失")[0] == [
        "损失  2.3026",
        "requires_grad = False，没有 grad_fn：backward() 会报错",
    ]


def test_a_loss_with_history_that_backward_refuses_is_not_said_to_have_none():
    picture = replace(pictures.mlp(cut=False), backward=False, findings=(Finding("non_scalar", None),))
    assert by_title(dot(picture, "map").source, "loss")[0][1] == (
        "backward() raises, though the loss has a grad_fn: see the label"
    )


# ------------------------------------------------------------------------------------------------ what was not cut


@pytest.mark.parametrize(
    ("name", "headline", "beside"),
    [
        ("vision_unused", "never used in this pass", "proj"),
        ("adapter_frozen", "nothing here can train", "layers"),
        ("frozen_all", "nothing here can train", "body"),
    ],
)
def test_a_finding_without_a_cut_has_a_plate_beside_the_module_and_no_scissors(name, headline, beside):
    source = dot(pictures.ALL[name](), "map").source
    titles = {found[0][0]: node for node, found in nodes(source).items()}
    plate = next(node for title, node in titles.items() if title.startswith(headline))
    assert "✂" not in source
    assert (titles[beside], plate) in edges(source)


def test_a_parameter_that_no_edge_leaves_is_starved_and_drawn():
    rows, status, _ = by_title(dot(pictures.vision(used=False), "map").source, "proj")
    assert status == "starved"
    assert rows == [
        "proj",
        "✗ should train, no gradient",
        "Linear 512→4096, GELU, Linear 4096→4096 · 18.9 M values",
    ]


def test_a_cause_that_nobody_worded_still_gets_a_plate():
    picture = Picture((Node(1, "loss", "loss", "dead"),), (), (), (Finding("unheard_of", None),), "0", False)
    assert "the gradient is lost here  ·  unheard_of" in texts(dot(picture, "map").source)


# ------------------------------------------------------------------------------------------------ the map


def titles(picture, **arguments):
    return [rows[0] for rows, _, _ in nodes(dot(picture, "map", **arguments).source).values()]


def test_like_layers_in_a_row_are_one_box():
    assert {"h.0 – h.5", "h.6 – h.11"} <= set(titles(pictures.gpt()))
    assert "GPT2Block ×6 · 42.5 M values" in texts(dot(pictures.gpt(), "map").source)


def test_the_region_around_a_cut_stays_visible():
    seen = titles(pictures.residual())
    assert {"layers.0 – layers.4", "qkv", "out", "layers.6 – layers.11"} <= set(seen)


def test_a_gradient_that_goes_around_a_cut_is_drawn():
    source = dot(pictures.residual(), "map").source
    names = {found[0][0]: node for node, found in nodes(source).items()}
    assert "class=live" in edges(source)[names["layers.0 – layers.4"], names["add"]]


def test_one_line_that_cuts_in_every_layer_is_one_plate():
    seen = titles(pictures.residual(cut_layers=tuple(range(12))))
    assert [title for title in seen if "✂" in title] == ["✂  the gradient is cut here  ·  detach  ·  in 12 places"]


def test_a_folded_module_can_be_opened():
    closed, opened = titles(pictures.gpt()), titles(pictures.gpt(), open=["transformer.h"])
    assert "h.7" not in closed
    assert {f"h.{layer}" for layer in range(12)} <= set(opened)


def test_a_card_says_which_module_opens_its_box():
    found = {card["title"]: card["open"] for card in cards(pictures.gpt(), "map").values()}
    assert found["transformer.h.0 – h.5"] == "transformer.h"
    assert found["lm_head"] == ""


def test_two_cuts_in_a_row_are_both_drawn_in_order():
    seen = titles(pictures.two_cuts())
    source = dot(pictures.two_cuts(), "map").source
    names = {found[0][0]: node for node, found in nodes(source).items()}
    plates = [title for title in seen if "✂" in title]
    assert [re.search(r"· +(\w+)$", title)[1] for title in plates] == ["detach", "data_attr"]
    assert {(names["a"], names[plates[0]]), (names[plates[0]], names["b"]), (names["b"], names[plates[1]])} <= set(
        edges(source)
    )


def test_the_rounds_of_a_loop_are_one_box():
    sketch = pictures.Sketch()
    x = sketch.input("x", (8, 4))
    h = sketch.linear("fc", x, (4, 4), "live", "live")
    rounds = [sketch.op("sigmoid", "live", sketch.op("mul", "live", h, x)) for _ in range(5)]
    sketch.node(
        "loss", "loss", "live", sketch.linear("head", sketch.op("cat", "live", *rounds), (4, 1), "live", "live")
    )
    assert titles(sketch.picture("1", True)) == ["batch", "fc", "mul · sigmoid", "cat", "head", "loss  1"]


def test_views_and_transposes_are_no_boxes_of_the_map():
    assert not {"t", "slice", "view", "split"} & set(titles(pictures.gpt()))


@pytest.mark.parametrize("statuses", [None, ["starved", "live"] * 24, ["live", "frozen", "starved"] * 16])
def test_a_transformer_of_48_layers_has_at_most_60_boxes(statuses):
    picture = pictures.gpt(48, cut_in=None if statuses else 20, statuses=statuses)
    assert len(nodes(dot(picture, "map").source)) <= MOST


def test_a_hundred_unlike_layers_still_have_at_most_60_boxes():
    sketch = pictures.Sketch()
    h = sketch.input("x", (8, 4))
    for layer in range(100):
        h = sketch.linear(f"layer_{layer}", h, (4, 4), "live", "live" if layer % 2 else "starved")
        h = sketch.op("add", "live", h, sketch.op("mul", "live", h))
    sketch.node("loss", "loss", "live", h)
    assert len(nodes(dot(sketch.picture("1", True), "map").source)) <= MOST


@pytest.mark.parametrize("seed", range(20))
def test_a_map_of_random_parts_keeps_every_parameter_and_every_link_between_its_boxes(seed):
    rng = random.Random(seed)
    made, links = [Node(1, "x", "input", "dead")], []
    for number in range(2, 120):
        kind = rng.choice(["autograd", "autograd", "call", "parameter"])
        status = rng.choice(["live", "starved", "frozen"] if kind == "parameter" else ["live", "dead"])
        module = ".".join(str(rng.randrange(3)) for _ in range(rng.randrange(4)))
        made.append(Node(number, f"op{number}", kind, status, module))
        if kind != "parameter":
            links += [Edge(rng.randrange(1, number), number, rng.choice(["live", "dead"])) for _ in range(2)]
    made.append(Node(120, "loss", "loss", "live"))
    links.append(Edge(119, 120, "live"))
    paths = {".".join(node.module.split(".")[:end]) for node in made for end in range(1, 4)} - {""}
    modules = tuple(ModuleInfo(path, "Part", 1, 1, 1, True) for path in sorted(paths))
    shown = chart_of(Picture(tuple(made), tuple(links), modules, ()), "map")
    held = [node.number for box in shown.boxes for node in box.members]
    assert len(held) == len(set(held))
    assert {node.number for node in made if node.kind == "parameter"} <= set(held)
    numbers = {box.number for box in shown.boxes}
    assert len(numbers) == len(shown.boxes) <= MOST
    assert all({arrow.tail, arrow.head} <= numbers and arrow.tail != arrow.head for arrow in shown.arrows)


def test_a_gpt_of_12_layers_fits_about_one_page():
    width, height = size(svg(dot(pictures.gpt(), "map")))
    assert width < 700
    assert height < 842  # points, as A4 has; how wide letters are depends on the fonts of the machine


# ------------------------------------------------------------------------------------------------ words


def test_a_card_tells_what_a_starved_parameter_waits_for():
    card = next(card for card in cards(pictures.mlp(), "graph").values() if card["title"] == "fc1.weight")
    assert card["state"] == "✗ should train, no gradient"
    assert card["why"] == ["It should train, but no gradient reaches it: detach at train.py:18."]


def test_a_card_shows_the_line_with_its_neighbours(tmp_path):
    file = tmp_path / "step.py"
    file.write_text("def f(x):\n    y = x.detach()\n    return y\n")
    place = Location(str(file), 2, 9, 19, "f", "    y = x.detach()")
    picture = Picture(
        (Node(1, "detach", "cut", "cut", location=place, finding=0),), (), (), (Finding("detach", place),)
    )
    lines = cards(picture, "graph")[1]["code"]
    assert [(line["line"], line["here"]) for line in lines] == [(1, False), (2, True), (3, False)]
    here = lines[1]
    assert here["text"][here["from"] : here["to"]] == "x.detach()"


def test_a_card_shows_three_lines_on_each_side(tmp_path):
    file = tmp_path / "step.py"
    file.write_text("".join(f"line_{number}()\n" for number in range(1, 20)))
    place = Location(str(file), 10, 1, 1, "f", "line_10()")
    picture = Picture((Node(1, "line", "call", "dead", location=place),), (), (), ())
    assert [line["line"] for line in cards(picture, "graph")[1]["code"]] == list(range(7, 14))


def test_a_card_tells_what_goes_in_and_what_comes_out():
    drawn = cards(pictures.mlp(), "map").values()
    rows = {card["title"]: dict(card["rows"]) for card in drawn}
    assert (rows["fc1"]["Takes"], rows["fc1"]["Gives"]) == ("x (8, 4)", "(8, 16)")
    assert rows["batch"]["Holds"] == "x (8, 4)"


def test_a_card_can_be_searched_by_all_that_is_in_its_box():
    card = next(c for c in cards(pictures.gpt(), "map").values() if c["title"].startswith("transformer.h.6"))
    assert {"transformer.h.9.mlp.c_fc.weight", "transformer.h.8.attn", "gelu", "GeluBackward0"} <= set(card["names"])


def test_a_plate_can_be_searched_by_its_line_its_cause_and_whom_it_starves():
    card = next(c for c in cards(pictures.gpt(), "map").values() if c["kind"] == "cut")
    assert card["places"][:2] == ["model.py:88", "model.py:89"]
    assert {"no_grad_block", "transformer.h.0.ln_1.weight"} <= set(card["names"])


def test_what_is_left_out_of_a_large_graph_is_said_in_the_drawing_and_on_the_loss():
    picture = replace(pictures.mlp(), left_out=24_010, more_inputs=3)
    assert "24,010 autograd nodes" in svg(dot(picture, "map")).replace("\u00a0", " ")
    loss = next(card for card in cards(picture, "map").values() if card["kind"] == "loss")
    assert "24,010" in dict(loss["rows"])["Not shown"]
    assert "+ 3 more" in texts(dot(picture, "map").source)


def test_a_card_shows_the_recorded_line_when_the_file_has_changed(tmp_path):
    file = tmp_path / "step.py"
    file.write_text("something else\n")
    place = Location(str(file), 1, 1, 1, "f", "y = x.detach()")
    picture = Picture(
        (Node(1, "detach", "cut", "cut", location=place, finding=0),), (), (), (Finding("detach", place),)
    )
    assert [line["text"] for line in cards(picture, "graph")[1]["code"]] == ["y = x.detach()"]


def test_chinese_drawings_are_in_chinese():
    with speaking("zh"):
        said = texts(dot(pictures.gpt(), "map").source)
    words = ["批次", "梯度在此处切断", "✗ 应当训练，却没有梯度", "已证实", "永远不会更新"]
    assert [word for word in words if word not in said] == []
    assert "gradient" not in said


@pytest.mark.parametrize(
    ("language", "claim", "truth"), [("en", "gets a gradient", "connected"), ("zh", "有梯度", "已连通")]
)
def test_where_backward_raises_a_parameter_is_connected_and_gets_nothing(language, claim, truth):
    weight, add = Node(1, "w", "parameter", "live"), Node(2, "AddBackward0", "autograd", "live")
    nodes, edges = (weight, add, Node(3, "loss", "loss", "live")), (Edge(1, 2, "live"), Edge(2, 3, "live"))
    for view in ("graph", "map"):
        with speaking(language):
            raised = str(dot(Picture(nodes, edges, (), (), backward=False), view).source)
            runs = str(dot(Picture(nodes, edges, (), ()), view).source)
        assert truth in raised
        assert claim not in raised
        assert claim in runs


WHOLE = (
    "amp_misuse", "built_in_forward", "create_graph_missing", "ddp_unused", "double_backward", "grad_on_non_leaf",
    "hook_misuse", "inplace_modified", "library_bug", "unused_input", "zero_gradient",
)  # fmt: skip


@pytest.mark.parametrize("cause", WHOLE)
def test_a_fault_that_cuts_nothing_is_not_headed_as_a_loss_of_the_gradient(cause):
    words = Phrases(Picture((), (), (), ()))
    assert "lost" not in words.heading(Finding(cause, None), in_flow=False)
    assert cause in words.heading(Finding(cause, None), in_flow=False)
