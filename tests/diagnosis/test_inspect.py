"""What those see who look into why a line was named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gradkit.diagnosis import __main__, pipeline
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.pipeline import Diagnosis, Options
from gradkit.load.step import from_step

PROGRAM = """\
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    def step():
        with torch.no_grad():
            hidden = model[0](torch.ones(3, 2))
        hidden = model[1](hidden).detach()
        return model[2](hidden).sum()
    return model, step

def sound():
    model = nn.Linear(2, 1)
    return model, lambda: model(torch.ones(3, 2)).sum()
"""


@pytest.fixture(autouse=True)
def _terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)


def _printed(capsys: pytest.CaptureFixture[str], *words: str, language: str = "en") -> str:
    __main__.main([*words, "--language", language])
    return capsys.readouterr().out


def _of(model: nn.Module, x: torch.Tensor) -> Diagnosis:
    step = from_step(lambda: model(x).detach().sum(), model)
    return pipeline.run(step, Options(), lambda diagnosis: diagnosis)[0]


def test_the_way_names_the_call_that_cuts_and_what_was_paid(capsys: pytest.CaptureFixture[str]) -> None:
    assert "#3 detach  train.py:9  1.00: detach\n" in _printed(capsys, "train.py:build")


def test_the_way_names_the_region_that_cuts_and_where_it_was_entered(capsys: pytest.CaptureFixture[str]) -> None:
    assert "#1 linear  train.py:8  1.00: block train.py:7\n" in _printed(capsys, "train.py:build")


def test_a_call_that_was_not_recorded_says_what_kept_it_from_being_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = _printed(capsys, "train.py:build")
    assert "#1 linear  0  train.py:8\n      not recorded: block, train.py:7\n" in said


def test_an_experiment_says_what_it_showed_and_how_many_runs_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert "with the cuts undone (1 run): backward reaches" in _printed(capsys, "train.py:build")


def test_a_finding_says_by_which_rule_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert "detach, train.py:9: proven, by cut_lines.findings; alone it gives 2 of 4 a gradient\n" in _printed(
        capsys, "train.py:build"
    )


def test_all_of_it_is_said_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    said = _printed(capsys, "train.py:build", language="zh")
    assert "撤销切断处后重跑" in said


@pytest.mark.parametrize(("what", "status"), [("build", 1), ("sound", 0), ("nobody", 2)])
def test_the_exit_status_is_that_of_diagnose(capsys: pytest.CaptureFixture[str], what: str, status: int) -> None:
    assert __main__.main([f"train.py:{what}", "--language", "en"]) == status


def test_long_lists_are_shortened_unless_all_is_asked_for() -> None:
    found = _of(nn.Sequential(*(nn.Linear(2, 2) for _ in range(40))), torch.ones(1, 2))
    short = __main__.text(found)
    whole = __main__.text(found, everything=True)
    assert "... 22 more; --all shows them" in short
    assert "#20 linear" not in short
    assert "#20 linear" in whole
    assert "--all" not in whole


def test_a_long_way_keeps_the_steps_that_something_is_paid_at() -> None:
    found = _of(nn.Sequential(*(nn.Linear(2, 2) for _ in range(40))), torch.ones(1, 2))
    assert "1.00: detach\n    ... 41 steps that cost nothing" in __main__.text(found)


def test_a_name_that_acts_on_a_terminal_is_shown_escaped() -> None:
    model = nn.Linear(2, 1)
    model.register_parameter("a\x1b[31m", nn.Parameter(torch.ones(1)))
    said = __main__.text(_of(model, torch.ones(1, 2)))
    assert "a\\x1b[31m: nothing flows into the loss" in said
    assert "\x1b" not in said


def test_the_prices_of_a_way_add_up_to_its_cost() -> None:
    found = _of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), torch.ones(1, 2))
    for way in cuts.cheapest(found.evidence.trace, found.evidence.starved):
        assert sum(toll.price for toll in way.tolls) == way.cost == 1.0


def test_a_parameter_that_does_not_flow_into_the_loss_has_no_way() -> None:
    found = _of(nn.Linear(2, 1), torch.ones(1, 2))
    assert cuts.cheapest(found.evidence.trace, ["nobody"]) == (cuts.CheapestWay("nobody"),)


def test_a_way_says_why_more_than_its_cuts_is_paid() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    step = from_step(lambda: model[1](model[0](torch.ones(1, 2)).detach()).sum(), model)
    found = pipeline.run(step, Options(), lambda diagnosis: diagnosis)[0]
    (way,) = cuts.cheapest(found.evidence.trace, ["0.weight"])
    assert [(toll.price, toll.detours) for toll in way.tolls if toll.detours] == [(0.25, ("join",))]
