"""Reports and pictures of very large models: the work grows with the size, and no depth is too deep."""

import sys
from collections.abc import Callable

import pytest

from gradkit.core.records import Edge, Finding, Location, ModuleInfo, Node, Parameter, Picture
from gradkit.report import breakdown
from gradkit.report.picture import dot
from gradkit.report.picture.cards import cards
from gradkit.report.picture.chart import Links
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.outline import MOST, MOST_PLATES, Outline, lineage
from gradkit.report.report import Report


def _calls(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls, those written in C too."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def _sum_of(n: int, module: str = "ps") -> Picture:
    """``sum(p.sum() for p in ps)`` as a picture: a parameter, its sum, and an addition each."""
    nodes, edges, last = [], [], 0
    for i in range(n):
        at = n + 2 * i + 1
        nodes += [
            Node(i + 1, f"{module}.{i}", "parameter", "live", module=module, shape=(2,)),
            Node(at, "SumBackward0", "autograd", "live"),
            Node(at + 1, "AddBackward0", "autograd", "live"),
        ]
        edges += [Edge(i + 1, at, "live"), Edge(at, at + 1, "live")]
        edges += [Edge(last, at + 1, "live")] if last else []
        last = at + 1
    nodes.append(Node(last + 1, "loss", "loss", "live"))
    modules = (
        ModuleInfo("", "Net", 2 * n, 2 * n, 2 * n, True),
        ModuleInfo(module, "ParameterList", 2 * n, 2 * n, 2 * n, True),
    )
    return Picture(
        tuple(sorted(nodes, key=lambda node: node.number)), (*edges, Edge(last, last + 1, "live")), modules, ()
    )


def _cuts(n: int) -> Report:
    """As many findings as parameters, each with a cut of its own."""
    nodes, edges, findings, rows = [], [], [], []
    for i in range(n):
        parameter, cut = i + 1, n + i + 1
        nodes += [Node(parameter, f"w{i}", "parameter", "starved", shape=(2,))]
        nodes += [Node(cut, "detach", "cut", "cut", finding=i)]
        edges += [Edge(parameter, cut, "cut"), Edge(cut, 2 * n + 1, "cut")]
        findings.append(
            Finding("detach", Location("a.py", i + 1, text="y = x.detach()"), parameters=(f"w{i}",), numel=2)
        )
        rows.append(Parameter(f"w{i}", (2,), 2, "float32", True, True, True, True, False, None, "Net"))
    nodes.append(Node(2 * n + 1, "loss", "loss", "dead"))
    nodes.sort(key=lambda node: node.number)
    return Report(
        tuple(findings),
        tuple(rows),
        Picture(tuple(nodes), tuple(edges), (), tuple(findings), backward=False),
        backward=False,
    )


def _nested(depth: int) -> Picture:
    """A module in a module in a module ..., each with a weight and an operation of its own."""
    paths = [".".join(["0"] * level) for level in range(depth)]
    weights = [
        Node(i + 1, f"{path}.w", "parameter", ("live", "starved")[i % 2], module=path) for i, path in enumerate(paths)
    ]
    calls = [Node(depth + i + 1, "MulBackward0", "autograd", "live", module=path) for i, path in enumerate(paths)]
    edges = [Edge(i + 1, depth + i + 1, "live") for i in range(depth)]
    edges += [Edge(depth + i, depth + i + 1, "live") for i in range(1, depth + 1)]
    nodes = (*weights, *calls, Node(2 * depth + 1, "loss", "loss", "live"))
    return Picture(nodes, tuple(edges), tuple(ModuleInfo(path, "Sequential", 1, 1, 1, True) for path in paths), ())


def _wide(n: int) -> Picture:
    """A dict of modules, each of its own class."""
    nodes = tuple(Node(i + 1, f"d.k{i}.w", "parameter", "live", module=f"d.k{i}") for i in range(n))
    modules = tuple(ModuleInfo(f"d.k{i}", f"Kind{i}", 1, 1, 1, True) for i in range(n))
    return Picture(
        (*nodes, Node(n + 1, "loss", "loss", "live")), tuple(Edge(i + 1, n + 1, "live") for i in range(n)), modules, ()
    )


@pytest.mark.parametrize("make", [_sum_of, _wide, lambda n: _cuts(n).picture], ids=["sum", "wide", "cuts"])
@pytest.mark.parametrize("view", ["map", "graph", "near"])
def test_twice_the_model_takes_about_twice_the_work(make, view):
    small, large = make(300), make(600)
    dot.dot(small, view)
    once = _calls(lambda: dot.dot(small, view))
    twice = _calls(lambda: dot.dot(large, view))
    assert twice < 2.7 * once + 20_000


@pytest.mark.parametrize("what", ["text", "html", "data", "breakdown", "cards"])
def test_twice_the_findings_take_about_twice_the_work_to_write_down(what):
    def write(report: Report) -> object:
        if what == "cards":
            return cards(report.picture, "graph")
        return report.html("en", with_picture=False) if what == "html" else getattr(report, what)()

    small, large = _cuts(200), _cuts(400)
    write(small)
    assert _calls(lambda: write(large)) < 2.7 * _calls(lambda: write(small)) + 5_000


def test_the_map_of_ten_thousand_summed_parameters_has_few_boxes():
    assert len(chart_of(_sum_of(10_000), "map").boxes) <= MOST


def test_a_thousand_findings_have_a_few_plates_and_the_rest_is_counted():
    report = _cuts(1_000)
    boxes = chart_of(report.picture, "map").boxes
    assert [box.finding for box in boxes if box.kind in ("cut", "plate")] == list(range(MOST_PLATES))
    left = f"{1_000 - MOST_PLATES} more findings"
    assert left in report.graph("map", "en").source.replace("\N{NO-BREAK SPACE}", " ")


def test_few_findings_all_have_plates_and_nothing_is_said():
    report = _cuts(MOST_PLATES)
    boxes = chart_of(report.picture, "map").boxes
    assert sum(box.kind == "cut" for box in boxes) == MOST_PLATES
    assert "further" not in report.graph("map", "en").source


@pytest.mark.parametrize("view", ["map", "graph", "near"])
def test_modules_nested_a_thousand_deep_are_drawn(view):
    assert "loss" in dot.dot(_nested(1_000), view).source


def test_modules_nested_a_thousand_deep_are_counted():
    picture = _nested(1_000)
    rows = [
        Parameter(node.label, (1,), 1, "float32", True, True, True, True, True, 0.5, "Sequential")
        for node in picture.nodes
        if node.kind == "parameter"
    ]
    assert sum(share.numel for share in breakdown.shares(rows, picture.modules) if share.level == 0) == 1_000


def test_paths_that_share_a_parent_share_its_string():
    one, other = lineage("a.b.c"), lineage("a.b.d")
    assert one[2] is other[2]


def test_a_list_that_is_too_wide_to_unfold_is_looked_through_a_few_times_only():
    looked = []

    class Counting(Outline):
        def _runs(self, parent, unfolded, by_hand):
            looked.append(parent)
            return super()._runs(parent, unfolded, by_hand)

    Counting(_wide(2_000)).parts()
    assert len(looked) < 20


def test_what_lies_behind_a_chain_of_many_links_is_found_without_recursion():
    wires = Links(((i,), (i + 1,), "live") for i in range(20_000))
    ranks = wires.ranks()
    assert wires.come_into([(0,)], (20_000,), ranks)
    assert not wires.come_into([(20_000,)], (0,), ranks)


def test_a_name_of_a_hundred_thousand_letters_is_shortened_everywhere():
    name = "a" * 100_000
    finding = Finding("detach", Location("a.py", 1, text="y = x.detach()"), parameters=(name,), numel=2)
    nodes = Node(1, name, "parameter", "starved", shape=(2,)), Node(2, "detach", "cut", "cut", finding=0)
    picture = Picture((*nodes, Node(3, "loss", "loss", "dead")), (Edge(1, 2, "cut"), Edge(2, 3, "cut")), (), (finding,))
    report = Report(
        (finding,), (Parameter(name, (2,), 2, "float32", True, True, True, True, False, None, "Net"),), picture
    )
    for page in (
        report.text("en"),
        report.html("en", with_picture=False),
        report.breakdown(),
        report.graph("map").source,
    ):
        assert len(page) < 20_000
