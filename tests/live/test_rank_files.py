"""What differs between ranks stands in a text and in a drawing as it does in a page, beside the finding of one rank."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.core.i18n import columns, speaking
from gradkit.live import rank_drawing, rank_files, rank_graphs, rank_table
from gradkit.live.launch import Wishes
from gradkit.live.outcome import Outcome
from gradkit.live.rank_records import Comparison, RankRecord, compared
from gradkit.report.picture import render

WAITS = RankRecord(
    0, 4, "stuck", "train.py:40", "loss.backward()", waits=True, steps=7,
    batch=(("batch['image']", "4 x 3"), ("batch['text']", "4 x 5")),
)  # fmt: skip
FINDING = {".txt": "the finding\n", ".svg": '<svg width="40pt" height="30pt"><text>the finding</text></svg>'}


def _differ(place: str = "train.py:38") -> Comparison:
    raised = replace(WAITS, rank=2, place=place, state="raised", waits=False, error="ValueError: <b>", batch=())
    return compared([raised if rank == 2 else replace(WAITS, rank=rank) for rank in range(4)], 4)


def test_those_that_differ_stand_beside_those_that_agree_and_what_differs_is_marked() -> None:
    table = rank_table.table_of(_differ())
    assert table.columns == ("✗ 2", "✓ 0-1, 3")
    assert {row.label: row.cells for row in table.rows}["batch['image']"] == ("-", "4 x 3")
    lines = rank_table.text(table).splitlines()
    assert any(line.startswith("≠ batch['image']") and line.endswith("4 x 3") for line in lines)
    assert [line.strip().split()[0] for line in lines if line.startswith("  ")] == ["rank", "step"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_long_cells_are_folded_within_the_width_of_a_terminal(language: str) -> None:
    with speaking(language):
        text = rank_table.text(rank_table.table_of(_differ("a/" * 90 + "train.py:38")))
    assert max(map(columns, text.splitlines())) <= 120


def test_a_drawing_has_a_square_for_each_rank_and_escapes_what_it_says() -> None:
    svg, width, height = rank_drawing.drawing(_differ())
    root = ET.fromstring(svg)
    said = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("ValueError: <b>" in (one or "") for one in said)
    assert (root.get("width"), root.get("height")) == (str(width), str(height))


@pytest.mark.parametrize("kind", [".txt", ".svg"])
def test_a_file_has_the_finding_and_the_ranks_whoever_writes_first(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{kind}"
    outcome = Outcome(Wishes(report=str(path)))
    outcome.ranks(_differ())
    alone = path.read_text(encoding="utf-8")
    block = rank_files.kept(path)
    path.write_text(FINDING[kind], encoding="utf-8")
    rank_files.put_back(block, path)
    after = path.read_text(encoding="utf-8")
    outcome.ranks(_differ())
    assert path.read_text(encoding="utf-8") == after
    for text, finds in ((alone, 0), (after, 1)):
        assert text.count("the finding") == finds
        assert text.count("✗ 2") == 1
    if kind == ".svg":
        ET.fromstring(after)


def test_a_file_that_says_nothing_of_ranks_stays_as_it_is(tmp_path: Path) -> None:
    for kind, text in {**FINDING, ".png": "no bitmap", ".dot": "digraph { finding }"}.items():
        path = tmp_path / f"out{kind}"
        path.write_text(text, encoding="utf-8")
        rank_files.put_back(rank_files.kept(path), path)
        assert path.read_text(encoding="utf-8") == text


def _graph(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.suffix == ".dot" else rank_graphs.carried_by(path.read_bytes())


@pytest.mark.parametrize("kind", [".dot", ".png"])
def test_a_graph_has_the_finding_and_the_ranks_whoever_writes_first(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    net = torch.nn.Linear(2, 1)
    report = gradkit.diagnose(lambda: net(torch.ones(1, 2)).detach().sum(), model=net)
    first, second = tmp_path / f"first{kind}", tmp_path / f"second{kind}"
    rank_files.save(report, first)
    rank_files.write(_differ(), first)
    rank_files.write(_differ("train.py:99"), second)  # of a run before: what it says is kept, until this one speaks
    rank_files.save(report, second)
    assert "train.py:99" in _graph(second)
    rank_files.write(_differ(), second)
    assert _graph(first) == _graph(second)
    assert _graph(first).count("✗\N{NO-BREAK SPACE}2") == 1
    assert "detach" in _graph(first)
    assert "&lt;b&gt;" in render.svg(_graph(first))


def test_a_bitmap_of_one_process_carries_nothing(tmp_path: Path) -> None:
    net = torch.nn.Linear(2, 1)
    rank_files.save(gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net), tmp_path / "out.png")
    assert rank_graphs.carried_by((tmp_path / "out.png").read_bytes()) == ""


@pytest.mark.parametrize("kind", [".txt", ".svg", ".html"])
def test_a_file_that_is_no_text_of_ours_is_written_over(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{kind}"
    path.write_bytes("früher".encode("latin-1"))
    assert rank_files.kept(path) == ""
    rank_files.write(_differ(), path)
    assert "✗ 2" in path.read_text(encoding="utf-8")
