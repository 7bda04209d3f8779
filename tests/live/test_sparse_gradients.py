"""Where an optimizer refuses the kind of a gradient, the line that asked for it is named, or that of the optimizer."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from tests.live import failing

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)


"""
LOOP = """\
for _ in range(2):
    x, y = torch.randint(0, 20, (4, 5)), torch.randint(0, 2, (4,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
PROGRAMS = {
    "a table of a class": """
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(20, 8, sparse=True)  # CUT
                self.head = nn.Linear(8, 2)

            def forward(self, x):
                return self.head(self.table(x).mean(1))

        model = Bag()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    """,
    "a table that is looked up by a function": """
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Parameter(torch.randn(20, 8)), nn.Linear(8, 2)

            def forward(self, x):
                return self.head(F.embedding(x, self.table, sparse=True).mean(1))  # CUT

        model = Bag()
        optimizer = torch.optim.RMSprop(model.parameters())
    """,
    "two tables that ask for sparse gradients": """
        class Bags(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.EmbeddingBag(20, 8, sparse=True)
                self.topics = nn.EmbeddingBag(20, 8, sparse=True)
                self.head = nn.Linear(8, 2)

            def forward(self, x):
                return self.head(self.words(x) + self.topics(x))

        model = Bags()
        optimizer = torch.optim.AdamW(model.parameters())  # CUT
    """,
    "all parameters in an optimizer of sparse ones": """
        model = nn.Sequential(nn.EmbeddingBag(20, 8, sparse=True), nn.Linear(8, 2))
        optimizer = torch.optim.SparseAdam(list(model.parameters()))  # CUT
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_to_change_is_named(name: str, tmp_path: Path) -> None:
    text = HEAD + textwrap.dedent(PROGRAMS[name]).lstrip("\n") + LOOP
    failed = failing.run(text, tmp_path)
    report = failed.explained().report
    assert report is not None
    [found] = report.findings
    assert found.cause == "optimizer_mismatch"
    assert found.location is not None
    assert {found.location.line} == failed.marked


def test_a_step_that_trains_by_itself_is_told_the_same() -> None:
    model = nn.Sequential(nn.EmbeddingBag(20, 8, sparse=True), nn.Linear(8, 2))
    optimizer = torch.optim.Adamax(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.zeros(2, 3, dtype=torch.long)).sum().backward()
        optimizer.step()

    [found] = gradkit.diagnose(step, model=model).findings
    assert (found.cause, found.facts["optimizer"]) == ("optimizer_mismatch", "Adamax")


def test_an_optimizer_that_takes_sparse_gradients_gets_a_clean_bill() -> None:
    model = nn.Sequential(nn.EmbeddingBag(20, 8, sparse=True), nn.Linear(8, 2))
    sparse, dense = torch.optim.SparseAdam(model[0].parameters()), torch.optim.Adam(model[1].parameters())

    def step() -> None:
        model(torch.zeros(2, 3, dtype=torch.long)).sum().backward()
        sparse.step()
        dense.step()

    assert gradkit.diagnose(step, model=model).healthy
