"""A report as one page, and in a cell of a notebook: what it holds, what it may do, what is left where it may not."""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import hashlib
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from torch import nn, ones

import gradkit
from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.records import Finding, Location
from gradkit.report import cell, html
from gradkit.report.picture import held, render
from gradkit.report.picture.torchviz_kept import Kept
from gradkit.report.report import Report
from gradkit.source import frames
from gradkit.teaching.guide import guide
from tests import pictures

HOSTILE = "</script><script>alert(1)</script>"
ROOM = held.Room(unfolded=4, size=400_000, torchviz=300)


@functools.cache
def report() -> Report:
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(4, 8), nn.Tanh()), "head": nn.Linear(8, 1)})
    return gradkit.diagnose(lambda: model["head"](model["encoder"](ones(2, 4)).detach()).sum(), model=model)


@functools.cache
def page() -> str:
    return report().page("en")


def data(text: str) -> dict[str, Any]:
    return dict(json.loads(re.findall(r'id="gkr-data">(.*?)</script>', text, re.DOTALL)[0]))


def parcel(drawing: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(base64.b64decode(drawing["packed"]))))


# -- what it may do ----------------------------------------------------------------------------------------------------


def test_its_policy_names_the_hash_of_each_script_and_style_and_allows_nothing_else() -> None:
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page())[0]
    scripts = re.findall(r'<script type="module">(.*?)</script>', page(), re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page(), re.DOTALL)
    wanted = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (*scripts, *styles)}
    assert set(re.findall(r"sha256-([^']+)'", policy)) == wanted
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert (len(scripts), page().count("<script")) == (1, 2)


def test_no_attribute_of_it_acts_and_nothing_in_it_is_elsewhere() -> None:
    without_script = re.sub(r"<script.*?</script>", "", page(), flags=re.DOTALL)
    assert re.findall(r"<[^>]*\s(?:on\w+|style|href)=", without_script) == []
    assert set(re.findall(r'\ssrc="(\w+:)', without_script)) == {"data:"}
    assert "url(" not in page()


def test_a_string_of_the_user_ends_no_script_and_no_attribute() -> None:
    spot = Location(f"/home/ann/{HOSTILE}.py", 7, 5, 9, "f", f'z = "{HOSTILE}"')
    finding = Finding("detach", spot, parameters=(HOSTILE,), numel=1, module=HOSTILE)
    picture = dataclasses.replace(pictures.mlp(), findings=(finding,))
    made = Report((finding,), (), picture, label=HOSTILE, error=HOSTILE)
    for text in (made.page("en"), unescape(re.findall(r'srcdoc="(.*?)"', made.cell("en"), re.DOTALL)[0])):
        assert "<script>alert" not in text
        assert text.count("</script>") == 2
        assert HOSTILE in json.dumps(parcel(data(text)["drawings"][0]), ensure_ascii=False)
    assert "<script>alert" not in made.cell("en")


# -- what it holds -----------------------------------------------------------------------------------------------------


def test_it_says_everything_in_both_languages_with_the_guides() -> None:
    for code in i18n.LANGUAGES:
        assert html.escape(report().verdict(code)) in page()
        assert html.escape(report().sections(code)[0].help) in page()
        assert guide("detach", code).steps[2].title.split("`")[0] in page()
    assert data(page())["titles"] == {code: report().verdict(code) for code in i18n.LANGUAGES}


def test_it_opens_in_the_language_that_is_asked_for() -> None:
    assert '<html lang="zh-CN">' in report().page("zh")
    assert 'id="gkr-zh" value="zh" checked' in report().page("zh")
    assert 'id="gkr-en" value="en" checked' in page()


def test_it_holds_every_view_in_both_languages_and_both_still_pictures() -> None:
    drawings = data(page())["drawings"]
    folded = {(one["language"], one["view"]) for one in drawings if one["packed"] and not one["opened"]}
    assert folded == {(code, view) for code in i18n.LANGUAGES for view in ("map", "graph", "torchviz")}
    assert page().count('src="data:image/svg+xml;base64,') == 2


def test_what_a_card_offers_to_unfold_the_page_holds_unfolded() -> None:
    made = held.held(pictures.gpt(layers=36, cut_in=17), Kept(), ROOM)
    ends = {(one.view, one.opened[-1].removeprefix("-")) for one in made if one.opened}
    offered = {(one.view, card["open"]) for one in made if one.shown for card in one.shown.info.values()}
    assert {one for one in offered if one[1]} <= ends
    assert ends
    left = [card for one in made if one.shown for card in one.shown.info.values() if card.get("note")]
    assert left


def test_what_lies_at_the_cut_is_unfolded_before_what_lies_far_from_it() -> None:
    made = held.held(pictures.gpt(layers=36, cut_in=17), Kept(), ROOM)
    opened = [one.opened[-1] for one in made if one.view == "map" and one.language == "en" and len(one.opened) == 2]
    assert set(opened) <= {"transformer.h.17", "transformer.h.18", "transformer.h.16"}


def test_a_deep_model_takes_no_more_room_than_there_is() -> None:
    deep = Report((), (), pictures.gpt(layers=36, cut_in=17))
    assert len(deep.page()) < 1_000_000
    assert len(deep.cell()) < 450_000
    assert len(report().cell()) < 400_000


def test_without_graphviz_it_says_so_and_has_all_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> list[str]:
        raise GradkitError("no_layout")

    render._svg.cache_clear()
    monkeypatch.setattr(render, "_command", none)
    made = report().page("en")
    said = i18n.words("error.no_layout", "en")
    assert html.escape(said) in made
    assert {one["message"] for one in data(made)["drawings"] if one["language"] == "en"} == {said}
    assert html.escape(report().verdict("zh")) in made
    assert html.escape(said) in report().cell("en")


def test_several_graphs_are_laid_out_in_one_process() -> None:
    dots = [f'digraph {{ n1 [label="{name}"] }}' for name in ("one", "two", "three")]
    assert [render.svg(dot) for dot in dots] == render.svgs(dots)
    with pytest.raises(GradkitError, match="Graphviz"):
        render.svgs([dots[0], "digraph {"])


def test_a_page_saved_over_another_holds_what_was_told_of_its_ranks(tmp_path: Path) -> None:
    target = report().save(tmp_path / "report.html", "en")
    assert target.read_text(encoding="utf-8").rstrip().endswith("</body></html>")
    assert html.policy(styles=[html.style()]).rpartition("'sha256-")[2] in page()  # the style of such a block


def test_a_finding_leads_to_its_plate_where_the_drawing_has_one() -> None:
    assert page().count('class="gkr-look" value="0"') == 2
    nowhere = dataclasses.replace(
        report(), picture=dataclasses.replace(report().picture, nodes=(), edges=(), findings=())
    )
    assert 'class="gkr-look"' not in nowhere.page("en")


# -- in a notebook -----------------------------------------------------------------------------------------------------


def test_a_cell_holds_the_page_in_a_frame_that_may_only_run_scripts_and_save_files() -> None:
    shown = report()._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html"}
    assert re.findall(r'sandbox="(.*?)"', shown["text/html"]) == ["allow-scripts allow-downloads"]
    inside = unescape(re.findall(r'srcdoc="(.*?)"', shown["text/html"], re.DOTALL)[0])
    assert inside.startswith("<!doctype html>")
    assert "Content-Security-Policy" in inside


def test_what_is_left_of_a_cell_without_frame_style_and_script_is_the_text_and_a_bitmap() -> None:
    left = re.sub(r"<(style|iframe|script).*?</\1>", "", report().cell("en"), flags=re.DOTALL)
    assert html.escape(report().verdict("en")) in left
    assert 'src="data:image/png;base64,' in left
    assert "srcdoc" not in left


def test_the_still_form_is_hidden_by_the_frame_beside_it_and_not_by_itself() -> None:
    assert ".gk-frame~.gk-in-place{display:none}" in cell.write("", "", "")


def test_a_terminal_gets_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, shown = type("TerminalInteractiveShell", (), {})(), report()  # a diagnosis asks more of a shell
    monkeypatch.setattr(frames, "notebook_shell", lambda: terminal)
    assert set(shown._repr_mimebundle_()) == {"text/plain"}
