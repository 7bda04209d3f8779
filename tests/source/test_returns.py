"""Where a value was returned: by the function that made it, not by those that only hand it on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from torch import nn

from gradkit.core.trace import Chain
from gradkit.diagnosis.experiments.returns import WatchReturns
from gradkit.source import returns
from gradkit.state.preserve import Preserved
from gradkit.tracing.run import Session

MARK = "# HERE"


def line_marked(function: Callable[..., Any]) -> int:
    code = function.__code__
    with open(code.co_filename, encoding="utf-8") as file:
        lines = list(enumerate(file, 1))
    return next(number for number, text in lines if number >= code.co_firstlineno and text.rstrip().endswith(MARK))


def chain_of(step: Callable[[], Any]) -> Chain:
    watching, model = WatchReturns(), nn.Linear(1, 1)
    with Preserved(model) as preserved:
        Session(step, model, preserved).ask(lambda *_: None, watching)
    assert watching.outermost is not None
    return returns.handed_out(watching.outermost)


def at_once() -> None:
    def made() -> Any:
        return None  # HERE

    def step() -> Any:
        return made()

    check(step, at_once)


def by_a_variable() -> None:
    def made(wanted: bool) -> Any:
        if wanted:
            return 1
        return None  # HERE

    def step() -> Any:
        value = made(False)
        return value  # noqa: RET504

    check(step, by_a_variable)


def by_a_lambda_and_a_condition() -> None:
    def made() -> Any:
        return None  # HERE

    check(lambda: made() if line_marked else 1, by_a_lambda_and_a_condition)


def by_a_library_that_calls_back() -> None:
    def made(value: int) -> Any:
        return None  # HERE

    def step() -> Any:
        return max([1, 2], key=lambda value: value) and made(3)

    check(step, by_a_library_that_calls_back)


def without_a_return() -> None:
    def made() -> None:  # HERE
        len("abc")

    def step() -> Any:
        return made()  # type: ignore[func-returns-value]

    check(step, without_a_return)


def past_the_only_return() -> None:
    def step(wanted: bool = False) -> Any:  # noqa: RET503
        if wanted:  # HERE
            return 1

    check(step, past_the_only_return)


def made_of_what_another_returned() -> None:
    def half() -> float:
        return 0.5

    def step() -> Any:
        return half() * 2  # HERE

    check(step, made_of_what_another_returned)


def beside_another_call() -> None:
    def other() -> None:
        return None

    def step() -> Any:
        value = 1 if other() is None else 2  # type: ignore[func-returns-value]
        return value - 1  # HERE

    check(step, beside_another_call)


def check(step: Callable[[], Any], program: Callable[[], None]) -> None:
    assert returns.place(chain_of(step)[0]).line == line_marked(program)


@pytest.mark.parametrize(
    "program",
    [
        at_once, by_a_variable, by_a_lambda_and_a_condition, by_a_library_that_calls_back, without_a_return,
        past_the_only_return, made_of_what_another_returned, beside_another_call,
    ],
)  # fmt: skip
def test_a_value_was_returned(program: Callable[[], None]) -> None:
    program()


def test_a_variable_with_one_value_is_given_it_where_it_is_assigned() -> None:
    def step() -> Any:
        value = dict.fromkeys("ab").get("a")  # HERE
        return value  # noqa: RET504

    spot = returns.given_at(chain_of(step)[0])
    assert spot is not None
    assert spot.line == line_marked(test_a_variable_with_one_value_is_given_it_where_it_is_assigned)


def test_a_variable_with_several_values_is_not_followed() -> None:
    def step() -> Any:
        value = None
        for value in range(0):  # noqa: B007
            pass
        return value

    assert returns.given_at(chain_of(step)[0]) is None


def two_returns(wanted: bool) -> Any:
    if wanted:
        return 1
    return None  # HERE


def test_without_a_run_the_only_return_of_nothing_is_read_off_the_source() -> None:
    (point,) = returns.only_return(two_returns.__code__, nothing=True)
    assert returns.place(point).line == line_marked(two_returns)
    assert returns.only_return(two_returns.__code__) == ()


def test_the_hook_of_a_profiler_that_runs_is_left_alone() -> None:
    def profiler(frame: FrameType, event: str, value: Any) -> None: ...

    watching = WatchReturns()
    sys.setprofile(profiler)
    try:
        with watching.during_step():
            assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert watching.outermost is None


def test_nobody_watches_afterwards_whatever_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), WatchReturns().during_step():
        _ = 1 / 0
    assert sys.getprofile() is None
