"""An Embedding of which only the row of ``padding_idx`` is looked up learns nothing: for good, or in this batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.types import Report

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Conditioned(nn.Module):
    def __init__(self, rows: int, padding: int | None = 0, bag: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        kind = nn.EmbeddingBag if bag else nn.Embedding
        self.table = kind(rows, 4, padding_idx=padding)  # table
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        if rows is None:
            rows = torch.zeros(len(x), 1, dtype=torch.long)
        found = self.table(rows)  # looked up
        out: torch.Tensor = self.out(x + found.view_as(x))
        return (out - 1).pow(2).mean()


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(5, dtype=torch.long)
        return (x + F.embedding(rows, self.table, padding_idx=-1) - 1).pow(2).mean()  # plain


def _line(word: str) -> int:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(text, 1) if line.endswith(f"  # {word}"))


def _told(report: Report) -> list[tuple[str, str, int | None]]:
    return [(one.cause, one.variant, one.location and one.location.line) for one in report.findings]


def _harmless(report: Report) -> list[tuple[str, int]]:
    return [(one.why, one.location.line) for one in report.harmless]


@pytest.mark.parametrize("bag", [False, True])
def test_a_table_of_the_one_row_of_padding_is_named_with_its_lookup(bag: bool) -> None:
    model = Conditioned(1, bag=bag)
    report = gradkit.diagnose(lambda: model(X), model=model)
    assert _told(report) == [("zero_gradient", "padding", _line("table"))]
    assert report.findings[0].parameters == ("table.weight",)
    notes = [(note.kind, note.location and note.location.line) for note in report.findings[0].notes]
    assert ("all_padding", _line("looked up")) in notes


def test_indices_that_stand_for_those_that_were_not_given_accuse_nobody() -> None:
    model = Conditioned(3)
    report = gradkit.diagnose(lambda: model(X), model=model)
    assert not report.findings
    assert _harmless(report) == [("zero_padded", _line("table"))]


def test_a_table_of_the_one_row_of_padding_never_learns_whatever_is_looked_up() -> None:
    model, rows = Conditioned(1), torch.zeros(5, 1, dtype=torch.long)
    assert _told(gradkit.diagnose(lambda: model(X, rows), model=model)) == [
        ("zero_gradient", "padding", _line("table"))
    ]


def test_indices_that_the_batch_brings_are_the_batchs_matter() -> None:
    model, rows = Conditioned(3), torch.zeros(5, 1, dtype=torch.long)
    report = gradkit.diagnose(lambda: model(X, rows), model=model)
    assert not report.findings
    assert _harmless(report) == [("zero_padded", _line("table"))]


def test_what_is_multiplied_by_the_zeros_of_padding_is_told_with_it() -> None:
    model = nn.Sequential(nn.Embedding(1, 4, padding_idx=0), nn.Linear(4, 1))

    def step() -> torch.Tensor:
        out: torch.Tensor = model(torch.zeros(2, dtype=torch.long))
        return (out - 1).pow(2).mean()

    report = gradkit.diagnose(step, model=model)
    assert [(one.variant, set(one.parameters)) for one in report.findings] == [("padding", {"0.weight", "1.weight"})]


def test_a_lookup_in_a_plain_parameter_is_named_itself() -> None:
    model = Plain()
    assert _told(gradkit.diagnose(lambda: model(X), model=model)) == [("zero_gradient", "padding", _line("plain"))]


def test_a_row_that_is_no_padding_learns() -> None:
    model, other = Conditioned(3), torch.tensor([[0], [0], [1], [0], [0]])
    assert not gradkit.diagnose(lambda: model(X, other), model=model).findings


def test_without_padding_idx_all_rows_learn() -> None:
    model = Conditioned(1, padding=None)
    assert not gradkit.diagnose(lambda: model(X), model=model).findings


def test_a_table_that_learns_by_another_way_is_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"table": nn.Embedding(3, 4, padding_idx=0), "mix": nn.Linear(4, 4)})

    def step() -> torch.Tensor:
        hidden = model["mix"](X + model["table"](torch.zeros(5, dtype=torch.long)))
        return F.cross_entropy(hidden @ model["table"].weight.t(), torch.tensor([0, 1, 2, 0, 1]))

    assert not gradkit.diagnose(step, model=model).findings
