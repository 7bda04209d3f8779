"""The command that runs the tests at both ends of what is supported: it knows the ends, and fails when one fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tools import versions

OLDEST, NEWEST = versions.ends(versions.project())


def test_the_ends_are_those_that_pyproject_toml_claims() -> None:
    project = versions.project()
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))  # type: ignore[arg-type]
    assert {OLDEST.python, NEWEST.python} <= set(claimed)
    assert all(int(OLDEST.python[2:]) <= int(version[2:]) <= int(NEWEST.python[2:]) for version in claimed)
    assert SpecifierSet(str(project["requires-python"])) == SpecifierSet(f">={OLDEST.python}")


def test_the_oldest_torch_is_the_lowest_that_may_be_installed_and_the_newest_is_whatever_is_out() -> None:
    (wanted,) = (one for line in versions.project()["dependencies"] if (one := Requirement(line)).name == "torch")  # type: ignore[attr-defined]
    (lowest,) = (one.version for one in wanted.specifier)
    assert OLDEST.torch == f"torch=={lowest}.*"
    assert lowest in Requirement(OLDEST.torch).specifier
    assert NEWEST.torch == "torch"


def test_only_the_oldest_end_is_held_to_the_constraints() -> None:
    oldest, newest = (end.commands("python")[1] for end in (OLDEST, NEWEST))
    assert str(OLDEST.constraints) in oldest
    assert "-c" not in newest
    assert "--upgrade" in newest
    for command, end in ((oldest, OLDEST), (newest, NEWEST)):
        assert command[-3:] == [end.torch, "-e", ".[test]"]
        assert Path(command[0]).is_relative_to(end.venv)


def test_a_python_that_is_not_there_fails_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    end = versions.End("oldest", "3.1", "torch", pinned=True)
    assert versions.run(end, [], fresh=False) == 1
    assert "there is no python3.1 on this system" in capsys.readouterr().out
    assert not end.venv.exists() or end.venv.parent == versions.VENVS


def test_the_python_that_runs_this_is_found() -> None:
    found = versions.interpreter(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found is not None


@pytest.mark.parametrize(("status", "says"), [(0, "newest: passed"), (3, "newest: failed (3)")])
def test_one_end_that_fails_fails_the_command(
    status: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "run", lambda end, arguments, fresh: status if end == NEWEST else 0)
    monkeypatch.setattr(sys, "argv", ["versions.py"])
    assert versions.main() == int(status != 0)
    assert capsys.readouterr().out.splitlines() == ["oldest: passed", says]


def test_a_venv_is_made_once_and_the_arguments_go_to_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def note(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        ran.append([str(part) for part in command])
        return subprocess.CompletedProcess(command, 0, "")

    end = versions.End("oldest", "3.10", "torch==2.6.*", pinned=True)
    monkeypatch.setattr(versions, "VENVS", tmp_path)
    monkeypatch.setattr(versions, "interpreter", lambda version: "/some/python")
    monkeypatch.setattr(versions.subprocess, "run", note)
    end.venv.mkdir()
    assert versions.run(end, ["-k", "cuts"], fresh=False) == versions.run(end, ["-x"], fresh=False) == 0
    assert [command[1:3] for command in ran] == [
        ["-m", "venv"], ["-m", "pip"], ["-c", versions.WHAT], ["-m", "pytest"], ["-c", versions.WHAT], ["-m", "pytest"]
    ]  # fmt: skip
    assert ran[3][3:] == ["-q", "-k", "cuts"]
