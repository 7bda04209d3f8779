"""Rebuilt steps in a diagnosis: it names the line of the program, and all is as it was afterwards."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import gradkit
from gradkit.core.records import Finding
from gradkit.live import stack
from gradkit.live.rebuild import step_of
from gradkit.source import frames
from gradkit.source.units import units_of


class Failed:
    """A program that raised, and a step made of the innermost unit of one of its frames."""

    def __init__(self, file: Path, text: str, of: str, number: int = 0) -> None:
        file.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(text), encoding="utf-8")
        frames.is_user_file.cache_clear()
        space: dict[str, Any] = {"__name__": "__main__"}
        with pytest.raises(RuntimeError) as caught:
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), space)
        point = next(one for one in reversed(stack.of_error(caught.value)) if one.code.co_name == of)
        self.frame = point.frame
        self.step = step_of(units_of(point.code, point.lasti, point.line)[number], point.frame)

    def finding(self, model: torch.nn.Module) -> Finding:
        return gradkit.diagnose(self.step, model=model).findings[0]


def test_the_finding_has_line_and_columns_of_the_program(tmp_path: Path) -> None:
    failed = Failed(
        tmp_path / "train.py",
        """
        class Trainer:
            def __init__(self, net):
                self.net = net

            def fit(self, data):
                for x in data:
                    features = self.net(x).detach()
                    loss = features.sum()
                    loss.backward()

        Trainer(nn.Linear(3, 1)).fit([torch.ones(2, 3)])
        """,
        "fit",
    )
    spot = failed.finding(failed.frame.f_locals["self"].net).location
    assert spot is not None
    assert (spot.text.strip(), spot.line) == ("features = self.net(x).detach()", 10)
    assert (spot.function, spot.changed) == ("Trainer.fit", False)


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="Python 3.10 tells the lines of rebuilt code, but no columns")
def test_the_finding_has_the_columns_of_the_program(tmp_path: Path) -> None:
    failed = Failed(
        tmp_path / "train.py",
        """
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            loss = net(x).detach().sum(); loss.backward()
        """,
        "<module>",
    )
    spot = failed.finding(failed.frame.f_globals["net"]).location
    assert spot is not None
    assert spot.text[spot.column - 1 : spot.end_column - 1] == ".detach()"


def test_the_globals_of_a_flat_program_are_as_they_were(tmp_path: Path) -> None:
    failed = Failed(
        tmp_path / "train.py",
        """
        net, step, seen = nn.Linear(3, 1), 0, []
        for x in [torch.ones(2, 3)]:
            step += 1
            x = x.float()
            seen.append(step)
            loss = net(x).data.sum()
            loss.backward()
        """,
        "<module>",
    )
    before = {name: id(value) for name, value in failed.frame.f_globals.items()}
    assert failed.finding(failed.frame.f_globals["net"]).cause == "data_attr"
    assert {name: id(value) for name, value in failed.frame.f_globals.items()} == before
    assert failed.frame.f_globals["seen"] == [1]


def test_the_variables_that_functions_share_are_as_they_were(tmp_path: Path) -> None:
    failed = Failed(
        tmp_path / "train.py",
        """
        def main(net):
            best = None

            def score(x):
                nonlocal best
                best = net(x).detach()
                return best.sum()

            for x in [torch.ones(2, 3)]:
                loss = score(x)
                loss.backward()

        main(nn.Linear(3, 1))
        """,
        "main",
    )
    before = failed.frame.f_locals["best"]
    spot = failed.finding(failed.frame.f_locals["net"]).location
    assert spot is not None
    assert spot.text.strip() == "best = net(x).detach()"
    assert failed.frame.f_locals["best"] is before
