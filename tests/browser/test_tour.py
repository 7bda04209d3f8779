"""A student's ninety minutes by clicks and keys, once in each language: exercises 1, 3, 5 and 7, the file, the sheet.

It takes minutes and is no test of one behaviour, so that it runs on request alone::

    GRADKIT_TOUR=1 GRADKIT_SHOTS=shots python -m pytest -n 0 tests/browser/test_tour.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from gradkit.cli import HEALTHY, main
from gradkit.teaching import exercises, predictions, results
from tests.browser.jupyter import REPO, Notebook
from tests.browser.test_workshop import cell, run, squeezed
from tests.workshop_answers import ANSWERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("GRADKIT_TOUR") != "1", reason="a tour of minutes: set GRADKIT_TOUR=1"),
    pytest.mark.timeout(900),
]
expect.set_options(timeout=60_000)

CORE = {
    "forgotten_no_grad": ("d", "half right: the head learns"),
    "numpy_roundtrip": ("a", "wrong: .data in its place"),
    "two_cuts": ("c", "half right: the second cut"),
    "still_weights": ("a", "half right: the optimizer"),
}
"""What this student predicts, and tries first."""
SAID = {
    "en": {"kept": "is kept", "not_yet": "Not yet", "solved": "Solved", "hint": "Hint 1", "name": "Ada"},
    "zh": {"kept": "已经记下", "not_yet": "还没有解决", "solved": "已解决", "hint": "提示一", "name": "小林"},
}


class Student:
    """One who works on the notebooks of a folder in JupyterLab."""

    def __init__(self, notebook: Notebook, language: str) -> None:
        self.notebook, self.language, self.said = notebook, language, SAID[language]
        self.shots = 0

    def cell(self, holds: str) -> Locator:
        return cell(self.notebook, holds)

    def output(self, holds: str) -> Locator:
        return self.cell(holds).locator(".jp-OutputArea-output")

    def shot(self, one: Locator, name: str) -> None:
        one.first.scroll_into_view_if_needed()
        self.shots += 1
        self.notebook.shot(f"tour-{self.language}-{self.shots:02}-{name}")

    def open_beside(self, name: str) -> None:
        """By a double click in the list of files; what was open is saved and closed."""
        page = self.notebook.page
        page.keyboard.press("Escape")
        page.keyboard.press("ControlOrMeta+s")
        page.locator(".jp-DirListing-item", has_text=f"{name}.ipynb").dblclick()
        page.locator(".lm-TabBar-tab.lm-mod-current", has_text=name).wait_for()
        page.locator(".jp-NotebookPanel:visible .jp-Notebook").wait_for()
        for tab in page.locator(
            "#jp-main-dock-panel .lm-TabBar-tab:not(.lm-mod-current) .lm-TabBar-tabCloseIcon"
        ).all():
            tab.click()
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for(timeout=120_000)
        expect(page.locator(".jp-NotebookPanel")).to_have_count(1)

    def works_on(self, name: str) -> None:
        letter, first = CORE[name]
        tried = {answer.kind: answer for answer in ANSWERS if answer.name == name}
        class_line = next(line for line in tried["right"].source().splitlines() if line.startswith("class "))
        for holds in ("def make_batch", class_line):
            run(self.notebook, self.cell(holds))
        self.predicts(name, letter)
        self.sees_it_fail(name)
        self.reads_a_hint(name)
        self.answers(class_line, tried[first].source(), self.said["not_yet"], f"{name}-first")
        self.asks_for_a_hint(name)
        self.answers(class_line, tried["right"].source(), self.said["solved"], f"{name}-solved")
        run(self.notebook, self.cell("gradkit.diagnose("))
        self.shot(self.cell("gradkit.diagnose("), f"{name}-asked")

    def predicts(self, name: str, letter: str) -> None:
        run(self.notebook, self.cell("gradkit.testing.predict"))
        ask = self.cell("gradkit.testing.predict").locator(".gka")
        expect(ask.get_by_role("button")).to_have_count(4)
        self.shot(ask, f"{name}-question")
        ask.get_by_role("button").nth(predictions.LETTERS.index(letter)).click()
        expect(ask).to_contain_text(self.said["kept"])
        self.shot(ask, f"{name}-predicted")

    def sees_it_fail(self, name: str) -> None:
        code = [page.says("") for page in exercises.read_book(f"workshop/{exercises.exercise(name).book}")]
        code = [one for one in code if one]
        start = next(n for n, one in enumerate(code) if ".predict(" in one)
        end = next(n for n, one in enumerate(code) if ".happened(" in one)
        for one in code[start + 1 : end + 1]:
            run(self.notebook, self.cell(one.strip().splitlines()[0]))
        self.shot(self.cell("gradkit.testing.happened"), f"{name}-happened")

    def reads_a_hint(self, name: str) -> None:
        hint = self.notebook.page.locator(".jp-MarkdownCell details", has_text=self.said["hint"]).first
        hint.scroll_into_view_if_needed()
        for _ in range(5):
            if not hint.locator("p").first.is_visible():
                hint.locator("summary").click()
            self.notebook.page.wait_for_timeout(300)
        expect(hint.locator("p").first).to_be_visible()
        self.shot(hint, f"{name}-folded-hint")

    def asks_for_a_hint(self, name: str) -> None:
        """In a cell below the check, as the check says."""
        page = self.notebook.page
        self.cell("gradkit.testing.check").locator(".cm-content").click()
        page.keyboard.press("Escape")
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.insert_text(f'gradkit.testing.hint("{name}")')
        asked = self.cell("gradkit.testing.hint(")
        run(self.notebook, asked)
        expect(asked.locator(".jp-OutputArea-output")).to_contain_text(self.said["hint"])
        self.shot(asked, f"{name}-hint")

    def answers(self, class_line: str, source: str, said: str, name: str) -> None:
        program, page = self.cell(class_line), self.notebook.page
        editor = program.locator(".cm-content")
        for _ in range(4):
            editor.click()
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.insert_text(source)
            page.wait_for_timeout(300)
            if squeezed(source)[-40:] == squeezed(editor.inner_text())[-40:]:
                break
        run(self.notebook, self.cell(class_line))
        run(self.notebook, self.cell("gradkit.testing.check"))
        expect(self.output("gradkit.testing.check")).to_contain_text(said)
        self.shot(self.output("gradkit.testing.check"), name)

    def hands_in(self) -> None:
        page = self.notebook.page
        for holds in ("gradkit.testing.progress()", 'gradkit.testing.results("")'):
            run(self.notebook, self.cell(holds))
        self.shot(self.output("gradkit.testing.progress()"), "progress")
        self.shot(self.output("gradkit.testing.results("), "no-name")
        self.cell('gradkit.testing.results("")').locator(".cm-content").click()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.insert_text(f'gradkit.testing.results("{self.said["name"]}")')
        run(self.notebook, self.cell("gradkit.testing.results("))
        expect(self.output("gradkit.testing.results(")).to_contain_text("results-")
        self.shot(self.output("gradkit.testing.results("), "handed-in")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_student_predicts_runs_changes_checks_and_hands_in(
    notebook: Notebook, language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = REPO / "notebooks" / language / "workshop"
    beside = [one.name for one in workshop.glob("*.ipynb")]
    marked = [".gradkit-language"] if language == "zh" else []
    notebook.open(workshop / f"{exercises.exercise('forgotten_no_grad').book}.ipynb", *beside, *marked)
    # The settings and the folder are those of all tests of a process.
    (notebook.lab.settings / exercises.logbook_file().name).unlink(missing_ok=True)
    before = set(notebook.lab.folder.glob("*/results-*.csv"))
    student = Student(notebook, language)
    for number, name in enumerate(CORE):
        if number:
            student.open_beside(exercises.exercise(name).book)
        student.works_on(name)
    student.open_beside("summary")
    student.hands_in()

    (file,) = set(notebook.lab.folder.glob("*/results-*.csv")) - before
    told = {row.name: row for row in results.from_csv(file.read_text(encoding="utf-8")) if row.points}
    assert {name: told[name].predicted for name in CORE} == {name: letter for name, (letter, _) in CORE.items()}
    assert all(told[name].points == told[name].of and told[name].happened for name in CORE)
    assert all(told[name].hints == "1" for name in CORE)
    assert main(["class", "merge", str(tmp_path / "class.csv"), str(file)]) == HEALTHY
    assert main(["class", "sheet", str(tmp_path / "sheet.html"), "--language", language]) == HEALTHY
    print(capsys.readouterr().out)
    notebook.page.goto((tmp_path / "sheet.html").as_uri())
    notebook.page.locator("section").first.wait_for()
    notebook.shot(f"tour-{language}-99-sheet")
