"""Ninety minutes: predictions, hints, credit, results, the sheet, the poll, a question every five minutes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradkit import testing
from gradkit.cli import COULD_NOT_RUN, HEALTHY, main
from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.load.specs import load_file
from gradkit.notebook.ask import Ask
from gradkit.teaching import book, check, credit, exercises, poll, predictions, results, sheet
from gradkit.teaching import claim as teaching_claim
from tests.workshop_answers import ANSWERS, Answer

REPO = Path(__file__).parents[2]
each_exercise = pytest.mark.parametrize("name", list(exercises.EXERCISES))
each_language = pytest.mark.parametrize("language", i18n.LANGUAGES)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration folder of its own, English, and the same weights in every run."""
    monkeypatch.setenv("GRADKIT_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(random, "SystemRandom", lambda: random.Random(3))
    spoken = i18n.language()
    i18n.language("en")
    yield tmp_path / "config"
    i18n.language(spoken)


Functions = dict[str, Callable[..., Any]]


def functions(name: str, source: str, folder: Path) -> Functions:
    path = folder / "answer.py"
    path.write_text(source, encoding="utf-8")
    module = load_file(path)
    return {function: getattr(module, function) for function in exercises.exercise(name).functions}


def untouched(name: str, folder: Path) -> Functions:
    return functions(name, exercises.program(f"workshop/{exercises.exercise(name).book}"), folder)


def solved(name: str) -> Functions:
    return {function: exercises.solution(name)[function] for function in exercises.exercise(name).functions}


def answer(name: str, kind: str) -> Answer:
    (found,) = (one for one in ANSWERS if (one.name, one.kind) == (name, kind))
    return found


# -- predictions ------------------------------------------------------------------------------------------------


@each_exercise
def test_what_happens_is_one_of_the_four_answers_and_another_one_once_it_is_solved(name: str, tmp_path: Path) -> None:
    before, _ = predictions.happens(name, untouched(name, tmp_path))
    after, _ = predictions.happens(name, solved(name))
    assert {before, after} <= set(predictions.LETTERS)
    assert before != after


def test_a_prediction_stands_beside_what_happened(tmp_path: Path) -> None:
    testing.predict("two_cuts", "a")
    testing.predict("two_cuts", "b")
    seen = testing.happened("two_cuts", **untouched("two_cuts", tmp_path))
    assert (seen.predicted, seen.happened, seen.right) == ("b", "c", False)
    assert seen.text("en").splitlines()[:2] == [
        "predicted: b) mixer and head get a gradient",
        "happened:  c) only the head gets a gradient",
    ]
    assert "只有分类头拿到梯度" in seen.text("zh")


def test_a_prediction_that_is_made_after_it_was_seen_does_not_count(tmp_path: Path) -> None:
    testing.happened("two_cuts", **untouched("two_cuts", tmp_path))
    testing.predict("two_cuts", "c")
    assert exercises.entry("two_cuts").predicted == ""
    assert "nothing; next time, predict before you run" in testing.happened("two_cuts", **solved("two_cuts")).text()


def test_a_program_that_does_something_else_is_not_pressed_into_the_answers() -> None:
    frozen = {**solved("two_cuts"), "build": lambda: _with_a_frozen_head(exercises.solution("two_cuts")["build"]())}
    assert predictions.happens("two_cuts", frozen)[0] == predictions.OTHER


def _with_a_frozen_head(model: nn.Module) -> nn.Module:
    model.get_submodule("head").requires_grad_(False)
    return model


def test_what_the_clinic_asks_to_find_is_not_named_beside_its_prediction(tmp_path: Path) -> None:
    seen = testing.happened("clinic", **untouched("clinic", tmp_path))
    assert seen.names == ()
    assert "notes" not in seen.text()


def test_no_such_letter_and_no_such_exercise_are_named() -> None:
    with pytest.raises(GradkitError, match="a, b, c, d; e is none"):
        testing.predict("two_cuts", "e")
    with pytest.raises(GradkitError, match="no exercise two_cut"):
        testing.predict("two_cut")


@each_language
def test_an_answer_is_chosen_by_a_click_until_it_was_seen(language: str, tmp_path: Path) -> None:
    ask = Ask("two_cuts", language)
    ask.buttons["b"].click()
    ask.buttons["c"].click()
    assert exercises.entry("two_cuts").predicted == "c"
    assert [letter for letter, one in ask.buttons.items() if "gka-mine" in one._dom_classes] == ["c"]
    testing.happened("two_cuts", **untouched("two_cuts", tmp_path))
    assert all(one.disabled for one in Ask("two_cuts", language).buttons.values())


def test_where_no_widgets_run_the_question_is_text() -> None:
    bundle = Ask("two_cuts", "en")._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert 'gradkit.testing.predict("two_cuts", "a")' in data["text/plain"]


@each_exercise
def test_a_notebook_asks_before_it_runs_and_checks_before_gradkit_is_asked(name: str) -> None:
    code = [
        page.says("") for page in book.read_book(f"workshop/{exercises.exercise(name).book}") if page.kind == "code"
    ]
    order = [next(n for n, cell in enumerate(code) if told in cell) for told in (".predict(", ".happened(", ".check(")]
    assert order == sorted(order)
    assert order[0] == 2, "right after what is given and the program"
    assert all(n > order[2] for n, cell in enumerate(code) if "gradkit.diagnose(" in cell)


@each_exercise
def test_no_text_tells_what_happens_before_the_learner_sees_it(name: str) -> None:
    assert [text for text in before_it_is_seen(name, "en") if GIVEN_AWAY.search(text)] == []
    assert [text for text in before_it_is_seen(name, "zh") if GIVEN_AWAY_ZH.search(text)] == []


def test_no_title_tells_which_layer_takes_no_part() -> None:
    titles = {i18n.words(f"workshop.{name}", "en") for name in exercises.EXERCISES}
    assert [title for title in titles if re.search(r"nobody|idle|unused|never", title)] == []


GIVEN_AWAY = re.compile(r"\braises\b|Nothing raises|kept no record|first day|nobody calls|takes no part|no gradient")
GIVEN_AWAY_ZH = re.compile("报错|没有记下|第一天|没有人调用|不参与|没有梯度|拿不到")


def before_it_is_seen(name: str, language: str) -> Iterator[str]:
    """The texts of an exercise down to the cell that shows what happens."""
    for page in book.read_book(f"workshop/{exercises.exercise(name).book}"):
        if page.kind == "code" and ".happened(" in page.says(""):
            return
        if page.kind != "code":
            yield page.says(language)


# -- hints, and what a check gives away -------------------------------------------------------------------------


def test_a_check_names_no_line_and_a_hint_does_on_request(tmp_path: Path) -> None:
    answers = untouched("forgotten_no_grad", tmp_path)
    with pytest.raises(testing.NotYet) as caught:
        testing.check("forgotten_no_grad", **answers)
    assert "answer.py" not in str(caught.value)
    assert 'gradkit.testing.hint("forgotten_no_grad")' in str(caught.value)
    hints = [testing.hint("forgotten_no_grad").text() for _ in range(4)]
    assert [text.splitlines()[0] for text in hints[:3]] == [
        "Hint 1: where to look",
        "Hint 2: what to keep in mind",
        "Hint 3: nearly there",
    ]
    assert "answer.py:31" in hints[3]
    assert exercises.entry("forgotten_no_grad").hints == 4


@each_language
def test_a_notebook_lays_out_a_hint_as_it_does_those_that_are_folded(language: str) -> None:
    with i18n.speaking(language):
        shown = testing.hint("forgotten_no_grad")
        told = shown._repr_markdown_()
    assert told is not None
    assert told.startswith("**")
    assert "`with torch.no_grad():`" in told


def test_lines_of_a_program_are_no_markdown() -> None:
    *_, last = (testing.hint("forgotten_no_grad") for _ in range(4))
    assert last._repr_markdown_() is None


def test_after_the_last_hint_a_check_is_asked_for_first() -> None:
    exercises.note("zero_loss", hints=3)
    check._last.pop("zero_loss", None)
    assert "Run the check once" in testing.hint("zero_loss").text("en")


# -- credit -----------------------------------------------------------------------------------------------------

HIDDEN = {
    ("two_cuts", "untouched"): (),
    ("two_cuts", "wrong: detach() in place of .data"): (),
    ("two_cuts", "half right: the first cut"): ("Reader.centre",),
    ("two_cuts", "half right: the second cut"): ("Reader.rescale",),
    ("two_cuts", "half right: the length stays in the block"): ("Reader.centre",),
    ("two_cuts", "cheat: a new leaf"): ("Reader.rescale",),
    ("two_cuts", "cheat: nothing is rescaled"): (),
    ("still_weights", "untouched"): (),
    ("still_weights", "half right: the order of the step"): ("train_step",),
    ("still_weights", "half right: nothing is emptied"): ("build",),
    ("still_weights", "cheat: noise"): (),
    ("clinic", "untouched"): (),
    ("clinic", "half right: two of three"): ("NotesEncoder.pool", "days_loss"),
    ("clinic", "half right: the optimizer"): ("parameter_groups",),
}


@pytest.mark.parametrize(("name", "kind"), HIDDEN)
def test_a_right_change_counts_although_another_fault_hides_it(name: str, kind: str, tmp_path: Path) -> None:
    answers = functions(name, answer(name, kind).source(), tmp_path)
    assert credit.credited(exercises.exercise(name), answers) == HIDDEN[name, kind]


def test_a_credited_change_is_said_and_noted_and_worth_a_point(tmp_path: Path) -> None:
    answers = functions("two_cuts", answer("two_cuts", "half right: the first cut").source(), tmp_path)
    with pytest.raises(testing.NotYet, match=r"another fault still hides what it does: Reader\.centre"):
        testing.check("two_cuts", **answers)
    assert exercises.entry("two_cuts").credited == 1
    (row,) = (one for one in results.rows("Ada") if one.name == "two_cuts")
    assert (row.points, row.of, row.solved) == ("1", "3", "")


def test_the_learners_program_is_afterwards_their_own(tmp_path: Path) -> None:
    answers = untouched("two_cuts", tmp_path)
    reader = answers["build"].__globals__["Reader"]
    before = dict(vars(reader))
    credit.credited(exercises.exercise("two_cuts"), answers)
    assert {name: vars(reader)[name] for name in ("centre", "rescale")} == {
        name: before[name] for name in ("centre", "rescale")
    }


def test_a_program_without_the_function_gets_no_credit_for_it_and_no_error(tmp_path: Path) -> None:
    source = answer("two_cuts", "half right: the first cut").source().replace("rescale", "normalise")
    assert credit.credited(exercises.exercise("two_cuts"), functions("two_cuts", source, tmp_path)) == ()


# -- results ----------------------------------------------------------------------------------------------------


def test_results_of_a_student_and_of_a_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    testing.predict("two_cuts", "c")
    testing.happened("two_cuts", **untouched("two_cuts", tmp_path))
    testing.check("forgotten_no_grad", **solved("forgotten_no_grad"))
    folder = tmp_path / "handed in"
    folder.mkdir()
    told = testing.results("Ada Lovelace", folder)
    assert told.path.name == "results-Ada-Lovelace.csv"
    assert told.text("en").endswith("2 of 23 points. Hand in this file.")
    testing.progress(forget=True)
    testing.results("王小明", folder)
    assert main(["class", "merge", str(tmp_path / "class.csv"), str(folder)]) == HEALTHY
    said = capsys.readouterr().out
    assert "students: 2" in said
    assert "01 A forgotten no_grad: solved by 1 of 2, checks (median) 1" in said
    assert "predicted: a 0, b 0, c 1, d 0; right: 1 of 1" in said
    merged = results.from_csv((tmp_path / "class.csv").read_text(encoding="utf-8"))
    assert {row.student for row in merged} == {"Ada Lovelace", "王小明"}
    assert len(merged) == 2 * len(exercises.EXERCISES)


def test_of_a_student_with_two_files_the_later_counts(tmp_path: Path) -> None:
    files = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, points in zip(files, ("1", "3"), strict=True):
        path.write_text(results.as_csv([results.Row("Ada", "exercise", "two_cuts", points, "3")]))
    (row,) = results.merge(files, tmp_path / "class.csv")
    assert row.points == "3"
    assert results.merge(files[::-1], tmp_path / "class.csv")[0].points == "1"


def test_guesses_of_the_quiz_are_among_the_results(config: Path) -> None:
    from gradkit.core import settings

    settings.remember(results.QUIZ, '{"clone_detaches": "false", "no such belief": "true"}')
    (row,) = (one for one in results.rows("Ada") if one.kind == results.BELIEF)
    assert (row.name, row.predicted, row.happened) == ("clone_detaches", "false", "false")


def test_what_a_table_program_would_run_is_text() -> None:
    line = results.as_csv([results.Row("=HYPERLINK(1)", "exercise", "two_cuts")]).splitlines()[1]
    assert line.startswith("'=")


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", ",".join(results.COLUMNS) + "\nAda\n", ",".join(results.COLUMNS) + "\n" + "x," * 20]
)
def test_what_is_no_file_of_results_is_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.csv").write_text(text)
    assert main(["class", "merge", str(tmp_path / "class.csv"), str(tmp_path / "some.csv")]) == COULD_NOT_RUN
    assert "some.csv: this is no file of results" in capsys.readouterr().err
    assert not (tmp_path / "class.csv").exists()


@pytest.mark.parametrize("name", ["", "  ", "///"])
def test_results_need_a_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(GradkitError, match="name under which you hand in"):
        testing.results(name, tmp_path)


# -- the sheet --------------------------------------------------------------------------------------------------


@each_language
def test_the_sheet_loads_nothing_and_is_the_same_at_every_call(language: str) -> None:
    page = sheet.page(language)
    assert page == sheet.page(language)
    assert "default-src 'none'" in page
    assert re.findall(r"(?:src|href)=", page) == []
    assert page.count("<tr>") == len(sheet.causes.FAMILIES), "a head, and a row for each family but the last"


def test_the_three_measurements_of_the_sheet_find_what_they_say() -> None:
    model, x = (
        nn.ModuleDict({"cut": nn.Linear(3, 3), "held": nn.Linear(3, 3), "free": nn.Linear(3, 1)}),
        torch.ones(2, 3),
    )
    optimizer = torch.optim.SGD(model["held"].parameters(), lr=0.1)
    names = {
        "torch": torch, "model": model, "batch": x, "optimizer": optimizer,
        "loss_of": lambda model, x: model["free"](model["held"](model["cut"](x).detach())).mean(),
    }  # fmt: skip
    seen: list[Any] = []
    for part in sheet.MEASURED.split("\n\n"):
        *first, last = part.splitlines()
        exec("\n".join(first), names)
        seen.append(eval(last, names))
    assert seen[0][0] is True
    assert seen[1] == ["cut.weight", "cut.bias"]
    assert seen[2] == ["cut.weight", "cut.bias", "free.weight", "free.bias"]


@pytest.mark.skipif(sheet.browser() is None, reason="no Chromium here to print with")
@each_language
def test_printed_the_sheet_is_one_page(language: str, tmp_path: Path) -> None:
    path = tmp_path / "sheet.pdf"
    assert main(["class", "sheet", str(path), "--language", language]) == HEALTHY
    written = path.read_bytes()
    assert written.startswith(b"%PDF-")
    assert re.findall(rb"/Count (\d+)", written) == [b"1"]


def test_without_a_browser_the_sheet_says_how_to_print_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [path.name for path in sheet.handouts(tmp_path / "out")] == ["sheet.en.html", "sheet.zh.html"]
    with pytest.raises(GradkitError, match=r"Write \.html"):
        sheet.write_sheet(tmp_path / "sheet.pdf", "en")


def test_a_sheet_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GradkitError, match=r"\.html or \.pdf"):
        sheet.write_sheet(tmp_path / "sheet.docx")


# -- the poll ---------------------------------------------------------------------------------------------------


@each_language
def test_the_poll_is_one_page_that_loads_nothing(language: str, tmp_path: Path) -> None:
    assert main(["class", "poll", str(tmp_path / "poll.html"), "clone_detaches", "--language", language]) == HEALTHY
    page = (tmp_path / "poll.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "http" not in re.sub(r"<meta[^>]*>", "", page)
    assert page == poll.page(["clone_detaches"], language)


def test_the_poll_of_the_lesson_has_beliefs_of_every_verdict() -> None:
    verdicts = {teaching_claim.claim(name, "en").verdict for name in poll.LESSON}
    assert verdicts == {"true", "false", "depends"}


def test_a_belief_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["class", "poll", str(tmp_path / "poll.html"), "nothing"]) == COULD_NOT_RUN
    assert "nothing" in capsys.readouterr().err


# -- ninety minutes ---------------------------------------------------------------------------------------------


def timetable(language: str) -> list[tuple[int, int, str]]:
    page = (REPO / "docs" / ("teaching.md" if language == "en" else "teaching.zh.md")).read_text(encoding="utf-8")
    return [(int(a), int(b), what) for a, b, what in re.findall(r"^\| (\d+)–(\d+) \| (.+?) \|", page, re.MULTILINE)]


def questions(language: str) -> list[int]:
    """The minutes that the slides give for their questions."""
    said = [
        page.says(language) for page in book.read_book("workshop/slides") if "question" in page.metadata.get("tags", ())
    ]
    found = [re.search(r"\*(?:Minute |第 )(\d+)", text) for text in said]
    return [int(one[1]) for one in found if one]


@each_language
def test_ninety_minutes_are_full_and_their_core_are_four_exercises(language: str) -> None:
    table = timetable(language)
    assert table[0][0] == 0
    assert table[-1][1] == 90
    assert [a for a, _, _ in table[1:]] == [b for _, b, _ in table[:-1]]
    told = [re.match(r"(?:exercise|练习) (\d)", what) for _, _, what in table]
    assert [int(one[1]) for one in told if one] == [1, 3, 5, 7]


@each_language
def test_while_the_teacher_talks_there_is_a_question_every_five_minutes(language: str) -> None:
    asked = questions(language)
    talks = [(a, b) for a, b, what in timetable(language) if not re.match(r"exercise|练习", what)]
    for a, b in talks:
        for start in range(a, b, 5):
            assert any(start <= minute < min(start + 5, b) for minute in asked), f"none from minute {start}"


def test_the_questions_stand_at_the_same_minutes_in_both_languages() -> None:
    assert questions("en") == questions("zh")
