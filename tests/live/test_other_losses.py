"""What lies behind an error of a whole program: told where its step has all of the losses, and only there."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gradkit.live import explain

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.middle, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        code = self.encoder(x).detach()
        h = self.middle(code).sigmoid()
        h += 1
        return self.head(h), code

torch.manual_seed(0)
model, x = Net(), torch.randn(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    for _ in range(3):
        optimizer.zero_grad()
        out, code = model(x)
        out.square().mean().backward()
        {rest}
        optimizer.step()

{program}
"""


def causes(tmp_path: Path, rest: str = "pass", program: str = "train()") -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(NET.format(rest=rest, program=program))
    with pytest.raises(RuntimeError) as caught:
        runpy.run_path(str(file))
    found = explain.of_error(caught.value)
    assert found is not None
    assert found.report is not None
    return [one.cause for one in found.report.findings]


def test_a_cut_behind_the_error_of_a_training_loop_is_named_besides(tmp_path: Path) -> None:
    assert causes(tmp_path) == ["inplace_modified", "detach"]


def test_nothing_is_blamed_besides_where_another_loss_follows_in_the_loop(tmp_path: Path) -> None:
    assert causes(tmp_path, rest="model.encoder(x).square().mean().backward()") == ["inplace_modified"]


def test_nothing_is_blamed_besides_where_another_function_has_a_loss(tmp_path: Path) -> None:
    program = "def of_the_encoder():\n    model.encoder(x).square().mean().backward()\n\ntrain()\nof_the_encoder()"
    assert causes(tmp_path, program=program) == ["inplace_modified"]
