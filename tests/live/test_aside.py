"""A program in a process of its own, run for the panel up to the first backward that shows a fault."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gradkit.core.errors import GradkitError
from gradkit.live import aside
from gradkit.report.report import Report

REPO = Path(__file__).parents[2]
TRAIN = """
import argparse, os, sys
from pathlib import Path
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.encoder(x){cut})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for at in range(100):
            optimizer.zero_grad()
            loss = net(torch.ones(3, 4)).square().mean()
            loss.backward()
            optimizer.step()
            torch.save(net.state_dict(), args.out / f"step-{{at}}.pt")
        torch.save(net.state_dict(), args.out / f"epoch-{{epoch}}.pt")
    torch.save(net.state_dict(), args.out / "last.pt")


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    return tmp_path


def program(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def report(folder: Path, text: str, arguments: str = "--epochs 1000 --out out") -> Report:
    return aside.report_of(program(folder, text), arguments)


def saved(folder: Path) -> set[str]:
    return {path.name for path in (folder / "out").iterdir()}


def test_a_silent_fault_ends_the_program_as_soon_as_it_has_lasted_three_steps(folder: Path) -> None:
    found = report(folder, TRAIN.format(cut=".detach()"))
    (finding,) = found.findings
    assert finding.location is not None
    assert (finding.cause, Path(finding.location.file).name) == ("detach", "train.py")
    assert saved(folder) == {"step-0.pt", "step-1.pt"}


def test_an_error_of_backward_ends_the_program_before_its_first_checkpoint(folder: Path) -> None:
    text = TRAIN.format(cut="").replace("loss.backward()", "loss.detach().backward()")
    assert not report(folder, text).healthy
    assert saved(folder) == set()


def test_a_sound_program_is_ended_after_a_few_steps_with_arguments_as_on_a_command_line(folder: Path) -> None:
    (folder / "out" / "my run").mkdir()
    assert report(folder, TRAIN.format(cut=""), "--epochs=1000 --out 'out/my run'").healthy
    assert {path.name for path in (folder / "out" / "my run").iterdir()} == {"step-0.pt", "step-1.pt"}


def test_a_function_that_trains_is_run_like_a_script(folder: Path) -> None:
    name = program(folder, TRAIN.format(cut=".detach()"))
    found = aside.report_of(f"{name}:main", "--epochs 2 --out out")
    assert found.findings[0].cause == "detach"


@pytest.mark.parametrize(
    ("text", "arguments", "key", "says"),
    [
        (TRAIN.format(cut=""), "", "program_failed", "the following arguments are required: --epochs"),
        (TRAIN.format(cut=""), "--out '", "arguments_open", "quotation mark"),
        ("print('nothing to see')", "", "program_without_training", "called backward"),
        ("raise ValueError('no data here')", "", "program_failed", "no data here"),
        (TRAIN.format(cut="").replace("range(100)", "range(1)"), "--epochs 1 --out out", "program_sound", "nothing to"),
    ],
)
def test_why_there_is_no_report_is_said(folder: Path, text: str, arguments: str, key: str, says: str) -> None:
    with pytest.raises(GradkitError) as raised:
        report(folder, text, arguments)
    assert raised.value.key == key
    assert says in raised.value.text("en")


def test_a_file_that_is_not_there_is_said_to_be_missing(folder: Path) -> None:
    with pytest.raises(GradkitError) as raised:
        aside.report_of("none.py")
    assert raised.value.key == "no_such_file"


@pytest.mark.skipif(os.name != "posix", reason="looks at processes by their ids")
def test_who_waits_no_longer_ends_the_program(folder: Path) -> None:
    text = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"

    def beat() -> None:
        if (folder / "pid").exists() and (folder / "pid").read_text():
            raise InterruptedError

    with pytest.raises(InterruptedError):
        aside.report_of(program(folder, text), beat=beat)
    time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)
