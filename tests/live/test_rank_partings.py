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


def _gathers(number: int, elements: int, place: str, branch: str = "") -> Collective:
    return Collective("0", number, "_all_gather_base", elements, place, branch)


RAN = (_gathers(8, 24, "train.py:16"), _gathers(9, 28, "train.py:18", "train.py:17"))
SKIPPED = (_gathers(8, 24, "train.py:16"), _gathers(9, 14, "train.py:19"))


@pytest.mark.parametrize("skips", [0, 1])
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("notices", [0, 1])
def test_whoever_notices_first_the_rank_that_went_past_a_part_is_named(skips: int, ahead: int, notices: int) -> None:
    """With NCCL a rank goes on while its collectives wait: it is at any step, at any line, and holds another batch."""
    records = [
        replace(
            WAITS, rank=rank, made=SKIPPED if rank == skips else RAN, steps=2 + (rank == ahead),
            state="stuck" if rank == notices else "running", waits=rank == notices, place=f"train.py:{40 + rank}",
        )
        for rank in (0, 1)
    ]  # fmt: skip
    found = compared(records, 2)
    assert (found.odd, found.reason) == ((skips,), "parts")
    assert is_told(found)
    said = found.text()
    assert f"rank {skips} of 2 runs different parts" in said
    assert "eye is called at train.py:18" in said
    assert f"number 9 is for eye on rank {1 - skips}, and for something else on rank {skips}" in said


@pytest.mark.parametrize("skips", [0, 1])
def test_where_the_source_does_not_tell_the_part_the_rank_under_the_condition_leaves_out_none(skips: int) -> None:
    pair = [replace(WAITS, rank=rank, asks=(), made=SKIPPED if rank == skips else RAN) for rank in (0, 1)]
    assert (compared(pair, 2).odd, compared(pair, 2).reason) == ((skips,), "mismatch")


def test_of_four_ranks_the_one_that_alone_runs_a_part_is_named() -> None:
    records = [replace(WAITS, rank=rank, world=4, made=RAN if rank == 2 else SKIPPED) for rank in range(4)]
    assert (compared(records, 4).odd, compared(records, 4).reason) == ((2,), "parts")


def test_a_collective_of_the_programs_own_that_does_not_fit_is_no_matter_of_parts() -> None:
    extra = (RAN[0], Collective("0", 9, "all_reduce", 1, "train.py:38", "train.py:37"))
    records = [replace(WAITS, made=(RAN[0], _gathers(9, 14, "train.py:19"))), replace(WAITS, rank=1, made=extra)]
    found = compared(records, 2)
    assert (found.odd, found.reason) == ((1,), "mismatch")


def test_a_rank_that_comes_to_the_part_late_has_not_gone_past_it() -> None:
    extra = (RAN[0], _gathers(9, 7, "train.py:38", "train.py:37"), replace(RAN[1], number=10))
    assert compared([replace(WAITS, made=RAN), replace(WAITS, rank=1, made=extra)], 2).reason == "mismatch"


def test_an_error_of_a_ranks_own_comes_before_collectives_that_do_not_fit() -> None:
    raised = replace(WAITS, rank=1, made=SKIPPED, state="raised", error="KeyError: 'kind'", waits=False)
    assert compared([replace(WAITS, made=RAN), raised], 2).reason == "error"


@pytest.mark.parametrize("crashes", [0, 1])
def test_what_a_rank_has_found_before_a_backward_is_told_whichever_of_two_crashes_in_it(crashes: int) -> None:
    cause = {"cause": "detach", "verdict": "look at train.py:30 (detach)", "report": "R"}
    found = replace(WAITS, rank=1, state="found", **cause)  # type: ignore[arg-type]
    if crashes:  # its note is read in its place
        told = compared([replace(WAITS, **ECHO), found], 2)  # type: ignore[arg-type]
    else:
        told = compared([replace(found, **ECHO)], 2, [replace(WAITS, **CRASHED)])  # type: ignore[arg-type]
    assert (told.odd, told.reason) == ((1,), "finding")
    assert "What rank 1 found:\nR" in told.text()
