"""A cell as it ran: a change to its lines, which other cells rest on it, and which of them train."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gradkit.core.records import Change
from gradkit.source import cell_runs, frames

CUT, MENDED = "y = x.detach()", "y = x"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """An IPython in this process, as ``get_ipython`` finds it."""
    running = InteractiveShell()
    running.history_manager.enabled = False
    monkeypatch.setattr(frames, "notebook_shell", lambda: running)
    yield running
    running.restore_sys_module_state()


def ran(shell: InteractiveShell, *texts: str) -> list[str]:
    """The names that IPython gave some cells, once they have run; an error in one does not matter."""
    for text in texts:
        shell.run_cell(text, store_history=True, silent=False)
    return [one for one in frames.cells_run() if one]


def mended(shell: InteractiveShell, text: str, line: int) -> str:
    (*_, file) = ran(shell, f"x = __import__('torch').ones(2); {'f = lambda *_: x'}", text)
    run = cell_runs.last_run(file)
    assert run is not None
    return cell_runs.changed(run, (Change("-", line, CUT), Change("+", line, MENDED)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CUT, 1),
        (f"z = 1\n{CUT}\n", 2),
        (f"\n\n{CUT}\n{CUT}", 1),
        (f"%precision 3\n{CUT}", 2),
        (f"'中文 🙂'\n{CUT}", 2),
    ],
)
def test_a_line_is_changed_where_a_person_sees_it(shell: InteractiveShell, text: str, line: int) -> None:
    assert mended(shell, text, line) == text.rstrip("\n").replace(CUT, MENDED, 1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"!true \\\n  one two\n{CUT}\n{CUT}", 2),
        (f"z = 1\n{CUT}", 1),
        (f"%%timeit -n1 -r1\n{CUT}", 1),
        (f"    {CUT}", 1),
    ],
)
def test_lines_that_cannot_be_told_apart_are_left_alone(shell: InteractiveShell, text: str, line: int) -> None:
    assert mended(shell, text, line) == ""


def test_a_change_that_leaves_no_python_is_none(shell: InteractiveShell) -> None:
    (file,) = ran(shell, "if True:\n    z = 1")
    run = cell_runs.last_run(file)
    assert run is not None
    assert cell_runs.changed(run, (Change("-", 2, "    z = 1"),)) == ""


def test_cells_that_use_what_a_cell_makes_rest_on_it_and_no_others(shell: InteractiveShell) -> None:
    files = ran(shell, "a = 1", "def f(): return a", "c = 3", "g = f", "d = c", "h = g")
    run = cell_runs.last_run(files[0])
    assert run is not None
    assert [one.number for one in cell_runs.resting_on(run, before=9)] == [2, 4, 6]
    assert [one.number for one in cell_runs.resting_on(run, before=5)] == [2, 4]


def test_a_cell_that_ran_twice_counts_by_its_last_run(shell: InteractiveShell) -> None:
    files = ran(shell, "a = 1", "b = a", "b = a")
    run = cell_runs.last_run(files[0])
    assert run is not None
    assert [one.number for one in cell_runs.resting_on(run, before=9)] == [3]
    assert cell_runs.was_run("b = a", since=2) is not None
    assert cell_runs.was_run("b = a", since=3) is None


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("fit()", True),
        ("for one in data: loss(one).backward()", True),
        ("net = Net()", False),
        ("def fit_later(): loss().backward()", False),
    ],
)
def test_a_cell_trains_also_by_a_function_of_another(shell: InteractiveShell, text: str, trains: bool) -> None:
    ran(shell, "def fit():\n    for one in range(9):\n        loss(one).backward()")
    assert cell_runs.trains(cell_runs.CellRun(2, "", text)) is trains
