"""A script with argparse, ``main()`` and a loop is run by the panel as it is, in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gradkit.notebook import request
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import shown
from tests.live.test_aside import REPO, TRAIN
from tests.notebook.test_panel import not_chinese, press, problems, text_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script in it that trains."""
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(TRAIN.format(cut=".detach()"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    return tmp_path


def test_a_script_that_trains_is_what_the_panel_begins_with(folder: Path) -> None:
    panel = Panel()
    source = panel.form.source
    assert (panel.form.kind.value, source.mode.value, source.script.text) == ("file", "script", "train.py")
    assert panel.job is None
    assert not shown(panel.load)


def test_a_script_is_diagnosed_mended_and_diagnosed_again(folder: Path) -> None:
    panel = Panel()
    panel.form.source.arguments.control.value = "--epochs 1000 --out out"
    press(panel, panel.diagnose)
    assert [finding.cause for finding in panel.report.findings] == ["detach"]
    assert "train.py --epochs 1000 --out out" in text_of(panel.short.text.value)
    assert panel.results.view.svg
    walk = panel.results.guide
    walk.go(3)
    walk.change.write.click()
    press(panel, walk.change.again)
    assert panel.report.healthy
    assert panel.results.tabs.value == "compare"
    (mark,) = panel.report.picture.fixed
    assert [(sign, ".detach()" in code) for sign, _, code in mark.lines] == [("-", True), ("+", False)]
    assert "fixed here" in panel.results.view.svg.replace("\N{NO-BREAK SPACE}", " ")
    assert not (folder / "out" / "last.pt").exists()
    panel.languages.value = "zh"
    assert not_chinese(panel) == []


def test_what_a_script_prints_before_it_fails_stands_beside_the_form(folder: Path) -> None:
    panel = Panel()
    press(panel, panel.diagnose)
    assert "the following arguments are required: --epochs" in panel.form.problems["source"].value
    assert list(problems(panel)) == ["source"]


def test_a_sound_script_that_ends_early_is_no_error(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN.format(cut="").replace("range(100)", "range(1)"), encoding="utf-8")
    panel = Panel()
    panel.form.source.arguments.control.value = "--epochs 1 --out out"
    press(panel, panel.diagnose)
    assert problems(panel) == {}
    assert "train.py ran to its end" in text_of(panel.note.value)
    panel.languages.value = "zh"
    assert not_chinese(panel) == []


def test_a_name_that_is_a_whole_training_is_run_as_one(folder: Path) -> None:
    assert request.Request("file", named={"step": "train.py:main"}).program == "train.py:main"
    assert request.Request("file", named={"step": "train.py"}).program == "train.py"
    assert request.Request("file", named={"step": "train.py:Net"}).program == ""


def test_cancel_ends_the_script(folder: Path) -> None:
    (folder / "slow.py").write_text("open('began', 'w')\nimport time\ntime.sleep(600)\n", encoding="utf-8")
    panel = Panel()
    panel.form.source.script.control.value = "slow.py"
    panel.diagnose.click()
    while not (folder / "began").exists():
        time.sleep(0.02)
    job = panel.job
    assert job is not None
    assert "Run the script" in text_of(panel.progress.line.value)
    panel.cancel.click()
    job.wait(20)
    assert "The script was ended" in text_of(panel.note.value)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("import torch\nloss = torch.ones(1, requires_grad=True).sum()\nloss.backward()\n", True),
        ("def fit():\n    loss().backward()\nif __name__ == '__main__':\n    fit()\n", True),
        ("from engine import fit\nif __name__ == '__main__':\n    fit()\n", False),
        ("def step():\n    return net(x).sum()\n", False),
        ("def train():\n    loss().backward()\n", False),
        ("raise SystemExit\n", False),
        ("def broken(:\n", False),
    ],
)
def test_scripts_are_offered_by_what_their_source_shows(text: str, offered: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    assert request.suggested_scripts(tmp_path) == (("program.py",) if offered else ())


def test_the_likeliest_script_comes_first_and_examples_are_left_out(tmp_path: Path) -> None:
    trains = "loss().backward()\n"
    for name in ("probe.py", "train.py", "old/train.py", "gradkit-examples/a/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(trains, encoding="utf-8")
    (tmp_path / "main.py").write_text(
        "from engine import fit\nif __name__ == '__main__':\n    fit()\n", encoding="utf-8"
    )
    assert request.suggested_scripts(tmp_path) == ("train.py", "old/train.py", "probe.py", "main.py")


ON_IMPORT = """import torch
from torch import nn

open("imported", "w").close()
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step():
    return net(torch.ones(1, 2)).sum()


{training}
"""
LOOP = "for _ in range(10**9):\n    step().backward()\n    optimizer.step()"
INDENTED = LOOP.replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("training", "refused"),
    [
        (LOOP, True),
        (f"def train():\n    {INDENTED}\n\n\ntrain()", True),
        (f"if __name__ == '__main__':\n    {INDENTED}", False),
        ("step().backward()\noptimizer.step()", False),
        ("for part in net.parameters():\n    part.data.zero_()", False),
    ],
)
def test_a_step_in_a_file_that_trains_when_it_is_imported_is_not_imported(
    training: str, refused: bool, folder: Path
) -> None:
    (folder / "mine.py").write_text(ON_IMPORT.format(training=training), encoding="utf-8")
    panel = Panel()
    panel.form.source.mode.value = "step"
    panel.form.source.step.control.value = "mine.py:step"
    press(panel, panel.diagnose)
    assert (folder / "imported").exists() is not refused
    assert ("trains as soon as it is imported" in problems(panel).get("source", "")) is refused
    panel.languages.value = "zh"
    assert not_chinese(panel) == []


def test_nothing_of_a_folder_is_run_when_the_panel_opens(folder: Path) -> None:
    (folder / "train.py").write_text("open('ran', 'w')\nloss.backward()\n", encoding="utf-8")
    Panel()
    assert not os.path.exists("ran")
