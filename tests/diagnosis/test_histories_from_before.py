"""A history that is there before a step and that its backward frees: told beside a clean bill, and blamed on nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from tests.marks import line_ending

HEADS = nn.ModuleDict({"stem": nn.Linear(4, 4), "head": nn.Linear(4, 2)})


def step_on(features: torch.Tensor, *, trains: bool = False, keep: bool = False) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        loss = HEADS["head"](features).square().mean()  # used
        if trains:
            loss.backward(retain_graph=keep)
        return loss

    return step


@pytest.mark.parametrize("trains", [False, True], ids=["its backward is ours", "its backward is its own"])
def test_features_from_before_the_step_are_told_where_the_step_uses_them(trains: bool) -> None:
    features = HEADS["stem"](torch.ones(3, 4)).tanh()
    report = gradkit.diagnose(step_on(features, trains=trains), model=HEADS)
    assert not report.findings
    assert [spot.line for spot in report.meant.from_before] == [line_ending(__file__, "used")]
    assert "a second step raises" in report.text()
    assert "第二步会报错" in report.text(language="zh")
    features.sum().backward()  # not freed by the diagnosis


def test_a_step_that_keeps_the_graph_on_purpose_is_told_nothing() -> None:
    features = HEADS["stem"](torch.ones(3, 4)).tanh()
    assert not gradkit.diagnose(step_on(features, trains=True, keep=True), model=HEADS).meant.from_before


def test_a_view_made_before_the_step_keeps_nothing_that_could_be_freed() -> None:
    weight = HEADS["stem"].weight.view(4, 4)
    report = gradkit.diagnose(step_on(weight), model=HEADS, should_train=["head.*", "stem.weight"])
    assert not report.findings
    assert not report.meant.from_before


def test_features_without_a_history_are_told_nothing() -> None:
    features = HEADS["stem"](torch.ones(3, 4)).tanh().detach()
    report = gradkit.diagnose(step_on(features), model=HEADS, should_train=["head.*"])
    assert not report.meant.from_before
