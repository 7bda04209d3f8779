"""A tensor that the model holds under several names is told by all of them, and counted once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.core.records import TIED

TOKENS = torch.randint(0, 10, (2, 3), generator=torch.Generator().manual_seed(0))


class Words(nn.Module):
    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight
        self.table.requires_grad_(not frozen)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.body(self.table(tokens))).flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("asked", ["table.weight", "head.*", "*"])
def test_a_finding_about_one_name_gives_the_others_too(asked: str) -> None:
    model = Words(frozen=True)
    report = gradkit.diagnose(lambda: model(TOKENS), model=model, should_train=["body.*", asked])
    assert report.findings[0].facts[TIED] == "table.weight, head.weight"
    assert "one tensor: table.weight, head.weight" in report.text("en")
    assert "同一个张量" in report.text("zh")


def test_a_tensor_of_two_names_is_counted_once() -> None:
    model = Words(frozen=True)
    report = gradkit.diagnose(lambda: model(TOKENS), model=model, should_train=["*"])
    assert report.findings[0].parameters == ("table.weight",)


def test_a_finding_about_other_parameters_says_nothing_of_it() -> None:
    model = Words(frozen=False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            hidden = model.body(model.table(TOKENS))
        return F.cross_entropy(model.head(hidden).flatten(0, 1), TOKENS.flatten())

    (found,) = gradkit.diagnose(step, model=model).findings
    assert found.parameters == ("body.weight", "body.bias")
    assert TIED not in found.facts
