"""A trainer's callback opens a watch when training begins, and closes it when that ends."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import gradkit
from gradkit.core.errors import GradkitError
from tests.load.test_trainers import trainer


def test_an_unknown_library_is_told_with_those_that_are_known() -> None:
    with pytest.raises(GradkitError, match="transformers, lightning"):
        gradkit.callback("keras")


def test_a_trainers_silent_fault_is_told_by_its_callback(tmp_path: Path) -> None:
    one: Any = trainer(tmp_path, cut=True, steps=4)
    callback = gradkit.callback("transformers")
    told: list[Any] = []
    callback.watch.tell = told.append
    one.add_callback(callback)
    one.train()
    (report,) = callback.watch.reports
    assert (report.findings[0].cause, report.findings[0].location.text.strip()) == (
        "detach",
        "hidden = hidden.detach()  # CUT",
    )
    assert len(told) == 1
    assert repr(callback.watch).startswith("<gradkit.Watch: closed, steps: 4")


def test_a_callback_survives_copies_and_pickles() -> None:
    callback = gradkit.callback("transformers")
    assert copy.deepcopy(callback) is callback
    assert type(pickle.loads(pickle.dumps(callback))) is type(callback)


def test_lightning_has_its_own() -> None:
    pytest.importorskip("lightning")
    callback = gradkit.callback("lightning")
    assert {"on_fit_start", "on_fit_end", "on_exception"} <= set(vars(type(callback)))
