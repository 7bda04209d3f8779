"""A reentrant checkpoint whose ``use_reentrant`` is a setting: the line that holds the setting is named."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import gradkit
from gradkit.types import Report

HEAD = """\
import functools
from dataclasses import dataclass
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.tanh(self.fc(x))


"""

FIELD = """
@dataclass
class Settings:
    depth: int = 2
    use_reentrant: bool = {on}  # HERE


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.body, self.head = cfg, Block(), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=self.cfg.use_reentrant))


net = Net(Settings())
"""

SPREAD = """
OPTIONS = {{"use_reentrant": {on}, "preserve_rng_state": False}}  # HERE


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.body, self.head, self.options = Block(), nn.Linear(4, 1), options

    def forward(self, x):
        return self.head(checkpoint(self.body, x, **self.options))


net = Net(OPTIONS)
"""

LATER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.checkpointing = Block(), nn.Linear(4, 1), None

    def forward(self, x):
        if self.checkpointing is not None:
            return self.head(checkpoint(self.body, x, **self.checkpointing))
        return self.head(self.body(x))


net = Net()
net.checkpointing = dict(use_reentrant={on})  # HERE
"""

ARGUMENT = """
class Net(nn.Module):
    def __init__(self, reentrant={on}):  # HERE
        super().__init__()
        self.body, self.head, self.reentrant = Block(), nn.Linear(4, 1), reentrant

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=self.reentrant))


net = Net()
"""

FALLBACK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Block(), nn.Linear(4, 1)
        self.run = None

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
        if gradient_checkpointing_kwargs is None:
            gradient_checkpointing_kwargs = {{"use_reentrant": True}}
        self.run = functools.partial(checkpoint, **gradient_checkpointing_kwargs)

    def forward(self, x):
        return self.head(self.run(self.body, x))


def build(kwargs):
    net = Net()
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    return net


net = build({{"use_reentrant": {on}}})  # HERE
"""

OR_ELSE = """
class Net(nn.Module):
    def __init__(self, options=None):
        super().__init__()
        self.body, self.head = Block(), nn.Linear(4, 1)
        self.options = options or dict(use_reentrant=True)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, **self.options))


net = Net({{"use_reentrant": {on}}})  # HERE
"""

HANDED_ON = """
class Part(nn.Module):
    def __init__(self, width, reentrant={on}):  # HERE
        super().__init__()
        self.body, self.reentrant = Block(), reentrant

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant)


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.part, self.head = Part(4, **options), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.part(x))


def build(**options):
    return Net(**options)


net = build()
"""

UNREADABLE = """
import json


class Part(nn.Module):
    def __init__(self, width, reentrant={on}):
        super().__init__()
        self.body, self.reentrant = Block(), reentrant

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant)  # HERE


net = nn.Sequential(Part(4, **json.loads("{{}}")), nn.Linear(4, 1))
"""

PARTIAL = """
class Net(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.body, self.head = Block(), nn.Linear(4, 1)
        self.run = functools.partial(checkpoint, **settings["checkpoint"])

    def forward(self, x):
        return self.head(self.run(self.body, x))


net = Net({{"checkpoint": {{"use_reentrant": {on}}}}})  # HERE
"""

BOUND = """
run = functools.partial(checkpoint, use_reentrant={on})  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Block(), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(run(self.body, x))


net = Net()
"""

TWO = """
FIRST = dict(use_reentrant={on})
SECOND = dict(use_reentrant={on})


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.body, self.head, self.options = Block(), nn.Linear(4, 1), options

    def forward(self, x):
        return self.head(checkpoint(self.body, x, **self.options))  # HERE


net = Net(SECOND)
"""

WRITTEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Block(), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant={on}))  # HERE


net = Net()
"""

TAIL = """
x = torch.ones(3, 4)


def step():
    return net(x).square().mean()
"""
HELD = {
    "field": FIELD, "spread": SPREAD, "later": LATER, "argument": ARGUMENT, "partial": PARTIAL, "bound": BOUND,
    "handed_on": HANDED_ON, "fallback": FALLBACK, "or_else": OR_ELSE,
}  # fmt: skip
PLAIN = {"two": TWO, "written": WRITTEN, "unreadable": UNREADABLE}


def _report(folder: Path, text: str, on: str) -> tuple[Report, int]:
    text = HEAD + textwrap.dedent(text).format(on=on) + TAIL
    line = next(at for at, one in enumerate(text.splitlines(), 1) if one.endswith("# HERE"))
    path = folder / "net.py"
    path.write_text(text)
    space: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, str(path), "exec", dont_inherit=True), space)
    return gradkit.diagnose(space["step"], model=space["net"]), line


@pytest.mark.parametrize("shape", HELD)
def test_the_line_that_holds_the_setting_is_named(shape: str, tmp_path: Path) -> None:
    report, line = _report(tmp_path, HELD[shape], "True")
    (finding,) = report.findings
    assert (finding.cause, finding.variant) == ("checkpoint_reentrant", "setting")
    assert finding.location is not None
    assert finding.location.line == line
    assert finding.notes[0].kind == "checkpointed_here"


@pytest.mark.parametrize("shape", PLAIN)
def test_where_no_one_line_holds_it_the_checkpoint_is_named(shape: str, tmp_path: Path) -> None:
    report, line = _report(tmp_path, PLAIN[shape], "True")
    (finding,) = report.findings
    assert (finding.cause, finding.variant) == ("checkpoint_reentrant", "")
    assert finding.location is not None
    assert finding.location.line == line


@pytest.mark.parametrize("shape", [*HELD, *PLAIN])
def test_with_the_setting_off_the_program_gets_a_clean_bill(shape: str, tmp_path: Path) -> None:
    assert _report(tmp_path, {**HELD, **PLAIN}[shape], "False")[0].healthy


def test_the_sentence_at_the_setting_is_about_the_setting(tmp_path: Path) -> None:
    report, _ = _report(tmp_path, SPREAD, "True")
    assert "use_reentrant is on here" in report.text("en")
    assert "OPTIONS" in report.text("zh")
