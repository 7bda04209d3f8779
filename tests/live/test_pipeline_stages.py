"""A stage of a pipeline that hands back no gradient for its input is told once that has lasted, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from gradkit.live.pipeline_stages import LASTING, PipelineStages
from gradkit.live.rank_records import HANDED, RankRecord, compared
from gradkit.live.rank_sentry import is_told

ASKS, IDLE, GOT = torch.ones(1, requires_grad=True), torch.ones(1), torch.ones(1)


@dataclass
class Stage:
    """What is asked of a stage of torch's."""

    stage_index: int = 1
    is_first: bool = False


def _told(
    steps: Sequence[Sequence[torch.Tensor | None]], stage: Stage | None = None, asks: torch.Tensor = ASKS
) -> list[bool]:
    """In which steps something is told, of one gradient for each chunk."""
    stages, told = PipelineStages(), list[bool]()
    for chunks in steps:
        for one in chunks:
            stages.heard(stage or Stage(), (asks, IDLE), (one, None))
        told.append(stages.stepped() is not None)
    return told


def test_it_is_told_once_after_as_many_steps_as_it_takes() -> None:
    assert _told([[GOT, GOT]] * 2 + [[None, None]] * (LASTING + 2)) == [False] * (LASTING + 1) + [True, False, False]


@pytest.mark.parametrize("chunks", [[None, GOT], [GOT, None], [GOT]])
def test_a_gradient_in_one_chunk_of_each_third_step_is_enough(chunks: list[torch.Tensor | None]) -> None:
    assert not any(_told([[None, None], [None], chunks] * 3))


def test_an_input_that_no_stage_before_trains_for_needs_none_nor_does_that_of_the_first_stage() -> None:
    assert not any(_told([[None]] * 5, asks=IDLE))
    assert not any(_told([[None]] * 5, Stage(is_first=True)))


def test_the_rank_whose_stage_hands_back_nothing_is_the_one_that_is_told_of() -> None:
    waits = RankRecord(0, 3, "running", "train.py:40", waits=True, steps=5, staged=True)
    here = replace(waits, rank=1, state=HANDED, verdict="nothing came back")
    found = compared([waits, here, replace(waits, rank=2)], 3)
    assert (found.odd, found.reason) == ((1,), "handed")
    assert is_told(found)
    assert "rank 1 of 3 hands back no gradient" in found.text()
    assert "nothing came back" in found.text()
