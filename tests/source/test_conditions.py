"""Of a layer that was passed by, it is said which line would have used it, and on what condition."""

from __future__ import annotations

import torch
from torch import nn

import gradkit
from gradkit.core.records import Finding


class Reader(nn.Module):
    """Reads a page of a long text; each way to the layers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.page = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.extra = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        if len(x) > 50:
            x = self.read(x)
        if len(x) > 60:
            x = self.again(x)
        if len(x) > 70:
            x = self.again(x + 1)
        if len(x) < 80:
            return x.sum()
        return self.finish(x)

    def read(self, x: torch.Tensor) -> torch.Tensor:
        return self.page(x)

    def again(self, x: torch.Tensor) -> torch.Tensor:
        return self.twice(x)

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        return self.extra(x).sum()

    def summary(self) -> int:
        return sum(p.numel() for p in self.page.parameters())


def finding(layer: str) -> Finding:
    model = Reader()
    report = gradkit.diagnose(lambda: model(torch.ones(2, 4)), model=model)
    return next(one for one in report.findings if one.module == layer)


def notes(layer: str) -> list[tuple[str, str]]:
    return [(one.kind, one.location.text.strip() if one.location else "") for one in finding(layer).notes]


def test_the_condition_is_named_on_which_a_method_that_did_not_run_is_called() -> None:
    assert notes("page") == [("not_run", "return self.page(x)"), ("only_if", "if len(x) > 50:")]


def test_a_return_before_the_line_is_a_condition_that_must_not_hold() -> None:
    assert notes("extra") == [("not_run", "return self.extra(x).sum()"), ("only_if_not", "if len(x) < 80:")]


def test_of_two_ways_to_a_layer_neither_condition_is_said_to_be_the_one() -> None:
    assert notes("twice") == [("not_run", "return self.twice(x)")]


def test_a_method_that_nothing_calls_is_not_named_as_a_use() -> None:
    assert "summary" not in {one.location.function.split(".")[-1] for one in finding("page").notes if one.location}


def test_layers_that_one_line_makes_are_told_by_the_module_that_holds_them() -> None:
    assert finding("page").parameters == ("page.0.weight", "page.0.bias", "page.1.weight", "page.1.bias")
