"""DOT → SVG and PNG: whichever Graphviz there is, in a process of its own, and nothing in the result that runs."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET

import graphviz
import pytest

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking
from gradkit.report.picture import render
from gradkit.report.picture.dot import dot
from tests import pictures

SMALL = 'digraph { n1 [label="x", id=n1, tooltip="a < b"]; n2 [label="y"]; n1 -> n2 }'


@pytest.fixture(autouse=True)
def _nothing_from_earlier_tests():
    render._svg.cache_clear()


@pytest.fixture
def fake_dot(tmp_path, monkeypatch):
    """A ``dot`` on PATH that does what the test tells it: a Python program."""

    def install(program):
        path = tmp_path / "dot"
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path))

    return install


@pytest.fixture
def no_dot(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_an_svg_is_one_element_without_a_prologue():
    drawn = render.svg(SMALL)
    assert drawn.startswith("<svg")
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert "<?xml" not in drawn
    assert "DOCTYPE" not in drawn


def test_without_a_dot_on_path_the_bundled_graphviz_draws(no_dot):
    assert render.svg(SMALL).startswith("<svg")
    assert render.png(SMALL)[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_dot_on_path_comes_first(fake_dot):
    fake_dot("import sys; print('<svg><text>' + sys.argv[1] + '</text></svg>')")
    assert ">-Tsvg<" in render.svg(SMALL)


def test_text_and_graph_objects_are_drawn_alike():
    graph = graphviz.Source(SMALL)
    assert render.svg(graph) == render.svg(graph.source)


def test_nothing_in_an_svg_can_run_or_load():
    hostile = (
        'digraph { n1 [label="x", URL="javascript:alert(1)", tooltip="t", target="_blank"];'
        ' n2 [label="y", href="http://example.org/", class="c"]; n1 -> n2 [URL="http://example.org/e"] }'
    )
    drawn = render.svg(hostile)
    root = ET.fromstring(drawn)
    assert "javascript" not in drawn
    assert "example.org" not in drawn
    assert not [element for element in root.iter() if element.tag.rpartition("}")[2] in ("script", "a", "image", "use")]
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]


def test_tooltips_are_titles_and_other_titles_are_gone():
    titles = [element.text for element in ET.fromstring(render.svg(SMALL)).iter() if element.tag.endswith("title")]
    assert titles == ["a < b"]


@speaking("zh")
def test_every_text_names_fonts_that_have_chinese():
    families = re.findall(r'font-family="([^"]+)"', render.svg(dot(pictures.gpt(), "map")))
    assert families
    assert all("Noto Sans CJK SC" in family and "PingFang SC" in family for family in families)


@pytest.mark.parametrize("name", pictures.ALL)
@pytest.mark.parametrize("view", ["map", "graph"])
@speaking("zh")
def test_every_box_of_a_drawing_is_found_in_its_svg_by_number(name, view):
    graph = dot(pictures.ALL[name](), view)
    root = ET.fromstring(render.svg(graph))
    groups = {group.get("id"): group for group in root.iter() if (group.get("class") or "").startswith("node ")}
    assert set(groups) == set(re.findall(r"\bid=(n\d+)\b", graph.source))
    assert all(group.find("{http://www.w3.org/2000/svg}title") is not None for group in groups.values())


def test_names_that_would_break_a_careless_drawing_arrive_as_written():
    drawn = ET.fromstring(render.svg(dot(pictures.hostile(), "graph")))
    texts = [(element.text or "").replace("\u00a0", " ") for element in drawn.iter() if element.tag.endswith("text")]
    assert 'w<1>&"\\N' in texts
    assert "<b>" in texts
    assert '<b>&"x".py:3  y = "<a & b>" \\x07 \\N \\l + x' in texts


@speaking("zh")
def test_text_stays_inside_its_box_where_the_engine_cannot_measure_chinese():
    """Every row is a cell with a width of its own, from the characters, whatever the engine thinks of the font."""
    for label in re.findall(r"label=<(.*?)> class", dot(pictures.gpt(), "map").source):
        for width, size, text in re.findall(r'width="(\d+)"><font[^>]*point-size="(\d+)">(?:<b>)?([^<]*)', label):
            chinese = sum("\u4e00" <= char <= "\u9fff" for char in text)
            assert int(width) >= chinese * int(size)


def test_a_crash_of_the_layout_is_an_error_here_and_no_more(fake_dot):
    fake_dot("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(GradkitError, match="exit status -11"):
        render.svg(SMALL)


def test_a_hanging_layout_is_stopped_in_time(fake_dot):
    fake_dot("import time; time.sleep(60)")
    with pytest.raises(GradkitError, match=r"stopped after 0\.3 seconds"):
        render.svg(SMALL, timeout=0.3)


def test_text_that_is_no_graph_is_refused_with_graphviz_own_words(no_dot):
    with pytest.raises(GradkitError, match="syntax error in line 1"):
        render.svg("digraph { a -> ")


def test_without_any_graphviz_the_error_says_what_to_install(no_dot, monkeypatch):
    monkeypatch.setattr(render.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GradkitError, match="pip install pygraphviz"):
        render.svg(SMALL)


def test_an_svg_that_no_browser_could_show_is_refused(monkeypatch):
    monkeypatch.setattr(render, "LARGEST_SVG", 1000)
    with pytest.raises(GradkitError, match='view="map"'):
        render.svg(dot(pictures.mlp(), "graph"))


def test_a_tall_drawing_becomes_a_bitmap_of_fewer_pixels():
    tall = "digraph { node [height=2]; " + " -> ".join(f"n{i}" for i in range(120)) + " }"
    _, height = pixels(render.png(tall))
    assert height <= render.LARGEST_SIDE
    assert height > 0.9 * render.LARGEST_SIDE


def test_a_bitmap_that_nobody_could_read_is_refused():
    endless = "digraph { node [height=3]; " + " -> ".join(f"n{i}" for i in range(250)) + " }"
    with pytest.raises(GradkitError, match="too large for a PNG"):
        render.png(endless)


def pixels(png):
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_a_png_has_the_size_of_the_drawing():
    graph = dot(pictures.gpt(), "map")
    width, height = render.size(render.svg(graph))
    assert pixels(render.png(graph, dpi=72)) == pytest.approx((width, height), abs=2)


def test_the_child_does_not_import_gradkit_or_its_own_folder():
    command = render._command("svg", 72) if render.shutil.which("dot") is None else None
    if command is None:
        pytest.skip("a system dot does the layout here")
    probe = "import runpy, sys; sys.argv = sys.argv[1:]; "
    probe += "runpy.run_path(sys.argv[0], run_name='child'); print([m for m in sys.modules if m.startswith('gradkit')])"
    done = subprocess.run([sys.executable, "-c", probe, *command[1:]], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
