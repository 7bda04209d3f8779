"""Layers that were built with ``inplace=True`` and overwrite what backward needs: the line that builds one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.load.specs import load_file
from gradkit.types import Report

HEAD = "import torch\nfrom torch import nn\n\n"
STEP = """

def make():
    torch.manual_seed(0)
    model, x = Net(), torch.randn(6, 4)
    return model, lambda: model(x).square().mean()
"""

IN_A_SEQUENTIAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 4),
            nn.Sigmoid(),
            nn.ReLU(inplace=True),  # CUT
            nn.Linear(4, 1),
        )
        self.other = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.other(self.net(x))
"""

BY_A_HELPER = """
def block(wide, rate):
    parts = [nn.Linear(wide, wide), nn.LeakyReLU(0.1, True)]
    parts.append(nn.Dropout(rate, True))  # CUT
    return parts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(2):
            layers += block(4, 0.5)
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)
"""

AS_AN_ATTRIBUTE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.ELU(inplace=True)  # CUT

    def forward(self, x):
        gate = torch.sigmoid(self.lin(x))
        return self.act(gate) * gate
"""

BY_A_VARIABLE = """
class Net(nn.Module):
    def __init__(self, kind="SiLU"):
        super().__init__()
        self.lin, cls = nn.Linear(4, 4), getattr(nn, kind)
        self.act = cls(inplace=True)  # CUT

    def forward(self, x):
        gate = torch.exp(self.lin(x))
        return self.act(gate)
"""

ANY_OF_TWO = """
class Net(nn.Module):
    def __init__(self, table=None):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        table = {"a": nn.ReLU(inplace=True), "b": nn.Identity()}
        other = {"a": nn.ReLU(inplace=True)}
        for name, one in {**table, **other}.items():
            setattr(self, name, one)

    def forward(self, x):
        gate = torch.sigmoid(self.lin(x))
        return self.a(gate) * gate  # USED
"""

WRITTEN_OUT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x):
        gate = torch.sigmoid(self.act(self.lin(x)))
        return torch.relu_(gate)  # USED
"""


def _diagnosed(text: str, folder: Path) -> tuple[Report, str]:
    path = folder / "program.py"
    path.write_text(HEAD + text.lstrip() + STEP, encoding="utf-8")
    model, step = load_file(path).make()
    report = gradkit.diagnose(step, model=model)
    assert isinstance(model, torch.nn.Module)
    return report, (HEAD + text.lstrip()).splitlines()[(report.findings[0].location or _none()).line - 1]


def _none() -> gradkit.types.Location:
    raise AssertionError("no line")


@pytest.mark.parametrize("text", [IN_A_SEQUENTIAL, BY_A_HELPER, AS_AN_ATTRIBUTE, BY_A_VARIABLE])
def test_the_line_that_builds_the_layer_is_named_and_proven(text: str, tmp_path: Path) -> None:
    report, line = _diagnosed(text, tmp_path)
    found = [(one.cause, one.variant, one.proof) for one in report.findings]
    assert (found, line.rpartition("  # ")[2]) == ([("inplace_modified", "layer", "proven")], "CUT")


@pytest.mark.parametrize("text", [ANY_OF_TWO, WRITTEN_OUT])
def test_where_no_line_or_more_than_one_may_be_meant_the_line_that_overwrites_is_named(
    text: str, tmp_path: Path
) -> None:
    report, line = _diagnosed(text, tmp_path)
    assert ([one.variant for one in report.findings], line.rpartition("  # ")[2]) == ([""], "USED")


@pytest.mark.parametrize(("language", "words"), [("en", "leave inplace=True out"), ("zh", "去掉这里的 inplace=True")])
def test_what_to_do_is_said_in_both_languages(language: str, words: str, tmp_path: Path) -> None:
    report, _ = _diagnosed(AS_AN_ATTRIBUTE, tmp_path)
    assert words in report.text(language)
