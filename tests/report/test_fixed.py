"""The picture after a change marks the place that was fixed, and nothing that was not."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import gradkit
from gradkit.core.records import Picture
from gradkit.report.report import Report
from tests.report.test_picture import ends

numbers = itertools.count()

PROGRAM = """import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.bridge = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        x = self.encoder(x)
        x = x.detach()
        x = self.bridge(x).tanh()
        with torch.no_grad():
            x = x * 2
        return self.head(x)


torch.manual_seed(0)
model = Reader()
step = lambda: model(torch.ones(3, 4)).sum()
"""
DETACH, NO_GRAD = "        x = x.detach()\n", "        with torch.no_grad():\n            x = x * 2\n"


@pytest.fixture
def diagnosed(tmp_path: Path) -> Any:
    """Diagnoses a text as the same file, whatever it was before."""
    path = tmp_path / "train.py"

    def diagnose(text: str) -> Report:
        path.write_text(text, encoding="utf-8")
        named: dict[str, Any] = {"__name__": f"train{next(numbers)}"}
        exec(compile(text, str(path), "exec"), named)
        return gradkit.diagnose(named["step"], model=named["model"])

    return diagnose


def marks(picture: Picture) -> dict[str, Any]:
    """By cause, what lies before and behind the mark."""
    found = [node for node in picture.nodes if node.kind == "fixed"]
    return {picture.fixed[int(node.label)].cause: ends(picture, node.number) for node in found}


def test_the_mark_stands_where_the_cut_was_and_tells_the_changed_lines(diagnosed: Any) -> None:
    before = diagnosed(PROGRAM.replace(NO_GRAD, ""))
    after = diagnosed(PROGRAM.replace(NO_GRAD, "").replace("x.detach()", "x * 1")).since(before)
    assert after.healthy
    assert list(marks(after.picture)) == ["detach"]
    change = after.picture.fixed[0]
    assert change.location is not None
    assert (change.location.line, len(change.parameters)) == (14, 4)
    assert [(sign, text.strip()) for sign, _, text in change.lines] == [("-", "x = x.detach()"), ("+", "x = x * 1")]


def test_a_change_at_another_line_than_the_cut_is_told_too_if_it_is_the_one_that_was_offered(diagnosed: Any) -> None:
    kept = PROGRAM.replace(NO_GRAD, "").replace(DETACH, "        self.kept = x.detach()\n        x = self.kept\n")
    before = diagnosed(kept)
    tried = before.findings[0].tried
    assert tried is not None
    assert [one.number for one in tried.changes] == [15, 15]
    after = diagnosed(kept.replace("x = self.kept", "x = x")).since(before)
    assert [(number, text.strip()) for _, number, text in after.picture.fixed[0].lines] == [
        (15, "x = self.kept"), (15, "x = x"),
    ]  # fmt: skip
    elsewhere = diagnosed(kept.replace("self.kept = x.detach()", "self.kept = x").replace("torch.manual_seed(0)\n", ""))
    assert [text.strip() for _, _, text in elsewhere.since(before).picture.fixed[0].lines] == [
        "self.kept = x.detach()", "self.kept = x",
    ]  # fmt: skip


@pytest.mark.parametrize(("language", "said"), [("en", "fixed here"), ("zh", "已在此处修正")])
def test_it_is_said_in_every_form_of_the_report(diagnosed: Any, language: str, said: str, tmp_path: Path) -> None:
    before = diagnosed(PROGRAM.replace(NO_GRAD, ""))
    after = diagnosed(PROGRAM.replace(NO_GRAD, "").replace(DETACH, "")).since(before)
    drawn = {view: after.svg(view, language).replace("\N{NO-BREAK SPACE}", " ") for view in ("map", "graph")}
    assert all(said in svg and "train.py:14" in svg for svg in drawn.values())
    assert said in after.html(language).replace("\N{NO-BREAK SPACE}", " ")
    assert marks(after.picture) == {"detach": ({"encoder.2"}, {"bridge"})}


def test_of_two_cuts_the_one_that_is_left_bears_no_mark_nor_does_what_it_still_starves(diagnosed: Any) -> None:
    before = diagnosed(PROGRAM)
    assert {one.cause for one in before.findings} == {"detach", "no_grad_block"}
    first = diagnosed(PROGRAM.replace(DETACH, "")).since(before)
    assert [one.cause for one in first.findings] == ["no_grad_block"]
    assert first.picture.fixed == ()
    second = diagnosed(PROGRAM.replace(DETACH, "").replace(NO_GRAD, "        x = x * 2\n")).since(first)
    assert {one.cause for one in second.picture.fixed} == {"no_grad_block"}
    assert list(marks(second.picture)) == ["no_grad_block"]


def test_nothing_is_marked_where_nothing_was_mended(diagnosed: Any) -> None:
    before = diagnosed(PROGRAM)
    assert diagnosed(PROGRAM).since(before).picture.fixed == ()
    sound = diagnosed(PROGRAM.replace(DETACH, "").replace(NO_GRAD, ""))
    assert sound.since(sound).picture.fixed == ()
    worse = PROGRAM.replace("x.detach()", "torch.tensor(x.tolist())").replace(NO_GRAD, "")
    assert [one.cause for one in diagnosed(worse).since(before).picture.fixed] == ["no_grad_block"]


def test_what_was_frozen_is_marked_beside_what_it_froze(diagnosed: Any) -> None:
    frozen = "model = Reader()\nmodel.requires_grad_(False)\n"
    sound = PROGRAM.replace(DETACH, "").replace(NO_GRAD, "")
    before = diagnosed(sound.replace("model = Reader()\n", frozen))
    assert not before.healthy
    after = diagnosed(sound).since(before)
    assert [one.location.line for one in after.picture.fixed if one.location] == [20]
    assert "fixed here" in after.svg("map", "en").replace("\N{NO-BREAK SPACE}", " ")


def test_a_mark_stands_before_the_module_whose_input_was_cut(diagnosed: Any) -> None:
    nested = PROGRAM.replace(DETACH, "").replace(NO_GRAD, "").replace("self.bridge(x)", "self.bridge(x.detach())")
    before = diagnosed(nested)
    after = diagnosed(nested.replace(".detach()", "")).since(before)
    assert marks(after.picture) == {"detach": ({"encoder.2"}, {"bridge"})}
