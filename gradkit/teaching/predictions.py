"""Predict before you run: one question to each exercise, its answer kept, and beside it what then happened.

What happened is measured on the learner's own program, and not looked up. A prediction counts only if it was made
before that was shown.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.diagnosis.facts.inventory import matches
from gradkit.teaching import exercises, experiment
from gradkit.teaching.grading import clear_grads

LETTERS = ("a", "b", "c", "d")
RAISES, ZERO, NAN = "raises", "zero", "nan"
OTHER = "-"
"""What happened is none of the four: the program is no longer the one that was asked about."""

Outcome = str | tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question with four answers; its words are ``ask.<exercise>``, ``ask.<exercise>_a`` and so on.

    Attributes:
        answers: what each letter stands for: globs of the parameters that get a gradient, all others not; or
            ``"raises"``, ``"zero"``, ``"nan"``.
        batch: the function of the exercise that makes the batch.
        left: whether a step is made, and it is asked which parameters have a gradient after it.
        named: whether the parameters are named; where finding them is what the exercise asks for, they are not.
    """

    answers: tuple[Outcome, Outcome, Outcome, Outcome]
    batch: str = "make_batch"
    left: bool = False
    named: bool = True

    def letter(self, happened: Outcome, names: tuple[str, ...]) -> str:
        """The letter of what happened; ``"-"`` for none.

        Args:
            happened: a name out of ``RAISES``, ``ZERO``, ``NAN``, or the names of those that got a gradient.
            names: of all parameters.
        """
        for letter, answer in zip(LETTERS, self.answers, strict=True):
            if isinstance(answer, str) or isinstance(happened, str):
                found = answer == happened
            else:
                found = [name for name in names if matches(name, answer)] == list(happened)
            if found:
                return letter
        return OTHER


ALL, NONE = ("*",), ()
_ALL_BUT_ONE = ("vitals.*", "notes.*", "fusion.*", "urgency.*", "days.weight")
_ALL_BUT_THREE = ("vitals.*", "notes.project.*", "fusion.*", "urgency.*")
QUESTIONS: Mapping[str, Question] = {
    "forgotten_no_grad": Question((ALL, ("head.*",), NONE, RAISES)),
    "sleeping_adapter": Question((ALL, ("*lora_*",), NONE, RAISES)),
    "numpy_roundtrip": Question((ALL, ("head.*",), ("filters.*",), RAISES)),
    "zero_loss": Question((ZERO, NAN, NONE, RAISES), batch="make_unlabelled_batch"),
    "two_cuts": Question((ALL, ("mixer.*", "head.*"), ("head.*",), RAISES)),
    "image_captions": Question((ALL, ("projector.*", "decoder.*"), ("decoder.*",), RAISES)),
    "still_weights": Question((ALL, ("encoder.*",), ("head.*",), NONE), left=True),
    "clinic": Question((ALL, _ALL_BUT_ONE, _ALL_BUT_THREE, RAISES), named=False),
}


def happens(name: str, answers: Mapping[str, Callable[..., Any]]) -> tuple[str, tuple[str, ...]]:
    """The letter of what a program does, and the names of the parameters that got a gradient.

    Args:
        name: the exercise.
        answers: the functions of the program; it is built anew.
    """
    question, right = QUESTIONS[exercises.exercise(name).name], exercises.solution(name)
    with experiment.isolated():
        torch.manual_seed(0)
        model, *rest = made if isinstance(made := answers["build"](), tuple) else (made,)
        names = tuple(one for one, _ in model.named_parameters())
        batch = copy.deepcopy(right[question.batch]())
        if question.left:
            found = _reached(model, lambda: answers["train_step"](model, rest[0], batch))
        else:
            found = _reached(model, lambda: answers["loss_of"](model, batch).backward())
    return question.letter(found, names), found if question.named and not isinstance(found, str) else ()


def _reached(model: nn.Module, run: Callable[[], object]) -> Outcome:
    clear_grads(model)
    try:
        run()
    except Exception:  # noqa: BLE001  # that is one of the answers
        return RAISES
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if any(bool(grad.isnan().any()) for grad in grads.values()):
        return NAN
    if grads and not any(bool(grad.any()) for grad in grads.values()):
        return ZERO
    return tuple(grads)


@dataclass(frozen=True)
class Prediction:
    """What was predicted of an exercise, and what happened. ``str`` gives its text; a notebook shows it as that.

    Attributes:
        exercise: its name.
        predicted: a letter, or "".
        happened: a letter, ``"-"`` for none of them, or "" while it was not looked at.
        names: the parameters that got a gradient.
    """

    exercise: str
    predicted: str = ""
    happened: str = ""
    names: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether it happened as predicted."""
        return self.predicted != "" and self.predicted == self.happened

    def text(self, language: str | None = None) -> str:
        """All of it in ``language``; None for the one in use."""
        with speaking(language):
            return "\n".join(self._seen() if self.happened else self._asked())

    def _asked(self) -> Iterator[str]:
        yield words(f"ask.{self.exercise}")
        yield from (f"  {letter}) {words(f'ask.{self.exercise}_{letter}')}" for letter in LETTERS)
        if self.predicted:
            yield words("ask.kept", letter=self.predicted)
        else:
            yield words("ask.how", command=f'gradkit.testing.predict("{self.exercise}", "a")')

    def _seen(self) -> Iterator[str]:
        said = self._said(self.predicted) if self.predicted else words("ask.nothing")
        yield words("ask.predicted", said=said)
        yield words("ask.happened", said=self._said(self.happened))
        if self.names:
            yield words("ask.names", names=", ".join(self.names), n=len(self.names))
        if self.predicted:
            yield words("ask.right" if self.right else "ask.wrong")

    def _said(self, letter: str) -> str:
        return words("ask.other") if letter == OTHER else f"{letter}) {words(f'ask.{self.exercise}_{letter}')}"

    def __repr__(self) -> str:
        return self.text()


def predict(name: str, letter: str = "") -> Prediction:
    """Keep a prediction; until what happened was shown, it may be changed.

    Raises:
        GradkitError: ``no_such_exercise``, ``no_such_letter``.

    Example:
        >>> predict("two_cuts").predicted in ("", *LETTERS)
        True
    """
    known = exercises.entry(exercises.exercise(name).name)
    if letter and letter not in LETTERS:
        raise GradkitError("no_such_letter", letter=letter, known=", ".join(LETTERS))
    if letter and not known.happened:
        known = exercises.note(name, predicted=letter)
    return Prediction(name, known.predicted, known.happened)


def happened(name: str, **answers: Callable[..., Any]) -> Prediction:
    """Run a program, and show what happened beside the prediction, which counts from now on as it is.

    Args:
        name: the exercise.
        **answers: the functions of its program, as for the check.

    Raises:
        GradkitError: ``no_such_exercise``, ``other_answers``.
    """
    exercises.exercise(name).demand(answers)
    letter, names = happens(name, answers)
    known = exercises.entry(name)
    if not known.happened:
        exercises.note(name, happened=letter)
    return Prediction(name, known.predicted, letter, names)
