"""Which rank differs is told from what all of them say of themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gradkit.core.i18n import speaking
from gradkit.live import rank_store
from gradkit.live.flight import Collective, first_mismatch
from gradkit.live.rank_records import RankRecord, compared, ranks_in_words
from gradkit.live.rank_sentry import is_told

REPO = Path(__file__).parents[2]

WAITS = RankRecord(
    0, 4, "stuck", "train.py:40", "loss.backward()", waits=True, steps=7, collectives=20,
    batch=(("batch['image']", "4 x 3"), ("batch['text']", "4 x 5")), trainable=("head.weight", "vision.weight"),
)  # fmt: skip


def _four(odd: RankRecord, at: int = 2) -> list[RankRecord]:
    return [replace(odd if rank == at else WAITS, rank=rank) for rank in range(4)]


def test_a_rank_that_raised_differs_from_those_that_wait() -> None:
    found = compared(_four(replace(WAITS, state="raised", waits=False, error="ValueError: broken")), 4)
    assert (found.odd, found.reason) == ((2,), "error")
    assert is_told(found)


def test_an_error_that_only_says_another_rank_is_gone_is_no_reason() -> None:
    echo = replace(WAITS, state="raised", error="RuntimeError: Connection closed by peer", echo=True)
    found = compared([replace(echo, rank=rank) for rank in (0, 1, 3)], 4)
    assert (found.odd, found.reason) == ((2,), "gone")


def test_who_has_come_to_the_end_of_its_program_is_not_taken_for_gone() -> None:
    found = compared([replace(WAITS, rank=1, state="found", cause="detach", verdict="No gradient.")], 4)
    assert (found.odd, found.reason) == ((1,), "finding")
    assert is_told(found)


def test_a_fault_that_all_ranks_have_is_told_once_and_of_none_in_particular() -> None:
    same = replace(WAITS, state="found", cause="detach", verdict="No gradient can flow.", report="the report")
    found = compared([replace(same, rank=rank) for rank in range(4)], 4)
    assert found.odd == ()
    assert found.text().count("the report") == 1


def test_a_rank_that_trains_fewer_parameters_differs_also_where_all_raise_the_same() -> None:
    error = "RuntimeError: DDP expects same model across all ranks"
    raised = replace(WAITS, state="raised", error=error, waits=False)
    few = replace(raised, trainable=("head.weight",), frozen_at=("train.py:12, vision.requires_grad_(False)",))
    found = compared([replace(raised, rank=0, world=2), replace(few, rank=1, world=2)], 2)
    assert (found.odd, found.reason) == ((1,), "parameters")
    assert "vision.weight" in found.text()
    assert "train.py:12" in found.text()


def test_a_batch_that_lacks_what_the_others_have_is_named() -> None:
    found = compared(_four(replace(WAITS, batch=WAITS.batch[1:], place="train.py:41")), 4)
    assert (found.odd, found.reason) == ((2,), "batch")
    assert "batch['image']" in found.text()


def test_of_two_ranks_that_wait_at_different_lines_the_one_under_a_condition_differs() -> None:
    other = replace(WAITS, rank=1, world=2, place="train.py:38", branch="train.py:37")
    found = compared([replace(WAITS, world=2), other], 2)
    assert (found.odd, found.reason) == ((1,), "place")
    assert "train.py:37" in found.text()
    assert is_told(found)


def test_a_collective_that_is_another_on_one_rank_is_told_with_both_lines() -> None:
    mean = Collective("0", 20, "all_reduce", 507)
    extra = Collective("0", 20, "all_reduce", 1, "train.py:38", "train.py:37")
    records = [replace(WAITS, world=2, made=(mean,)), replace(WAITS, rank=1, world=2, made=(extra,))]
    found = compared(records, 2)
    assert (found.odd, found.reason) == ((1,), "mismatch")
    assert "all_reduce (1) on rank 1, begun at train.py:38" in found.text()
    assert "train.py:37" in found.text()
    assert is_told(found)


@pytest.mark.parametrize(
    ("name", "unlike"), [("_all_gather_base", True), ("_reduce_scatter_base", True), ("all_gather", False)]
)
def test_collectives_in_which_all_hand_in_as_much_do_not_fit_where_sizes_differ(name: str, unlike: bool) -> None:
    one, other = (Collective("0", 20, name, elements) for elements in (28, 18))
    assert (first_mismatch([[one], [other]]) is not None) is unlike


def test_ranks_that_stand_elsewhere_without_waiting_are_no_fault() -> None:
    saving = replace(WAITS, place="train.py:60", waits=False, state="stuck")
    assert not is_told(compared(_four(saving, at=0), 4))


def test_ranks_that_all_stand_alike_are_no_fault() -> None:
    assert not is_told(compared(_four(WAITS), 4))


def test_a_rank_that_crashed_is_told_with_its_line() -> None:
    crashed = replace(WAITS, rank=2, state="crashed", place="train.py:38", error="Aborted", branch="train.py:37")
    echo = replace(WAITS, state="raised", error="RuntimeError: Connection reset by peer", echo=True)
    found = replace(compared([replace(echo, rank=rank) for rank in (0, 1, 3)], 4), crashed=(crashed,))
    assert "train.py:38" in found.text()
    assert "train.py:37" in found.text()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_of_sixty_four_ranks_is_a_few_lines(language: str) -> None:
    raised = replace(
        WAITS, state="raised", waits=False, error="RuntimeError: element 0 of tensors does not require grad"
    )
    records = [replace(raised if rank == 37 else WAITS, rank=rank, world=64) for rank in range(64)]
    with speaking(language):
        text = compared([RankRecord.read(one.written()) for one in records], 64).text()
    assert len(text.splitlines()) < 8
    assert "37" in text
    assert "0-36, 38-63" in text


def test_many_ranks_are_named_as_runs_and_not_without_end() -> None:
    assert ranks_in_words(range(64)) == "0-63"
    assert ranks_in_words(range(0, 64, 2)).endswith("...")


def test_a_rank_that_has_had_fewer_batches_is_told_with_its_steps() -> None:
    done = RankRecord(1, 2, "done", steps=4)
    echo = replace(WAITS, world=2, state="raised", error="RuntimeError: Connection closed by peer", echo=True, steps=5)
    for other in (echo, replace(WAITS, world=2, steps=5)):
        found = compared([other, done], 2)
        assert (found.odd, found.reason) == ((1,), "done")
        assert is_told(found)
        assert "rank 1 ended after 4 steps" in found.text()


def test_a_rank_that_fails_by_itself_after_another_has_ended_is_named_itself() -> None:
    raised = replace(WAITS, world=2, state="raised", error="ValueError: broken", waits=False)
    assert compared([raised, RankRecord(1, 2, "done", steps=7)], 2).reason == "error"


def test_stages_of_a_pipeline_hold_other_parameters_by_right() -> None:
    records = [
        replace(WAITS, rank=rank, trainable=(f"stage{rank}.weight",), place=f"train.py:{rank}") for rank in range(4)
    ]
    assert compared([replace(one, staged=True) for one in records], 4).odd == ()
    assert compared(records, 4).odd != ()
    raised = replace(records[2], state="raised", waits=False, error="ValueError: broken")
    found = compared([replace(raised if one.rank == 2 else one, staged=True) for one in records], 4)
    assert (found.odd, found.reason) == ((2,), "error")
    assert "stages of a pipeline" in found.text()
    assert "do not require grad" not in found.text()


def test_the_record_of_two_gpus_has_every_program_with_its_rank_and_line() -> None:
    record = json.loads((REPO / "benchmarks" / "records" / "ranks_cuda.json").read_text(encoding="utf-8"))
    programs = record["programs"]
    sharded = programs.pop("sharded")
    assert set(programs) == {"image", "label", "nan", "detach", "frozen", "collective"}
    assert all(one["rank"] and one["line"] and one["status"] for one in programs.values())
    assert (sharded["line"], sharded["status"]) == (True, True)  # which of two ranks it is, was told wrong in this run
    assert record["cost"]["watched_over_plain"] < 1.01


def test_a_rank_whose_group_is_gone_knows_its_place_from_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_store.place() == (1, 2)
    monkeypatch.setenv("WORLD_SIZE", "")
    assert rank_store.place() == (0, 1)


UNUSED = {
    "state": "raised", "waits": False, "error": "RuntimeError: Expected to have finished reduction", "passes": True,
    "cause": "trainable_unused", "report": "help: freeze the parameters", "apart": "help: use them",
}  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_cure_of_a_part_that_one_rank_leaves_out_has_its_price_and_no_other_help_beside_it(language: str) -> None:
    with speaking(language):
        said = compared([replace(WAITS, world=2), replace(WAITS, rank=1, world=2, **UNUSED)], 2).text()  # type: ignore[arg-type]
    assert "loss + 0 * sum(p.sum() for p in part.parameters())" in said
    assert "0.072" in said
    assert "all_reduce" in said
    assert "freeze" not in said


def test_what_all_ranks_leave_out_may_be_frozen_on_all() -> None:
    said = compared([replace(WAITS, rank=rank, world=2, **UNUSED) for rank in (0, 1)], 2).text()  # type: ignore[arg-type]
    assert "freeze the parameters" in said
    assert "0 * sum" not in said


def test_ranks_of_two_machines_stand_at_the_same_line_in_different_folders() -> None:
    here, there = replace(WAITS, world=2), replace(WAITS, rank=1, world=2, place="/data/run/" + WAITS.place)
    found = compared([here, there], 2)
    assert (found.odd, found.reason) == ((), "")
    assert len(found.groups()) == 1
