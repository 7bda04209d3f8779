"""What a rank's batch holds is read where the batch is: in the user's frames, or in those of a library that trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from gradkit.live import rank_batches
from gradkit.live.rank_places import stand_of
from gradkit.live.rank_records import RankRecord, compared
from gradkit.live.rank_sentry import Sentry

TRAINS = """\
def train(model, step):
    inputs = {"image": torch.ones(2, 3), "kind": torch.ones(2)}
    return step(model(inputs["image"]))
def measure(wanted):
    other = torch.ones(7)
    return wanted()
"""
LATE = "Expected to have finished reduction in the prior iteration before starting a new one."


@pytest.fixture
def librarys() -> Iterator[dict[str, Any]]:
    """Two functions of an installed library; it forgets afterwards what has led to a step."""
    made: dict[str, Any] = {"torch": torch, "__name__": "trainers"}
    exec(compile(TRAINS, pytest.__file__, "exec"), made)
    yield made
    rank_batches.loops.forget()


def test_the_batch_is_read_from_the_library_that_has_led_to_a_step(librarys: dict[str, Any]) -> None:
    data = torch.ones(100, 3)
    model = torch.nn.Linear(3, 1)
    librarys["train"](model, lambda _: rank_batches.loops.stepped(sys._getframe()))
    stand = librarys["train"](model, lambda _: stand_of(sys._getframe()))
    assert stand.batch == (("inputs['image']", "2 x 3"), ("inputs['kind']", "2"))
    assert stand.batch_in == "trainers.train"
    assert len(data) == 100


def test_another_function_of_a_library_holds_no_batch(librarys: dict[str, Any]) -> None:
    scene = {"sound": torch.ones(4, 5)}
    librarys["train"](torch.nn.Linear(3, 1), lambda _: rank_batches.loops.stepped(sys._getframe()))
    stand = librarys["measure"](lambda: stand_of(sys._getframe()))
    assert "other" not in dict(stand.batch)
    assert dict(stand.batch)["scene['sound']"] == "4 x 5"
    assert (stand.batch_in, len(scene)) == ("", 1)


def test_batches_of_different_places_are_not_compared() -> None:
    here = RankRecord(0, 2, "stuck", "train.py:9", waits=True, batch=(("inputs['image']", "2"),), batch_in="t.train")
    there = RankRecord(1, 2, "raised", "train.py:5", error="ValueError: x", batch=(("image", "2"),))
    said = compared([here, there], 2).text()
    assert "the batch of rank 1: image (2)" in said
    assert "lacks" not in said
    assert "alone holds" not in said


def test_a_result_that_has_lost_its_history_is_no_part_of_a_batch() -> None:
    batch = (("scene['image']", "2 x 3"),)
    here = RankRecord(0, 2, "stuck", "train.py:9", waits=True, batch=batch, computed=("guess",))
    there = RankRecord(1, 2, "raised", "train.py:9", error="ValueError: x", batch=(*batch, ("guess", "2 x 3")))
    assert "alone holds" not in compared([here, there], 2).text()
    assert compared([here, replace(there, state="stuck", error="", waits=True)], 2).reason != "batch"


class _Asked:
    """An exchange of a rank that others ask, with what it posts."""

    rank, world = 1, 2

    def __init__(self) -> None:
        self.posted: list[RankRecord] = []

    def post(self, _: int, record: RankRecord, *, again: bool = False) -> None:
        assert again
        self.posted.append(record)


def _asked_while_raising(error: Exception, steps: Callable[[], int]) -> RankRecord:
    sentry, asked = Sentry(print, steps), _Asked()
    batch = (("scene['sound']", "4 x 5"),)
    sentry._hinted = RankRecord(1, 2, "found", steps=5, batch=batch, cause="trainable_unused", report="R", passes=True)
    sentry._exchange = asked  # type: ignore[assignment]
    sentry._idle.clear()
    sentry.raising(error)
    return asked.posted[0]


def test_a_rank_that_is_asked_while_it_looks_for_the_reason_says_what_its_last_step_has_shown() -> None:
    said = _asked_while_raising(RuntimeError(LATE), lambda: 5)
    assert (said.final, said.cause, said.report, said.batch) == (
        False,
        "trainable_unused",
        "R",
        (("scene['sound']", "4 x 5"),),
    )


@pytest.mark.parametrize(("error", "steps"), [(ValueError("broken"), 5), (RuntimeError(LATE), 6)])
def test_an_error_of_another_kind_or_step_is_not_explained_by_that(error: Exception, steps: int) -> None:
    assert _asked_while_raising(error, lambda: steps).cause == ""


def test_what_was_told_of_a_rank_that_waits_is_not_told_again_when_it_raises() -> None:
    sentry = Sentry(print, lambda: 5)
    here = RankRecord(0, 2, "stuck", "train.py:9", waits=True)
    found = RankRecord(1, 2, "stuck", "train.py:9", waits=True, cause="trainable_unused", verdict="look at train.py:5")
    first, again = compared([here, found], 2), compared([here, replace(found, state="raised", error="E: timed out")], 2)
    other = compared([here, replace(found, cause="detach")], 2)
    assert [sentry._is_news(one) for one in (first, again, other)] == [True, False, True]
