"""A loss in which no label counts, and a mean of nothing: what is named is what took the labels out."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.core.records import Finding


def line(finding: Finding) -> str:
    assert finding.location is not None
    return finding.location.text.strip()


def collated(rows: list[tuple[list[int], list[int]]], longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = [(question + answer)[:longest] for question, answer in rows]
    labels = [([-100] * len(question) + answer)[:longest] for question, answer in rows]
    return torch.tensor(ids), torch.tensor(labels)


ROWS = [([1, 2, 3, 4, 5], [6, 7]), ([8, 9, 10, 11, 12], [13, 14])]


def found_in(ids: torch.Tensor, labels: torch.Tensor) -> tuple[Finding, ...]:
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 20))
    return gradkit.diagnose(lambda: F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()), model=model).findings


def test_a_length_that_leaves_the_question_alone_is_named_with_the_mask_beside_it() -> None:
    ids, labels = collated(ROWS, longest=4)
    (finding,) = found_in(ids, labels)
    assert (finding.cause, finding.variant, line(finding)) == (
        "zero_gradient", "ignored", "ids, labels = collated(ROWS, longest=4)",
    )  # fmt: skip
    assert [note.kind for note in finding.notes] == ["ignored_here", "no_label"]


def test_a_length_that_leaves_answers_is_no_fault() -> None:
    assert found_in(*collated(ROWS, longest=7)) == ()


def valid(target: torch.Tensor, largest: float) -> torch.Tensor:
    return (target > 0) & (target < largest)


def depth(largest: float, weight: float = 0.0) -> tuple[Finding, ...]:
    model, x, target = nn.Linear(3, 3), torch.rand(4, 3), 5 + torch.rand(4, 3)

    def step() -> torch.Tensor:
        mask = valid(target, largest)
        error = (model(x)[mask] - target[mask]).abs().mean()
        return error + weight * model.weight.pow(2).sum() if weight else error

    return gradkit.diagnose(step, model=model).findings


def test_of_a_mean_of_nothing_the_mask_is_named() -> None:
    (finding,) = depth(1.0)
    assert (finding.variant, line(finding)) == ("empty", "return (target > 0) & (target < largest)")
    assert [note.kind for note in finding.notes] == ["no_element"]


def test_of_a_term_of_nothing_beside_others_the_mean_is_named() -> None:
    (finding,) = depth(1.0, weight=0.1)
    assert line(finding).startswith("error = ")


def test_a_mask_that_picks_something_is_no_fault() -> None:
    assert depth(10.0) == ()
