"""A change to a cell, with a page that answers as a front end would: nothing runs unless a person asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gradkit.core import i18n
from gradkit.core.records import Change
from gradkit.notebook import cell_change
from gradkit.notebook.cell_change import REFUSALS, CellEdit, CellWriter, edit_of, refusal
from gradkit.source import frames

CHANGES = (Change("-", 2, "    return x.detach()"), Change("+", 2, "    return x"))
CUT = "def step(x):\n    return x.detach()"
MENDED = CUT.replace(".detach()", "")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """An IPython in this process, as ``get_ipython`` finds it."""
    running = InteractiveShell()
    running.history_manager.enabled = False
    monkeypatch.setattr(frames, "notebook_shell", lambda: running)
    yield running
    running.restore_sys_module_state()


class Page(CellWriter):
    """Hears what a front end would be asked, and answers for it."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        super().__init__(able=True)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.asked.append(content)

    def answer(self, refused: str) -> None:
        self._heard(self, {"ask": self.asked[-1]["ask"], "refused": refused}, [])


def run(shell: InteractiveShell, *texts: str) -> None:
    for text in texts:
        shell.run_cell(text, store_history=True, silent=False)


def edit(shell: InteractiveShell, *later: str) -> CellEdit:
    run(shell, CUT)
    file = frames.cell_files()[0]
    run(shell, *later)
    found = edit_of(file, CHANGES)
    assert found is not None
    return found


def test_the_page_is_asked_for_the_cell_by_its_number_and_by_its_text(shell: InteractiveShell) -> None:
    page, told = Page(), list[str]()
    page.write(edit(shell), told.append)
    assert page.asked[-1]["write"] == {"number": 1, "text": CUT, "now": MENDED}
    assert told == []
    page.answer("")
    page.answer("")  # a second page shows the same notebook
    assert told == [""]


def test_a_change_is_taken_back_where_it_stands_now(shell: InteractiveShell) -> None:
    page, made = Page(), edit(shell)
    page.write(made, lambda _: None, back=True)
    assert page.asked[-1]["write"] == {"number": 1, "text": MENDED, "now": CUT}
    run(shell, MENDED)
    page.write(made, lambda _: None, back=True)
    assert page.asked[-1]["write"]["number"] == 2


def test_the_cells_that_rest_on_the_change_are_run_but_not_the_panels_own(shell: InteractiveShell) -> None:
    made = edit(shell, "import torch\nmake = step", "other = 1", "panel = make")
    assert [one.number for one in made.to_run(panel=4)] == [1, 2]
    assert made.to_run(panel=4)[0].text == MENDED


@pytest.mark.parametrize("later", ["for one in range(9): step(one).backward()", "trainer.fit(step)"])
def test_no_training_is_run_again_by_a_guess(shell: InteractiveShell, later: str) -> None:
    made = edit(shell, "make = step", later, "panel = make")
    assert made.to_run(panel=4) == []


def test_a_change_in_the_panels_own_cell_leaves_the_run_to_the_person(shell: InteractiveShell) -> None:
    assert edit(shell).to_run(panel=1) == []


def test_who_waits_is_told_once_all_cells_have_run_and_nobody_listens_afterwards(shell: InteractiveShell) -> None:
    page, told, before = Page(), list[str](), list(shell.events.callbacks["post_run_cell"])
    made = edit(shell, "make = step")
    page.run(made.to_run(panel=9), told.append)
    page.answer("")
    run(shell, "between = 1", MENDED)
    assert told == []
    run(shell, "make = step")
    assert told == [""]
    assert shell.events.callbacks["post_run_cell"] == before
    assert made.run_since is not None


@pytest.mark.parametrize("refused", ["gone", "changed", "<b>"])
def test_a_page_that_cannot_run_them_is_believed(shell: InteractiveShell, refused: str) -> None:
    page, told, before = Page(), list[str](), list(shell.events.callbacks["post_run_cell"])
    page.run(edit(shell).to_run(panel=9), told.append)
    page.answer(refused)
    assert told == [refused if refused in REFUSALS else "gone"]
    assert shell.events.callbacks["post_run_cell"] == before


def test_a_cell_that_fails_ends_the_wait(shell: InteractiveShell) -> None:
    page, told = Page(), list[str]()
    page.run(edit(shell, "make = step; fine = False", "assert make is None").to_run(panel=9), told.append)
    run(shell, MENDED, "make = step; fine = False", "assert make is None")
    assert told == ["failed"]


def test_nobody_listens_to_the_cells_of_a_panel_that_is_closed(shell: InteractiveShell) -> None:
    page, told, before = Page(), list[str](), list(shell.events.callbacks["post_run_cell"])
    page.run(edit(shell).to_run(panel=9), told.append)
    page.close()
    assert shell.events.callbacks["post_run_cell"] == before
    run(shell, MENDED)
    assert told == []


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_every_refusal_has_a_sentence(language: str) -> None:
    said = {refusal(one, 3).text(language) for one in cell_change.REFUSALS}
    assert len(said) == len(REFUSALS)
    assert all("[3]" in one for one in said)
