"""What a diagnosis keeps alive afterwards: nothing of the user's."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

import gradkit
from gradkit.owners import by_class


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
