"""The way to an error, from the outermost frame that is known: also of errors that were raised from one another."""

from __future__ import annotations

import sys

import pytest

from gradkit.live import stack


def names(points: tuple[stack.Point, ...]) -> list[str]:
    """The functions from the test's own frame on."""
    every = [point.code.co_name for point in points]
    return every[max(at for at, name in enumerate(every) if name.startswith("test_")) :]


def fail() -> None:
    raise KeyError("inner")


def raise_from() -> None:
    try:
        fail()
    except KeyError as inner:
        raise ValueError("outer") from inner


def raise_while_handling() -> None:
    try:
        fail()
    except KeyError:
        raise ValueError("outer")  # noqa: B904


def call(function: object) -> None:
    function()  # type: ignore[operator]


def caught(function: object) -> Exception:
    with pytest.raises((KeyError, ValueError)) as found:
        call(function)
    return found.value


def test_the_frames_of_an_error_go_from_the_outermost_inwards() -> None:
    try:
        call(fail)
    except KeyError as error:
        found = stack.of_error(error)
    assert names(found) == ["test_the_frames_of_an_error_go_from_the_outermost_inwards", "call", "fail"]
    assert found[-1].line == fail.__code__.co_firstlineno + 1


def test_an_error_that_names_its_cause_leads_to_the_cause() -> None:
    try:
        call(raise_from)
    except ValueError as error:
        found = stack.of_error(error)
    assert names(found)[1:] == ["call", "raise_from", "fail"]
    assert found[-2].line == raise_from.__code__.co_firstlineno + 2  # where it was called, not where it was caught


def test_of_an_error_raised_while_another_was_handled_the_wanted_one_is_asked_for() -> None:
    error = caught(raise_while_handling)
    inner = error.__context__
    assert inner is not None
    assert [one.code.co_name for one in stack.of_error(error)][-2:] == ["call", "raise_while_handling"]
    assert [one.code.co_name for one in stack.of_error(error, inner)][-3:] == ["call", "raise_while_handling", "fail"]


def test_a_frame_that_raises_what_it_caught_again_counts_once() -> None:
    def again() -> None:
        try:
            fail()
        except KeyError as error:
            raise error

    try:
        call(again)
    except KeyError as error:
        found = stack.of_error(error)
    assert names(found)[1:] == ["call", "again", "fail"]
    assert found[-2].line == again.__code__.co_firstlineno + 2


def test_an_error_that_was_caught_leads_on_to_the_frames_that_still_run() -> None:
    def work() -> tuple[stack.Point, ...]:
        try:
            fail()
        except KeyError as error:
            return stack.of_error(error)
        return ()

    found = work()
    assert names(found) == ["test_an_error_that_was_caught_leads_on_to_the_frames_that_still_run", "work", "fail"]
    assert found[0].frame.f_back is None


def test_frames_that_have_moved_on_do_not_belong_to_an_error() -> None:
    def keep() -> KeyError:
        try:
            fail()
        except KeyError as error:
            return error
        raise AssertionError

    error = keep()
    assert [point.code.co_name for point in stack.of_error(error)] == ["keep", "fail"]


def test_errors_that_were_raised_from_each_other_in_a_circle_end() -> None:
    error = caught(raise_from)
    assert error.__cause__ is not None
    error.__cause__.__cause__ = error
    assert stack.of_error(error)


def test_the_frames_that_run_lead_to_the_one_that_asks() -> None:
    def ask() -> tuple[stack.Point, ...]:
        return stack.running(sys._getframe())

    found = ask()
    assert names(found) == ["test_the_frames_that_run_lead_to_the_one_that_asks", "ask"]
    assert stack.is_running(found[-2].frame)
    assert not stack.is_running(found[-1].frame)
