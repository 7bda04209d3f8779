"""``%load_ext gradkit``: beneath a failed cell stands the line of it that lost the gradient; nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gradkit
from gradkit.notebook import extension
from gradkit.notebook.extension import Extension, OpenPanel, is_watched, without_magic
from gradkit.report.report import Report
from gradkit.source import frames
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import hears

SETUP = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 2)
"""
FAILS = """
for epoch in range(2):
    optimizer.zero_grad()
    hidden = model[0](x)
    with torch.no_grad():
        out = model[1](hidden)
    out.sum().backward()
    optimizer.step()
"""
SILENT = """%%gradkit
for epoch in range(4):
    optimizer.zero_grad()
    hidden = model[0](x).detach()
    model[1](hidden).sum().backward()
    optimizer.step()
"""
SOUND = """%%gradkit
for epoch in range(3):
    optimizer.zero_grad()
    model(x).pow(2).sum().backward()
    optimizer.step()
"""


class Shown:
    """What a shell displayed, and what it printed."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell, self.reports, self.panels = shell, [], []

    def display(self, *objects: Any) -> None:
        """Stands for IPython's display."""
        self.reports += [one for one in objects if isinstance(one, Report)]
        self.panels += [one for one in objects if isinstance(one, OpenPanel)]

    def run(self, cell: str) -> Any:
        """Run a cell as a person does."""
        return self.shell.run_cell(cell, store_history=True)

    def lines(self) -> list[str]:
        """The line that each finding names."""
        return [f.location.text.strip() for report in self.reports for f in report.findings if f.location]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """A shell that has loaded the extension and run the set-up."""
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    found = Shown(shell)
    monkeypatch.setattr(frames, "notebook_shell", lambda: shell)
    monkeypatch.setattr("IPython.display.display", found.display)
    monkeypatch.setattr(extension, "_has_page", lambda: True)
    gradkit.load_ipython_extension(shell)
    found.run(SETUP)
    yield found
    gradkit.unload_ipython_extension(shell)
    shell.restore_sys_module_state()


def test_beneath_a_failed_cell_stands_the_line_that_cut_it(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(shown.run(FAILS).error_in_exec, RuntimeError)
    assert shown.lines()[:1] == ["with torch.no_grad():"]
    assert "does not require grad" in capsys.readouterr().out


@pytest.mark.parametrize("cell", ["1 / 0\n", FAILS], ids=["of Python", "of autograd"])
def test_the_traceback_of_a_failed_cell_is_as_without_gradkit(
    shown: Shown, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    def traceback() -> str:
        capsys.readouterr()
        shown.run(cell)
        return re.sub(r"In\s*\[\d+\]|input-\d+", "", capsys.readouterr().out)

    with_us = traceback()
    gradkit.unload_ipython_extension(shown.shell)
    assert with_us == traceback()


def test_a_cell_that_fails_for_another_reason_gets_no_report(shown: Shown) -> None:
    shown.run("{}['missing']\n")
    assert shown.reports == []


def test_a_watched_cell_that_trains_half_of_a_model_is_told_so(shown: Shown) -> None:
    assert shown.run(SILENT).success
    assert shown.lines()[:1] == ["hidden = model[0](x).detach()"]
    (report,) = shown.reports
    assert report.findings[0].location is not None
    assert report.findings[0].location.line == 4


def test_a_cell_that_nobody_asked_to_watch_says_nothing_of_silent_faults(shown: Shown) -> None:
    assert shown.run(SILENT.removeprefix("%%gradkit")).success
    assert shown.reports == []


def test_a_watched_sound_cell_is_told_in_one_line(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    shown.run(SOUND)
    assert capsys.readouterr().out.strip() == "gradkit: 3 optimizer steps, nothing to report."
    assert shown.reports == []


def test_percent_gradkit_looks_at_the_last_error_again(shown: Shown) -> None:
    shown.run(FAILS)
    shown.run("%gradkit")
    assert shown.lines()[:2] == ["with torch.no_grad():"] * 2


def test_percent_gradkit_says_that_nothing_failed(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    shown.run("import sys\nfor name in ('last_exc', 'last_value'): sys.__dict__.pop(name, None)\n")
    shown.run("%gradkit")
    assert "has failed here" in capsys.readouterr().out


def test_the_button_beneath_a_report_opens_the_panel_on_it(shown: Shown) -> None:
    shown.run(FAILS)
    (button,) = shown.panels
    button.button.click()
    (panel,) = button.children
    assert panel.report is shown.reports[0]
    panel.close()


def test_a_watched_cell_may_await(shown: Shown) -> None:
    assert shown.run("%%gradkit\nimport asyncio\nawait asyncio.sleep(0)\n").success


def test_an_unloaded_extension_leaves_nothing_in_the_shell(shown: Shown) -> None:
    shell = shown.shell
    gradkit.unload_ipython_extension(shell)
    left = [
        f
        for event in shell.events.callbacks.values()
        for f in event
        if isinstance(getattr(f, "__self__", None), Extension)
    ]
    assert left == []
    assert without_magic not in shell.input_transformers_cleanup
    assert shell.find_line_magic("gradkit") is None
    assert shell.find_cell_magic("gradkit") is None


def test_what_a_cell_freezes_is_heard_from_the_cell_that_loads_the_extension_on(shown: Shown) -> None:
    shown.run("model[0].requires_grad_(False)\n")
    weight = shown.shell.user_ns["model"][0].weight
    assert [deed.kind for deed in deeds_of(weight)][-1] == "frozen"
    gradkit.unload_ipython_extension(shown.shell)
    assert not hears()


def test_a_cell_that_only_goes_backward_is_told_the_line_of_an_earlier_cell(shown: Shown) -> None:
    shown.run("loss = model(x).detach().sum()\n")
    shown.run("loss.backward()\n")
    assert shown.lines() == ["loss = model(x).detach().sum()"]


def test_a_watched_cell_that_only_goes_backward_is_told_what_an_earlier_cell_has_cut(shown: Shown) -> None:
    shown.run("hidden = model[0](x).detach()\nloss = model[1](hidden).sum()\n")
    assert shown.run("%%gradkit\nloss.backward()\noptimizer.step()\n").success
    assert shown.lines()[:1] == ["hidden = model[0](x).detach()"]


def test_loading_twice_listens_once(shown: Shown) -> None:
    gradkit.load_ipython_extension(shown.shell)
    shown.run(FAILS)
    assert len(shown.reports) == 1


@pytest.mark.parametrize(
    ("cell", "watched"),
    [
        ("%%gradkit\nx", True),
        ("\n\n%%gradkit  \nx", True),
        ("%%gradkitty\nx", False),
        ("x\n%%gradkit", False),
        ("", False),
    ],
)
def test_a_cell_is_watched_if_its_first_line_says_so(cell: str, watched: bool) -> None:
    assert is_watched(cell) is watched
