"""Judge the answer to an exercise by running it: on fresh weights and batches, against the program of the solution.

Nothing is compared as text. The learner's weights are copied into the solution's model; loss, gradients and steps must
then agree, whichever way the program was mended.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gradkit.api.diagnose import diagnose
from gradkit.core.causes import failing
from gradkit.core.errors import GradkitError, in_place_of_a_traceback
from gradkit.core.i18n import speaking, words
from gradkit.diagnosis.facts import optimizers
from gradkit.load import failures
from gradkit.report.report import Report
from gradkit.teaching import exercises, experiment
from gradkit.teaching.exercises import Exercise

RELATIVE, ABSOLUTE, STEP = 1e-3, 1e-5, 1e-6
"""How far a gradient, and one step of a weight, may be from the other's: float32, in another order."""

LOSS = 1e-5
"""As :data:`RELATIVE`, for a loss: of one number alone, a wrong one comes this close once in many thousand draws."""


def is_near(
    one: torch.Tensor | None, other: torch.Tensor, absolute: float = ABSOLUTE, relative: float = RELATIVE
) -> bool:
    """Whether two losses or gradients are the same but for rounding; None is a gradient of nothing but zeros.

    Example:
        >>> is_near(None, torch.zeros(2)), is_near(torch.ones(2), 1.00001 * torch.ones(2)), is_near(None, torch.ones(2))
        (True, True, False)
    """
    if one is None:
        return not other.any()
    return torch.allclose(one.to(other.dtype), other, relative, absolute)


def take_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy every parameter of the target from the parameter of that name in the source."""
    weights = dict(source.named_parameters())
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            parameter.copy_(weights[name])


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the parameters as they are now, by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def clear_grads(model: nn.Module) -> None:
    """Begin with no gradients."""
    for parameter in model.parameters():
        parameter.grad = None


RIGHT, WRONG, ASIDE = "right", "wrong", "aside"
MARKS = {RIGHT: "✓", WRONG: "✗", ASIDE: " "}
MOST_NAMES = 4


@dataclass(frozen=True)
class Remark:
    """One point.

    Attributes:
        key: its sentence stands in the catalogue under ``remark.<key>``.
        state: ``"right"``, ``"wrong"`` or ``"aside"`` (explains the point before it).
        facts: for the sentence; a tuple of names is shown shortened.
        report: a diagnosis whose own sentences are said as well. Its help is not: that is for the learner to find.
        causes: of its findings, those to say; ``()`` for all.
    """

    key: str
    state: str = WRONG
    facts: Mapping[str, object] = field(default_factory=dict)
    report: Report | None = None
    causes: tuple[str, ...] = ()

    def lines(self, *, places: bool = True) -> list[str]:
        """The sentence, and below it, unless ``places`` is False, those of the report, which name lines."""
        facts = {key: _shown(one) for key, one in self.facts.items()}
        said = [f"{MARKS[self.state]} {words(f'remark.{self.key}', **facts)}"]
        parts = self.report.sections() if self.report is not None and places else ()
        for part in (one for one in parts if not self.causes or one.cause in self.causes):
            said += [f"    {part.title}", f"      --> {part.place}"]
        return said


@dataclass(frozen=True)
class Verdict:
    """The answer to one exercise, judged. ``str`` gives its text; a notebook shows it as that.

    Attributes:
        exercise: its name.
        remarks: the points, in the order in which a run meets them.
        credited: changes that are right although another fault still hides them; see ``teaching/credit.py``.
        places: whether the text names the lines that the diagnosis names.
    """

    exercise: str
    remarks: tuple[Remark, ...]
    credited: tuple[str, ...] = ()
    places: bool = True

    @property
    def passed(self) -> bool:
        """Nothing is wrong."""
        return all(one.state != WRONG for one in self.remarks)

    @property
    def wrong(self) -> tuple[str, ...]:
        """The keys of the remarks that say what is wrong."""
        return tuple(one.key for one in self.remarks if one.state == WRONG)

    def text(self, language: str | None = None) -> str:
        """All of it in ``language``; None for the one in use."""
        with speaking(language):
            title = words(f"workshop.{self.exercise}")
            head = words("verdict_of.passed" if self.passed else "verdict_of.open", title=title)
            said = [head, *(line for one in self.remarks for line in one.lines(places=self.places))]
            return "\n".join([*said, *self._below()])

    def _below(self) -> Iterator[str]:
        if not self.passed and self.credited:
            sentence = words("remark.credited", names=", ".join(self.credited), n=len(self.credited))
            yield f"{MARKS[RIGHT]} {sentence}"
        if not self.passed and not self.places:
            yield words("verdict_of.hint", command=f'gradkit.testing.hint("{self.exercise}")')

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()


class NotYet(AssertionError):  # noqa: N818  no error of the program's: it is said to a learner
    """An exercise that is not solved. A notebook shows its sentences in the place of a traceback.

    Attributes:
        verdict: the :class:`Verdict`.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        return self.verdict.text()

    def _render_traceback_(self) -> list[str]:
        return in_place_of_a_traceback(self.verdict.text())


def _shown(fact: object) -> object:
    if not isinstance(fact, tuple):
        return fact
    names, rest = ", ".join(str(one) for one in fact[:MOST_NAMES]), len(fact) - MOST_NAMES
    return words("report.and_more", names=names, n=rest) if rest > 0 else names


ROUNDS = 2
Answers = Mapping[str, Callable[..., Any]]


def grade(exercise: Exercise, answers: Answers) -> tuple[Remark, ...]:
    """All that there is to say of an answer; random state and grad mode are put back afterwards."""
    chance = random.SystemRandom()
    for _ in range(ROUNDS):
        with experiment.isolated():  # quiet, for an autograder takes whatever is written to stderr for a failure
            remarks = tuple(_Round(exercise, answers, chance.randrange(2**31)).remarks())
        if any(one.state == WRONG for one in remarks):
            break
    return remarks


def is_right(exercise: Exercise, answers: Answers) -> bool:
    """Whether nothing is wrong with an answer; nothing is said of it, and no diagnosis is made."""
    with experiment.isolated():
        seed = random.SystemRandom().randrange(2**31)
        return all(one.state != WRONG for one in _Round(exercise, answers, seed, told=False).remarks())


class _Stop(Exception):  # noqa: N818  no error: the answer cannot be run any further
    def __init__(self, remark: Remark) -> None:
        super().__init__(remark)
        self.remark = remark


class _Round:
    """One fresh model of the learner's beside one of the solution's with the same weights."""

    def __init__(self, exercise: Exercise, answers: Answers, seed: int, *, told: bool = True) -> None:
        self.exercise, self.answers, self.seed, self.told = exercise, answers, seed, told
        self.right = exercises.solution(exercise.name)
        self.sound, self.dead = True, frozenset[str]()

    def remarks(self) -> Iterator[Remark]:
        """The points, in the order in which a run meets them; the first that cannot be passed is the last."""
        try:
            self.model, self.optimizer = self._built()
            yield from self._weights()
            yield from self._flags()
            for name in self.exercise.batches:
                if len(self.exercise.batches) > 1:
                    yield Remark("batch", ASIDE, {"function": name})
                yield from self._batch(self.right[name]())
            if not torch.is_grad_enabled():
                yield Remark("grad_left_off")
            if "train_step" in self.answers:
                yield from self._steps()
        except _Stop as stop:
            yield stop.remark

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return self.answers[function](*arguments)
        except Exception as error:  # a learner's program may raise anything
            facts = {"error": _words(error), "place": failures.where(error)}
            raise _Stop(Remark("raises", WRONG, {"function": function, **facts})) from error

    # -- the model ----------------------------------------------------------------------------------------------

    def _built(self) -> tuple[nn.Module, Any]:
        torch.manual_seed(self.seed)
        made = self._call("build")
        self.sample, self.guide = self._pair(self._solution_built())
        model, optimizer = self._pair(made)
        if not isinstance(model, nn.Module) or (self.guide is None) != (optimizer is None):
            raise _Stop(Remark("no_model" if self.guide is None else "no_pair"))
        return model, optimizer

    def _solution_built(self) -> Any:
        torch.manual_seed(self.seed)
        return self.right["build"]()

    @staticmethod
    def _pair(made: Any) -> tuple[Any, Any]:
        return made if isinstance(made, tuple) and len(made) == 2 else (made, None)

    def _weights(self) -> Iterator[Remark]:
        mine, right = dict(self.model.named_parameters()), dict(self.sample.named_parameters())
        missing = tuple(n for n, p in right.items() if n not in mine or mine[n].shape != p.shape)
        if missing:
            raise _Stop(Remark("missing", WRONG, {"names": missing}))
        if added := tuple(n for n in mine if n not in right):
            raise _Stop(Remark("added", WRONG, {"names": added}))
        kept = self.exercise.must_be_kept(self.sample)
        if lost := tuple(n for n in kept if not torch.equal(mine[n], right[n])):
            yield Remark("not_kept", WRONG, {"names": lost})
        else:
            yield Remark("weights", RIGHT, {"n": len(right)})

    def _flags(self) -> Iterator[Remark]:
        self.trains = self.exercise.must_learn(self.sample)
        flags = {name: p.requires_grad for name, p in self.model.named_parameters()}
        if frozen := tuple(n for n in self.trains if not flags[n]):
            yield self._frozen(frozen)
        if thawed := tuple(n for n in flags if flags[n] and n not in self.trains):
            yield Remark("unfrozen", WRONG, {"names": thawed})
        self.open, self.dead = tuple(n for n in self.trains if flags[n]), frozenset(frozen)

    def _frozen(self, names: tuple[str, ...]) -> Remark:
        facts = {"names": names, "n": len(names)}
        if len(names) == len(self.trains):
            return Remark("all_frozen", WRONG, facts)
        return Remark("frozen", WRONG, {**facts, "all": len(self.trains)})

    # -- one batch ----------------------------------------------------------------------------------------------

    def _batch(self, batch: Any) -> Iterator[Remark]:
        wanted, slopes = self._solution(batch)
        clear_grads(self.model)
        loss = self._call("loss_of", self.model, copy.deepcopy(batch))
        value = _value(loss, wanted)
        self.sound = self.sound and value.state == RIGHT
        yield value
        if not loss.requires_grad:
            yield Remark("no_history", WRONG, {}, self._report(batch))
        elif loss.grad_fn is None:
            yield Remark("decreed")
        else:
            yield from self._gradients(loss, slopes, batch)
            return
        self.sound, self.dead = False, frozenset(self.trains)

    def _solution(self, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss that is right for the learner's weights, and its gradients."""
        take_weights(self.model, self.sample)
        clear_grads(self.sample)
        loss = self.right["loss_of"](self.sample, copy.deepcopy(batch))
        loss.backward()
        grads = {n: p.grad for n, p in self.sample.named_parameters()}
        return loss.detach(), {n: g.clone() for n, g in grads.items() if g is not None}

    def _gradients(self, loss: torch.Tensor, slopes: dict[str, torch.Tensor], batch: Any) -> Iterator[Remark]:
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # hooks and Functions of the learner's may raise, too
            facts = {"error": _words(error)}
            raise _Stop(Remark("backward_raises", WRONG, facts, self._report(batch))) from error
        grads = {n: p.grad for n, p in self.model.named_parameters()}
        due = {n: slope for n in self.open if (slope := slopes.get(n)) is not None}
        absent = tuple(n for n in due if grads[n] is None)
        zero = tuple(n for n, slope in due.items() if slope.any() and (g := grads[n]) is not None and not g.any())
        self.dead |= {*absent, *zero}
        if absent:
            yield Remark("starved", WRONG, {"names": absent, "n": len(absent)}, self._report(batch))
        if zero:
            yield Remark("zero", WRONG, {"names": zero})
        if self.sound:  # else no gradient can be compared
            yield from self._compared(grads, slopes)

    def _compared(
        self, grads: Mapping[str, torch.Tensor | None], slopes: Mapping[str, torch.Tensor]
    ) -> Iterator[Remark]:
        alive = tuple(n for n in self.open if n in slopes and n not in self.dead)
        right = tuple(n for n in alive if is_near(grads[n], slopes[n]))
        other = tuple(n for n in alive if n not in right)
        self.sound = not other and not self.dead
        if other:
            yield Remark("other_gradient", WRONG, {"names": other})
        if right and not self.sound:
            yield Remark("learn", ASIDE, {"names": right})
        elif self.sound and any(slope.any() for slope in slopes.values()):
            yield Remark("gradients", RIGHT, {"n": len(right)})
        elif self.sound:
            yield Remark("no_gradient_due", RIGHT)

    def _report(self, batch: Any, optimizer: Any = None) -> Report | None:
        """A diagnosis of the learner's program on this batch, where there is something to say, and somebody listens."""
        if not self.told:
            return None
        try:
            found = diagnose(
                lambda: self.answers["loss_of"](self.model, copy.deepcopy(batch)),
                model=self.model, optimizer=optimizer, should_train=self.trains,
            )  # fmt: skip
        except GradkitError:
            return None
        return None if found.healthy else found

    # -- two steps ----------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[Remark]:
        torch.manual_seed(self.seed)
        self.model, self.optimizer = self._built()
        take_weights(self.model, self.sample)
        for number in (1, 2):
            batch = self.right["make_batch"]()
            mine, right = self._moved("train_step", batch), self._solution_moved(batch)
            due = tuple(n for n in self.trains if n not in self.dead and right[n].any())
            still = tuple(n for n in due if not mine[n].any())
            other = tuple(n for n in right if not is_near(mine[n], right[n], STEP))
            if still:
                facts = {"names": still, "n": len(still)}
                yield Remark("still", WRONG, facts, self._report(batch, self.optimizer), failing("optimizer"))
                if moved := tuple(n for n in due if n not in still):
                    yield Remark("move", ASIDE, {"names": moved})
                elif self._all_held(due):
                    yield Remark("held", ASIDE)
            elif other and self.sound:
                yield Remark("other_step" if number == 1 else "second_step", WRONG, {"names": other})
            if still or other:
                return
        yield Remark("steps", RIGHT, {"n": len(self.trains)})

    def _all_held(self, names: tuple[str, ...]) -> bool:
        held = optimizers.holding([self.optimizer])
        return all(id(p) in held for n, p in self.model.named_parameters() if n in names)

    def _moved(self, function: str, batch: Any) -> dict[str, torch.Tensor]:
        """How far one step moves each of the learner's weights."""
        before = weights_of(self.model)
        self._call(function, self.model, self.optimizer, copy.deepcopy(batch))
        return {n: w - before[n] for n, w in weights_of(self.model).items()}

    def _solution_moved(self, batch: Any) -> dict[str, torch.Tensor]:
        before = weights_of(self.sample)
        self.right["train_step"](self.sample, self.guide, copy.deepcopy(batch))
        return {n: w - before[n] for n, w in weights_of(self.sample).items()}


def _words(error: Exception) -> str:
    """An exception's words, to stand inside a sentence."""
    return failures.cause_of(error).rstrip(".")


def _value(loss: Any, wanted: torch.Tensor) -> Remark:
    if not isinstance(loss, torch.Tensor):
        raise _Stop(Remark("no_tensor", WRONG, {"kind": type(loss).__name__}))
    if loss.numel() != 1:
        raise _Stop(Remark("not_scalar", WRONG, {"shape": tuple(loss.shape).__repr__()}))
    mine, right = float(loss.detach()), float(wanted)
    if torch.isfinite(loss).all() and is_near(loss.detach().reshape(()), wanted.reshape(()), relative=LOSS):
        return Remark("loss", RIGHT, {"value": _digits(mine, 4)})
    places = 4 if _digits(mine, 4) != _digits(right, 4) else 7
    return Remark("other_loss", WRONG, {"mine": _digits(mine, places), "right": _digits(right, places)})


def _digits(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:.{places}f}"  # + 0.0: no -0.0000
