"""What a diagnosis keeps alive afterwards: nothing of the user's."""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit import GradkitError
from gradkit.state.reachable import by_class


def test_a_model_that_a_class_closes_over_is_freed() -> None:
    def diagnosed() -> weakref.ref[nn.Module]:
        model = nn.Linear(2, 1)

        class Trainer:
            __slots__ = ("loss",)

            def step(self) -> torch.Tensor:
                return model(torch.ones(1, 2)).sum()

        gradkit.diagnose(Trainer().step, model=model)
        return weakref.ref(model)

    known = diagnosed()
    gc.collect()
    assert known() is None


def test_what_is_remembered_of_a_class_dies_with_it() -> None:
    ask = by_class(lambda kind: kind.__name__)
    known = weakref.ref(made := type("Made", (), {}))
    assert ask(made) == "Made"
    del made
    gc.collect()
    assert known() is None


def test_a_class_is_asked_about_once() -> None:
    asked = []
    ask = by_class(asked.append)
    ask(dict), ask(dict)
    assert asked == [dict]


def _kept(call: Callable[[], object]) -> GradkitError:
    try:
        call()
    except GradkitError as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("call", [gradkit.diagnose, gradkit.verify], ids=["diagnose", "verify"])
def test_an_error_that_is_kept_keeps_no_model(call: Callable[..., object]) -> None:
    models = [nn.Linear(2, 1)]

    def step() -> None:
        models[0](torch.ones(1, 2)).sum().backward()
        raise ValueError("boom")

    known = weakref.ref(models[0])
    error = _kept(lambda: call(step, model=models[0]))
    models.clear()
    gc.collect()
    assert known() is None
    assert isinstance(error.__cause__, ValueError)


def test_an_error_that_is_kept_still_shows_the_line_that_raised() -> None:
    def step() -> None:
        raise ValueError("boom")  # here

    error = _kept(lambda: gradkit.diagnose(step, model=nn.Linear(2, 1)))
    assert "# here" in "".join(traceback.format_exception(error))


def test_an_error_that_the_caller_is_handling_keeps_its_variables() -> None:
    def fails() -> None:
        told = "kept"
        raise KeyError(told)

    def while_handling() -> KeyError:
        try:
            fails()
        except KeyError as error:
            _kept(lambda: gradkit.diagnose(lambda: "3", model=nn.Linear(2, 1)))
            return error
        raise AssertionError

    last = list(traceback.walk_tb(while_handling().__traceback__))[-1][0]
    assert last.f_locals["told"] == "kept"


def test_a_report_that_is_kept_keeps_no_model() -> None:
    models = [nn.Linear(2, 1)]
    known = weakref.ref(models[0])
    report = gradkit.diagnose(lambda: models[0](torch.ones(1, 2)).detach().sum(), model=models[0])
    models.clear()
    gc.collect()
    assert known() is None
    assert report.findings
