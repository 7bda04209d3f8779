"""Ranks that scale their losses differently: read off the graph before backward, told with the line that does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gradkit.live import loss_heads
from gradkit.live.loss_heads import Head, Term, terms_of
from gradkit.live.rank_records import RankRecord, compared
from gradkit.live.rank_scales import Scaled, Scales
from gradkit.live.rank_sentry import is_told
from gradkit.source.by_rank import scaled_by_rank

PLAIN: Head = ((Term((), ("mean",), "NllLossBackward0 4x3"),),)
HALF: Head = ((Term((0.5,), ("mean",), "NllLossBackward0 4x3"),),)
LINE = Scaled("train.py:9", "loss = loss * 0.5", "train.py:8", by=0.5)
TRAINS = RankRecord(0, 4, "running", "train.py:12", steps=3, head=PLAIN)


def _records(head: Head, *scales: Scaled, count: int = 4) -> list[RankRecord]:
    odd = replace(TRAINS, rank=1, world=count, state="scaled", head=head, scales=scales)
    return [odd if rank == 1 else replace(TRAINS, rank=rank, world=count) for rank in range(count)]


def _loss() -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.zeros(4, 3, requires_grad=True)
    return scores, F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]))


def test_a_factor_and_a_divisor_of_pythons_are_read() -> None:
    _, loss = _loss()
    (term,) = terms_of(-(loss * 0.5) / 4)
    assert (term.weight, term.reduced) == (-0.125, ("mean",))


def test_each_term_of_a_sum_has_its_own_weight() -> None:
    scores, loss = _loss()
    assert [one.weight for one in terms_of((loss - 0.1 * scores.square().sum()) * 2)] == [2, -0.2]


def test_a_factor_that_is_a_tensor_is_no_number_and_is_not_asked() -> None:
    _, loss = _loss()
    (term,) = terms_of(loss * torch.tensor(0.5))
    assert term.factors == ()
    assert term.end.startswith("MulBackward0 NllLossBackward0")


def test_losses_of_batches_of_different_size_are_not_compared() -> None:
    other = ((replace(HALF[0][0], end="NllLossBackward0 7x3"),),)
    assert loss_heads.differing(PLAIN, HALF) is not None
    assert loss_heads.differing(PLAIN, other) is None


def test_the_rank_that_scales_is_told_with_its_line_and_what_comes_of_it() -> None:
    found = compared([RankRecord.read(one.written()) for one in _records(HALF, LINE)], 4)
    assert (found.odd, found.reason) == ((1,), "scaled")
    assert is_told(found)
    text = found.text()
    assert "rank 1: loss = 0.5 * mean(...)" in text
    assert "rank 0, 2-3: loss = mean(...)" in text
    assert "train.py:9, loss = loss * 0.5" in text
    assert "count 0.5 times as much" in text


def test_of_two_ranks_the_one_that_sums_differs_from_the_one_that_takes_the_mean() -> None:
    summed = ((replace(PLAIN[0][0], reduced=("sum",)),),)
    found = compared(_records(summed, Scaled("train.py:9", "loss", reduction="sum"), count=2), 2)
    assert (found.odd, found.reason) == ((1,), "scaled")


@pytest.mark.parametrize("scales", [(), (LINE, replace(LINE, place="train.py:20")), (replace(LINE, by=0.25),)])
def test_without_one_line_that_makes_the_difference_nothing_is_told(scales: tuple[Scaled, ...]) -> None:
    assert not is_told(compared(_records(HALF, *scales), 4))


def test_ranks_that_train_on_and_stand_elsewhere_are_no_fault_when_one_has_asked() -> None:
    records = [
        replace(one, place=f"train.py:{one.rank}", trainable=("a", "b")[one.rank % 2 :]) for one in _records(HALF)
    ]
    assert not is_told(compared(records, 4))


def test_losses_are_laid_down_once_after_three_steps_alike() -> None:
    scales, optimizer = Scales(), torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    said, due = [], []
    for _ in range(40):
        if scales.is_due:
            scales.heard(_loss()[1])
        due.append(scales.is_due)
        said.append(bool(scales.stepped(optimizer)))
        if said[-1]:
            scales.laid()
    assert [at for at, one in enumerate(said, 1) if one] == [3, 12]
    assert [at for at, one in enumerate(due, 1) if one] == [*range(1, 9), *range(10, 18)]


def test_losses_that_change_from_step_to_step_are_not_laid_down() -> None:
    scales, optimizer = Scales(), torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    for step in range(30):
        scales.heard(_loss()[1] / (step + 1))
        assert scales.stepped(optimizer) == ""


BY_RANK = """\
rank = dist.get_rank()
shares = gathered / gathered.sum()
accumulate = 4 if rank == 0 else 1
def train(loss, local_rank):
    if local_rank == 0:
        loss = loss * 0.5
    loss = loss / accumulate
    loss = loss * shares[rank]
    loss = loss * 0.5
    if rank == 0 and (mask.sum() > 0):
        loss = loss * 0.5
    mine = len(batch) + dist.get_rank()
    loss = loss * mine
    return F.cross_entropy(a, b, reduction="sum" if rank else "mean")
"""


def test_places_that_scale_by_the_rank_are_found_and_those_that_read_data_are_not(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BY_RANK, encoding="utf-8")
    found = scaled_by_rank(str(file))
    assert sorted({one.line for one in found}) == [6, 7, 14]
    assert {one.condition for one in found if one.line == 6} == {5}
