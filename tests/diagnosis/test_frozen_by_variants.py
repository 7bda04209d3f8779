"""A file with several classes that freeze, of which one has run: the line of that one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradkit
from gradkit.load.specs import load_file

PROGRAM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.neck, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.neck(self.encoder(x))).square().mean()


class Trainer:
    def __init__(self):
        self.net = Net()
        self.freeze()

    def freeze(self):
        for name, p in self.net.named_parameters():
            p.requires_grad = name.split(".")[0] not in ("encoder", "neck")  # NECK


class Narrow(Trainer):
    def freeze(self):
        for name, p in self.net.named_parameters():
            if name.split(".")[0] == "encoder":
                p.requires_grad = False
            else:
                p.requires_grad = "hed" in name  # TYPO


class Mended(Trainer):
    def freeze(self):
        self.net.encoder.requires_grad_(False)


def make(kind):
    torch.manual_seed(0)
    trainer, x = kind(), torch.randn(5, 4)
    return trainer, lambda: trainer.net(x)
"""


@pytest.mark.parametrize(("kind", "mark"), [("Trainer", "NECK"), ("Narrow", "TYPO")])
def test_the_freezing_of_the_class_that_has_an_object_is_named(kind: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.lstrip(), encoding="utf-8")
    program = load_file(path)
    trainer, step = program.make(getattr(program, kind))
    found = gradkit.diagnose(step, model=trainer.net, should_train=["neck*", "head*"]).findings[0]
    assert found.location is not None
    assert (found.cause, found.location.text.rpartition("  # ")[2]) == ("frozen_all", mark)
