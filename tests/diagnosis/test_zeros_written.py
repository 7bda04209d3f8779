"""Layers that draw their weights at random and are zero all the same: the line that wrote zeros is named, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.load.specs import load_file

X = torch.linspace(-1, 1, 12).view(4, 3)

PROGRAM = """
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, x):
        return self.body(x) + self.up(self.down(x))


def by_a_loop(model):
    for p in (model.down.weight, model.up.weight):
        p.data.zero_()  # WRITTEN


def by_a_function(model):
    def start(layer):
        if isinstance(layer, nn.Linear) and layer.bias is None:
            nn.init.zeros_(layer.weight)  # WRITTEN

    model.apply(start)


def loaded(model):
    model.load_state_dict({name: 0 * value for name, value in model.state_dict().items()})
"""


@pytest.mark.parametrize("writer", ["by_a_loop", "by_a_function", "loaded"])
def test_a_layer_that_draws_its_weights_is_not_said_to_have_begun_at_zero(writer: str, tmp_path: Path) -> None:
    text = PROGRAM.lstrip()
    for other in {"by_a_loop", "by_a_function", "loaded"} - {writer}:
        begin = text.index(f"def {other}(")
        text = text[:begin] + text[begin:].partition("\n\n\n")[2]
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    program = load_file(path)
    model = program.Adapted()
    getattr(program, writer)(model)
    found = gradkit.diagnose(lambda: (model(X) - 1).square().mean(), model=model).findings[0]
    assert (found.cause, found.variant) == ("zero_gradient", "deadlock")
    assert found.location is not None
    assert "nn.Linear(3, 2" not in found.location.text
    assert ("WRITTEN" in found.location.text) is (writer != "loaded")
