"""A history that is there before a step and that its backward frees: told beside a clean bill, and blamed on nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


DRAWN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = nn.Linear(1, 1)

    def forward(self, t):
        return self.stack(t).tanh()


class Times:
    def draw(self):
        return 3.0 * torch.rand(5, 1, requires_grad=True).exp()


class Problem:
    def __init__(self, net, times):
        self.net = net
        self.t = times.draw()  # DRAWN

    def loss(self):
        return self.net(self.t).square().mean()

    def fit(self):
        self.loss().backward()
        return self.loss()


net = Net()
problem = Problem(net, Times())
"""


def test_what_a_constructor_computes_of_its_arguments_is_kept_on_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(DRAWN)
    space: dict[str, Any] = {"__name__": "problem"}
    exec(compile(DRAWN, str(path), "exec", dont_inherit=True), space)
    (finding,) = gradkit.diagnose(space["problem"].fit, model=space["net"]).findings
    line = next(at for at, one in enumerate(DRAWN.splitlines(), 1) if one.endswith("# DRAWN"))
    assert (finding.cause, finding.location and finding.location.line) == ("double_backward", line)
