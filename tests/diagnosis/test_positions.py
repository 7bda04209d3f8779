"""What says where values are (the indices of a sparse tensor, an order) is not accused beside what cuts the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Finding

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
INDEX = torch.tensor([[0, 1, 2, 3, 5], [1, 2, 3, 4, 0]])


class Edges(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.strength, self.out = nn.Parameter(torch.rand(5)), nn.Linear(4, 1)

    def graph(self) -> torch.Tensor:
        return torch.sparse_coo_tensor(INDEX, self.strength.sigmoid(), (6, 6), check_invariants=False).coalesce()

    def rows(self) -> torch.Tensor:
        pointers, columns = torch.tensor([0, 1, 2, 3, 4, 4, 5]), torch.tensor([1, 2, 3, 4, 0])
        return torch.sparse_csr_tensor(pointers, columns, self.strength.sigmoid(), (6, 6), check_invariants=True)


class Ranks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score, self.head = nn.Linear(4, 1), nn.Linear(4, 2)


def stored_values_beside_indices(model: Any) -> Any:
    graph = model.graph()
    row, col = graph._indices()
    value = graph._values()  # CUT
    again = torch.sparse_coo_tensor(torch.stack([row, col]), value.exp(), graph.shape, check_invariants=False)
    return model.out(torch.sparse.mm(again, X)).sum()


def stored_values_on_the_line_of_the_indices(model: Any) -> Any:
    graph = model.graph()
    flipped = torch.sparse_coo_tensor(graph._indices().flip(0), graph._values(), (6, 6), check_invariants=False)  # CUT
    return model.out(torch.sparse.mm(flipped, X)).sum()


def values_of_rows_beside_their_pointers(model: Any) -> Any:
    rows = model.rows()
    at = torch.repeat_interleave(torch.arange(6), rows.crow_indices().diff())
    values = rows.values().detach()  # CUT
    return model.out(torch.zeros(6, 4).index_add(0, at, values[:, None] * X[rows.col_indices()])).sum()


def scores_beside_the_order_that_they_give(model: Any) -> Any:
    scores = model.score(X).squeeze(1)
    order = scores.argsort(descending=True)
    ranked = scores.gather(0, order).detach()  # CUT
    return model.head(X[order] * ranked.sigmoid()[:, None]).pow(2).sum()


def strengths_beside_the_places_where_they_are_not_zero(model: Any) -> Any:
    scores = model.score(X).squeeze(1).relu()
    (places,) = scores.nonzero(as_tuple=True)
    kept = scores.detach()[places]  # CUT
    return model.head(X[places] * kept[:, None]).pow(2).sum()


CUT = [
    (Edges, stored_values_beside_indices), (Edges, stored_values_on_the_line_of_the_indices),
    (Edges, values_of_rows_beside_their_pointers), (Ranks, scores_beside_the_order_that_they_give),
    (Ranks, strengths_beside_the_places_where_they_are_not_zero),
]  # fmt: skip


def found(build: Callable[[], nn.Module], step: Callable[[Any], Any]) -> tuple[Finding, ...]:
    torch.manual_seed(0)
    model = build()
    return gradkit.diagnose(lambda: step(model), model=model).findings


@pytest.mark.parametrize(("build", "step"), CUT)
def test_only_what_cuts_the_values_is_named(build: Callable[[], nn.Module], step: Callable[[Any], Any]) -> None:
    (one,) = found(build, step)
    assert one.cause == "detach"
    assert one.location is not None
    assert one.location.text.rstrip().endswith("# CUT")


def test_values_that_are_taken_with_their_history_are_sound() -> None:
    def step(model: Any) -> Any:
        graph, rows = model.graph(), model.rows()
        again = torch.sparse_coo_tensor(graph.indices(), graph.values().exp(), (6, 6), check_invariants=False)
        walked = rows.values()[:, None] * X[rows.col_indices()]
        return model.out(torch.sparse.mm(again, X) + walked.sum(0)).sum()

    assert not found(Edges, step)


def test_strengths_of_which_only_the_places_are_used_are_told_as_unused() -> None:
    def step(model: Any) -> Any:
        row, col = model.graph().indices()
        return model.out(torch.zeros(6, 4).index_add(0, row, X[col])).sum()

    assert [one.cause for one in found(Edges, step)] == ["trainable_unused"]
