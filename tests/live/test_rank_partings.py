"""Which rank leaves out a part of a sharded model is told from what the ranks say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradkit.core.i18n import speaking
from gradkit.live.flight import Collective
from gradkit.live.rank_parts import Asked
from gradkit.live.rank_records import RankRecord, compared
from gradkit.live.rank_sentry import is_told

EYE = Asked("image", "eye", "train.py:18", 'self.eye(scene["image"])', "train.py:17", 'if "image" in scene')
ALL = ("ear.weight", "eye.weight", "tell.weight")
WAITS = RankRecord(
    0, 2, "stuck", "train.py:40", "loss.backward()", waits=True, steps=2, sharded=True, asks=(EYE,), trainable=ALL,
    batch=(("scene['image']", "4 x 3"), ("scene['sound']", "4 x 5")),
)  # fmt: skip
WITHOUT = replace(WAITS, rank=1, batch=WAITS.batch[1:])
ECHO = {"state": "raised", "error": "RuntimeError: Connection reset by peer", "echo": True, "waits": False}
CRASHED = {"state": "crashed", "error": "Aborted", "waits": False}


def test_the_rank_whose_batch_lacks_what_a_part_asks_for_is_likely_to_have_left_it_out() -> None:
    found = compared([WAITS, WITHOUT], 2)
    assert (found.odd, found.reason) == ((1,), "parts")
    assert is_told(found)
    assert "eye is called at train.py:18" in found.text()
    assert "by the condition at train.py:17" in found.text()
    assert "likely: inferred" in found.text()


def test_a_loss_that_does_not_reach_the_part_is_seen() -> None:
    found = compared([replace(WAITS, took=ALL), replace(WITHOUT, took=(ALL[0], ALL[2]))], 2)
    assert (found.odd, found.reason) == ((1,), "parts")
    assert "seen in autograd's graph: the loss of rank 1 reaches no parameter of eye" in found.text()


def test_a_part_that_data_chooses_is_named_where_all_batches_are_alike() -> None:
    expert = replace(EYE, key="", condition="if x.mean() > 0")
    here = replace(WAITS, took=ALL, asks=(expert,))
    found = compared([here, replace(here, rank=1, took=(ALL[0], ALL[2]))], 2)
    assert (found.odd, found.reason) == ((1,), "parts")
    assert "under the condition at train.py:17, if x.mean() > 0" in found.text()


@pytest.mark.parametrize("crashes", [0, 1])
def test_whichever_of_two_ranks_crashes_the_one_that_lacks_the_part_is_named(crashes: int) -> None:
    pair = [replace(one, **(CRASHED if one.rank == crashes else ECHO)) for one in (WAITS, WITHOUT)]  # type: ignore[arg-type]
    found = compared([pair[1 - crashes]], 2, [pair[crashes]])
    assert (found.odd, found.reason) == ((1,), "parts")
    assert f"rank {crashes}: crashed in C++ at train.py:40" in found.text()


def test_a_rank_that_crashes_for_another_reason_is_named_itself() -> None:
    crashed = replace(WAITS, **{**CRASHED, "error": "Segmentation fault"})  # type: ignore[arg-type]
    found = compared([replace(WITHOUT, **ECHO)], 2, [crashed])  # type: ignore[arg-type]
    assert (found.odd, found.reason) == ((0,), "gone")


def test_a_part_that_a_sharded_rank_has_frozen_is_told_also_where_the_rank_crashed() -> None:
    crashed = replace(WAITS, rank=1, trainable=(ALL[0], ALL[2]), **CRASHED)  # type: ignore[arg-type]
    found = compared([replace(WAITS, **ECHO)], 2, [crashed])  # type: ignore[arg-type]
    assert (found.odd, found.reason) == ((1,), "parameters")
    assert "eye.weight" in found.text()


def test_parameters_that_a_note_does_not_tell_are_not_compared() -> None:
    crashed = replace(WAITS, rank=1, trainable=(), **CRASHED)  # type: ignore[arg-type]
    assert compared([replace(WAITS, **ECHO)], 2, [crashed]).reason == "gone"  # type: ignore[arg-type]


def test_a_part_with_two_calls_is_told_with_the_one_that_has_begun_a_collective_or_with_none() -> None:
    aux = replace(EYE, place="train.py:41", branch="train.py:40")
    made = (Collective("0", 9, "all_gather", 28, "train.py:41", "train.py:40"),)
    both = replace(WAITS, asks=(EYE, aux))
    assert "eye is called at" not in compared([both, WITHOUT], 2).text()
    assert "eye is called at train.py:41" in compared([replace(both, made=made), WITHOUT], 2).text()


@pytest.mark.parametrize(
    "other",
    [
        replace(WITHOUT, steps=3),  # its batch is that of another step
        replace(WITHOUT, waits=False),  # it does something else, and may come yet
        replace(WITHOUT, sharded=False, asks=()),
        replace(WAITS, rank=1),
    ],
)
def test_nothing_is_said_of_parts_where_that_would_be_a_guess(other: RankRecord) -> None:
    here = WAITS if other.sharded else replace(WAITS, sharded=False, asks=())
    assert compared([here, other], 2).reason != "parts"


def test_an_error_of_a_ranks_own_comes_before_what_its_batch_lacks() -> None:
    raised = replace(WITHOUT, state="raised", error="KeyError: 'kind'", waits=False)
    assert compared([WAITS, raised], 2).reason == "error"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_record_says_the_same_after_it_was_written_and_read(language: str) -> None:
    with speaking(language):
        once, again = (
            [WAITS, replace(WITHOUT, took=ALL[:1])],
            [RankRecord.read(one.written()) for one in (WAITS, replace(WITHOUT, took=ALL[:1]))],
        )
        assert compared(once, 2).text() == compared(again, 2).text()
