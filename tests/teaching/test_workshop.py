"""The workshop's checks tell wrong, half right, cheating and right answers apart, by running them, and say why."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gradkit import testing
from gradkit.core import i18n
from gradkit.core.errors import WIDTH, GradkitError
from gradkit.load.specs import load_file
from gradkit.teaching import book as teaching_book
from gradkit.teaching import check, exercises
from gradkit.teaching.grading import Verdict
from tests.workshop_answers import ANSWERS, Answer

BOOKS = [f"workshop/{one.book}" for one in exercises.EXERCISES.values()]
each_exercise = pytest.mark.parametrize("name", list(exercises.EXERCISES))


each_answer = pytest.mark.parametrize("answer", ANSWERS, ids=str)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration folder of its own, and English."""
    monkeypatch.setenv("GRADKIT_CONFIG_DIR", str(tmp_path / "config"))
    spoken = i18n.language()
    i18n.language("en")
    yield tmp_path / "config"
    i18n.language(spoken)


def functions(source: str, name: str, folder: Path) -> dict[str, Any]:
    """The functions that a check of this exercise takes, from a program that lies in a file as a user's does."""
    path = folder / "answer.py"
    path.write_text(source, encoding="utf-8")
    module = load_file(path)
    return {function: getattr(module, function) for function in exercises.exercise(name).functions}


@pytest.fixture(autouse=True)
def _the_same_weights_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check draws weights that nobody can foresee; in some draws a wrong loss comes close to the right one."""
    monkeypatch.setattr(random, "SystemRandom", lambda: random.Random(3))


def judged(answer: Answer, folder: Path) -> Verdict:
    return check.judged(answer.name, **functions(answer.source(), answer.name, folder))


def only_in_the_solution(name: str) -> set[str]:
    """The lines that a verdict must not give away."""
    book = exercises.exercise(name).book
    programs = [exercises.program(f"{folder}/{book}") for folder in (exercises.SOLUTIONS, "workshop")]
    right, broken = ({line.strip() for line in program.splitlines()} for program in programs)
    return right - broken - {""}


@each_answer
def test_an_answer_is_judged_for_what_it_does(answer: Answer, tmp_path: Path) -> None:
    verdict = judged(answer, tmp_path)
    assert verdict.wrong == answer.wrong, verdict.text()
    assert verdict.passed == answer.kind.startswith("right")
    assert answer.says in verdict.text("en")
    told = verdict.text("en") + verdict.text("zh")
    assert [line for line in only_in_the_solution(answer.name) if line in told] == []


@each_exercise
def test_every_kind_of_answer_is_tried(name: str) -> None:
    kinds = [answer.kind.split(":")[0].split(",")[0] for answer in ANSWERS if answer.name == name]
    assert kinds.count("untouched") == 1
    assert kinds.count("wrong") >= 2
    assert kinds.count("half right") >= 1
    assert kinds.count("cheat") >= 2
    assert kinds.count("right") >= 1


@each_exercise
def test_the_solution_is_right_and_the_untouched_program_is_not(name: str, tmp_path: Path) -> None:
    book = exercises.exercise(name).book
    right = exercises.program(f"{exercises.SOLUTIONS}/{book}")
    assert check.judged(name, **functions(right, name, tmp_path)).passed
    untouched = functions(exercises.program(f"workshop/{book}"), name, tmp_path)
    with pytest.raises(testing.NotYet):
        check.check(name, **untouched)


@each_exercise
def test_what_is_given_is_the_same_in_exercise_and_solution(name: str) -> None:
    book = exercises.exercise(name).book
    given = [exercises.program(f"{folder}/{book}", ("given",)) for folder in ("workshop", exercises.SOLUTIONS)]
    assert given[0] == given[1]


@pytest.mark.parametrize(
    ("kind", "spoilt"), [("right", True), ("right, in another way", True), ("right, without the photos", False)]
)
def test_one_infinite_pixel_spoils_the_zeros_that_are_made_of_the_photos(
    kind: str, spoilt: bool, tmp_path: Path
) -> None:
    (answer,) = (one for one in ANSWERS if (one.name, one.kind) == ("zero_loss", kind))
    run = functions(answer.source(), "zero_loss", tmp_path)
    model, photo = run["build"](), torch.randn(4, 9)
    photo[0, 0] = torch.inf
    run["loss_of"](model, (photo, torch.full((4,), -100))).backward()
    assert any(bool(p.grad.isnan().any()) for p in model.parameters()) is spoilt


def test_a_verdict_speaks_both_languages(tmp_path: Path) -> None:
    verdict = judged(ANSWERS[0], tmp_path)
    assert verdict.text("en").startswith("Not yet: A forgotten no_grad\n✓ The model has all its weights")
    chinese = verdict.text("zh").splitlines()
    assert (chinese[0][:5], chinese[1][:9]) == ("还没有解决", "✓ 模型的权重齐全")
    assert "answer.py:31" in "".join(chinese)


@pytest.mark.parametrize(
    ("kind", "english", "chinese"),
    [
        ("untouched", "All 4 parameters that must learn are frozen", "应当学习的 4 个参数张量全部被冻结"),
        (
            "half right: only one of the matrices",
            "2 of the 4 parameters that must learn are frozen",
            "有 2 个被冻结",
        ),
    ],
)
def test_whether_all_or_some_are_frozen_is_said_in_plain_words(
    kind: str, english: str, chinese: str, tmp_path: Path
) -> None:
    (answer,) = (one for one in ANSWERS if (one.name, one.kind) == ("sleeping_adapter", kind))
    verdict = judged(answer, tmp_path)
    assert english in verdict.text("en")
    assert chinese in verdict.text("zh")


def test_a_check_leaves_random_state_and_grad_mode_as_they_were(tmp_path: Path) -> None:
    answers = functions(ANSWERS[0].source(), "forgotten_no_grad", tmp_path)
    state = torch.get_rng_state()
    with torch.no_grad():
        check.judged("forgotten_no_grad", **answers)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_a_warning_of_the_program_is_not_written_beside_the_verdict(tmp_path: Path) -> None:
    change = (
        "    with torch.no_grad():\n        scores",
        "    import warnings\n\n    warnings.warn('old')\n    scores",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judged(Answer("forgotten_no_grad", "right", (change,)), tmp_path).passed


def test_a_program_that_leaves_autograd_off_is_told_so(tmp_path: Path) -> None:
    answer = Answer(
        "forgotten_no_grad",
        "wrong",
        (("    with torch.no_grad():\n        scores", "    torch.set_grad_enabled(False)\n    scores"),),
    )
    assert judged(answer, tmp_path).wrong == ("no_history", "grad_left_off")
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("returned", "wrong"),
    [("None", "no_tensor"), ("model(leaf)", "not_scalar"), ("1 / 0", "raises"), ("torch.tensor(1.0986)", "other_loss")],
)
def test_what_is_no_loss_is_named(returned: str, wrong: str, tmp_path: Path) -> None:
    answer = Answer("forgotten_no_grad", "wrong", (("F.cross_entropy(scores, kind)", returned),))
    assert wrong in judged(answer, tmp_path).wrong


@pytest.mark.parametrize(
    ("built", "wrong"), [("None", "no_model"), ("LeafNet(), 1", "no_model"), ("undefined", "raises")]
)
def test_what_is_no_model_is_named(built: str, wrong: str, tmp_path: Path) -> None:
    answer = Answer("forgotten_no_grad", "wrong", (("    return LeafNet()", f"    return {built}"),))
    assert judged(answer, tmp_path).wrong == (wrong,)


def test_a_failed_check_shows_its_sentences_in_the_place_of_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Not yet") as caught:
        check.check("forgotten_no_grad", **functions(ANSWERS[0].source(), "forgotten_no_grad", tmp_path))
    assert " ".join(caught.value._render_traceback_()).split() == str(caught.value).split()


def test_a_long_sentence_of_a_failed_check_is_broken_between_words(tmp_path: Path) -> None:
    untouched = next(one for one in ANSWERS if one.name == "sleeping_adapter")
    with pytest.raises(testing.NotYet) as caught:
        check.check("sleeping_adapter", **functions(untouched.source(), "sleeping_adapter", tmp_path))
    lines = caught.value._render_traceback_()
    assert max(map(len, str(caught.value).splitlines())) > WIDTH >= max(map(len, lines))
    assert "base_model.model.head.lora_A.default.weight," in " ".join(lines).split()


def test_a_check_says_which_functions_it_takes() -> None:
    with pytest.raises(GradkitError, match="build, loss_of"):
        check.check("forgotten_no_grad", build=len)
    with pytest.raises(GradkitError, match="no exercise forgotten_nograd"):
        check.check("forgotten_nograd")


# -- progress ---------------------------------------------------------------------------------------------------


def test_progress_is_kept_from_one_kernel_to_the_next(config: Path, tmp_path: Path) -> None:
    answers = functions(ANSWERS[0].source(), "forgotten_no_grad", tmp_path)
    for _ in range(2):
        with pytest.raises(testing.NotYet):
            check.check("forgotten_no_grad", **answers)
    assert "01 A forgotten no_grad: not yet (checks: 2)" in check.progress().text()
    assert check.progress().solved == ()
    right = exercises.solution("forgotten_no_grad")
    check.check("forgotten_no_grad", build=right["build"], loss_of=right["loss_of"])
    assert check.progress().solved == ("forgotten_no_grad",)
    assert "01 忘了拿掉的 no_grad" in check.progress().text("zh")
    assert exercises.logbook_file().parent == config
    assert check.progress(forget=True).solved == ()


def test_what_was_solved_stays_solved() -> None:
    exercises.note_try("zero_loss", solved=True)
    assert exercises.note_try("zero_loss", solved=False).solved


@pytest.mark.parametrize("content", ["", "[]", "{1", '{"zero_loss": 3}', '{"zero_loss": {"tries": "x"}}'])
def test_a_logbook_that_cannot_be_read_counts_as_empty(content: str) -> None:
    exercises.logbook_file().parent.mkdir(parents=True)
    exercises.logbook_file().write_text(content, encoding="utf-8")
    assert exercises.logbook_entries() == {}
    assert exercises.note_try("zero_loss", solved=True).tries == 1


def test_a_logbook_that_cannot_be_written_stops_nobody(config: Path) -> None:
    config.write_text("a file in the place of the folder", encoding="utf-8")
    assert exercises.note_try("zero_loss", solved=True).tries == 1


# -- a course's metadata ----------------------------------------------------------------------------------------


@each_exercise
def test_given_program_and_check_carry_what_nbgrader_needs(name: str) -> None:
    exercise = exercises.exercise(name)
    pages = [page for page in teaching_book.read_book(f"workshop/{exercise.book}") if "nbgrader" in page.metadata]
    marks = {page.metadata["nbgrader"]["grade_id"]: page.metadata["nbgrader"] for page in pages}
    facts = {key: tuple(one[k] for k in ("solution", "grade", "locked")) for key, one in marks.items()}
    assert facts == {"given": (False, False, True), "program": (True, False, False), "check": (False, True, True)}
    assert all(one["schema_version"] == 3 and not one["task"] for one in marks.values())
    assert marks["check"]["points"] == exercise.points
    assert [page.metadata["tags"][0] for page in pages] == ["given", "program", "check"]


@pytest.mark.parametrize("book", BOOKS)
def test_every_exercise_folds_away_three_hints(book: str) -> None:
    for language in i18n.LANGUAGES:
        text = "\n".join(page.says(language) for page in teaching_book.read_book(book) if page.kind == "markdown")
        assert text.count("<details><summary>") == text.count("</details>") == 3
