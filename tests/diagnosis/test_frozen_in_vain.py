"""All is frozen, and one line was to let some of it learn by a text that no name holds: that line is named."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.prompt_hub, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.prompt_hub(self.body(x))).sum()

net = Net()
train = True
FREEZE
def step():
    return net(torch.ones(2, 4))
"""
VALUE = """
for name, p in net.named_parameters():
    p.requires_grad = train and "soft_prompt" in name  # here
"""
CALL = """
for name, p in net.named_parameters():
    p.requires_grad_("soft_prompt" in name or "adapter" in name)  # here
"""
EXCEPTION = """
for name, p in net.named_parameters():
    if "classifier" not in name:
        p.requires_grad_(False)  # here
"""
SKIPPING = """
for name, p in net.named_parameters():
    if "classifier" in name:
        continue
    p.requires_grad = False  # here
"""
THAWING = """
net.requires_grad_(False)
for name, p in net.named_parameters():
    if "lora_" in name:
        p.requires_grad = True  # here
"""
RIGHTLY = """
for name, p in net.named_parameters():
    p.requires_grad = "prompt" in name
"""
SPARED_ELSEWHERE = """
net.requires_grad_(False)  # here
other = nn.Linear(2, 2)
for name, p in other.named_parameters():
    if "bias" in name:
        p.requires_grad = True
"""


def program(freeze: str, folder: Path) -> tuple[nn.Module, Callable[[], torch.Tensor], int]:
    """The model, the step and the marked line of a program in a file of its own."""
    text, path = NET.replace("FREEZE", freeze), folder / "freezing_program.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    line = next((at for at, one in enumerate(text.splitlines(), 1) if one.endswith("  # here")), 0)
    return module.net, module.step, line


@pytest.mark.parametrize("freeze", [VALUE, CALL, EXCEPTION, SKIPPING, THAWING])
def test_the_line_that_looks_for_a_name_that_is_not_there_is_named(freeze: str, tmp_path: Path) -> None:
    net, step, line = program(freeze, tmp_path)
    (found,) = gradkit.diagnose(step, model=net).findings
    assert (found.cause, found.variant, found.location.line) == ("frozen_all", "in_vain", line)
    assert found.proof == "likely"


def test_a_text_that_names_hold_is_no_finding(tmp_path: Path) -> None:
    net, step, _ = program(RIGHTLY, tmp_path)
    assert gradkit.diagnose(step, model=net).findings == ()


def test_a_line_that_looks_for_what_is_there_is_not_named(tmp_path: Path) -> None:
    net, step, line = program(SPARED_ELSEWHERE, tmp_path)
    (found,) = gradkit.diagnose(step, model=net).findings
    assert (found.variant, found.location.line) == ("", line)
