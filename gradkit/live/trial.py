"""One unit run again: is it the step that failed? If so it is diagnosed, and that run is the diagnosis's first.

The same kind of error has to come from the same line, of a loss that was made in this run; or, where nothing was
raised, there has to be a forward pass and a backward. All of it happens inside of a ``Guard``, and all is put back.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.api.diagnose import report_of
from gradkit.core import attempts
from gradkit.core.errors import GradkitError
from gradkit.core.records import LIKELY
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis import pipeline
from gradkit.diagnosis.facts import optimizers
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.pipeline import Options
from gradkit.diagnosis.rules import errors
from gradkit.live import beside_model, guard, other_losses, plain_names, quiet, whose
from gradkit.live.candidates import Candidate, files
from gradkit.live.guard import Guard, NotAgain
from gradkit.load.call import StepCall
from gradkit.load.step import Step
from gradkit.report.report import Report
from gradkit.source import faults, locations, units
from gradkit.state import registered
from gradkit.tracing import autograd_errors
from gradkit.tracing.after_backward import held_by
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.interventions import StopAtBackward
from gradkit.tracing.run import is_of_gradients
from gradkit.tracing.tracer import Tracer

LIMIT, LONGER = 30.0, 120.0
"""Seconds that the first run of a unit may take, and those that come once it is known to be the step."""
# Errors that hang on what an optimizer or scaler did between: there they step, and are put back.
_OF_STEPS = frozenset({
    autograd_errors.OVERWRITTEN, autograd_errors.LEAF_WRITTEN, autograd_errors.VIEW_WRITTEN, autograd_errors.TWICE,
    autograd_errors.SCALER, autograd_errors.NOT_TAKEN,
})  # fmt: skip
_WITHOUT_HISTORY = (autograd_errors.NO_HISTORY, autograd_errors.MANY_ELEMENTS)
UNEXPLAINED = "unexplained"
_NO_LOSS = ("nothing_returned", "no_tensor")


class NotTheStep(Exception):  # noqa: N818  it is a reason, not a fault
    """Why a unit is not taken: names its sentence, ``origin.refused.<reason>``, and what that names."""

    def __init__(self, reason: str, **facts: str) -> None:
        super().__init__(reason, *facts.values())
        self.reason, self.facts = reason, facts


@dataclass(frozen=True)
class Fault:
    """What went wrong in the program.

    Attributes:
        mishap: the error of autograd's; None for a fault that raises nothing.
        optimizer: the one whose step is looked at, or that is given; None to look for it.
        model: the model, if it is given.
        should_train: names or globs of the parameters that ought to learn.
        missing: parameters that got no gradient.
        whole: what the step does after backward is looked at, and nothing else.
    """

    mishap: AutogradError | None = None
    optimizer: Optimizer | None = None
    model: nn.Module | None = None
    should_train: tuple[str, ...] | None = None
    missing: tuple[torch.Tensor, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class _Way:
    """How a unit is run: up to which backward of its own (0: as it is), without those before, and for the last time."""

    count: int = 0
    skip: bool = False
    final: bool = False


class _Better(Exception):  # noqa: N818
    """The unit is better run in another way: these are the ways, the best last."""

    def __init__(self, *ways: _Way) -> None:
        super().__init__()
        self.ways = ways


class _Narrower(Exception):  # noqa: N818
    """Fewer modules take part than were in sight."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.parts = parts


@dataclass
class Trial:
    """A candidate that is tried.

    Attributes:
        reproduced: whether the same came of it as in the program; known after ``report``.
        not_proven: why no further run was made; None if they were.
        whole: the model that was diagnosed.
        is_end: no module ran in it, and nothing that trains was used: a rollout or the like came before.
        is_later: what the error is about was made before it, perhaps by the same pass.
    """

    candidate: Candidate
    step: Callable[[], object]
    fault: Fault
    reproduced: bool = False
    not_proven: NotTheStep | None = None
    whole: nn.Module | None = None
    is_end: bool = False
    is_later: bool = False
    _parts: Mapping[str, nn.Module] = field(default_factory=dict)
    _is_step: bool = False
    _narrowed: bool = False
    _is_spent: bool = False
    _not_meant: set[int] = field(default_factory=set)

    def report(self) -> Report:
        """Run the unit, and diagnose it if it is the step.

        Raises:
            NotTheStep: it is not.
        """
        sight = whose.modules_within_sight(self.step, self.candidate)
        self._parts = {"model": self.fault.model} if self.fault.model is not None else sight
        ways = [_Way()]
        while True:
            way = ways.pop()
            try:
                return self._tried(way)
            except _Better as better:
                ways = list(better.ways)
            except _Narrower as narrower:
                self._parts, self._narrowed = narrower.parts, True
                ways.append(way)
            except NotTheStep:
                if not ways:
                    raise

    def _tried(self, way: _Way) -> Report:
        """One diagnosis; where its further runs are refused, one that rests on the first run alone."""
        self._is_step, self.not_proven = False, None
        if self.fault.whole:
            return self._diagnosed(way, replay=False)
        try:
            return self._diagnosed(way, replay=True)
        except NotTheStep as refused:
            if not self._is_step or refused.reason == UNEXPLAINED:
                raise
            self.not_proven = refused
        return self._diagnosed(way, replay=False)

    def _diagnosed(self, way: _Way, *, replay: bool) -> Report:
        try:
            return self._guarded(way, replay)
        except NotAgain as refused:  # the alarm rang as the run had ended
            raise _not_again(refused) from None

    def _guarded(self, way: _Way, replay: bool) -> Report:
        stop = StopAtBackward(way.count, skip=way.skip) if way.count else None
        model, options = self._options(stop, replay)
        label = self.candidate.function
        step = Step(StepCall(self.step, label), model, label, files(self.candidate.stack))
        with contextlib.ExitStack() as stack:
            guarded = stack.enter_context(Guard(LIMIT))
            stack.enter_context(quiet.muted())
            if not self.fault.whole and (self.fault.mishap is None or self.fault.mishap.kind not in _OF_STEPS):
                stack.enter_context(quiet.without_steps(self.step))
            whole = partial(self._is_whole, way)
            options = replace(options, look=partial(self._look, guarded, way, stop), whole=whole)
            report = _refusing(guarded, lambda: pipeline.run(step, options, report_of)[0])
        if self.fault.mishap is not None and not report.findings:
            raise NotTheStep(UNEXPLAINED)
        if self._is_spent and report.findings[0].variant != errors.KEPT:
            raise NotTheStep(UNEXPLAINED)
        return report if self.reproduced else _unproven(report)

    def _options(self, stop: StopAtBackward | None, replay: bool) -> tuple[nn.Module, Options]:
        fault, candidate = self.fault, self.candidate
        first = whose.model_of(self._parts, {})
        optimizer = fault.optimizer or whose.next_optimizer(candidate, self.step, first)
        parts, leaves = self._parts, dict[str, torch.Tensor]()
        missing = {id(one) for one in fault.missing} - self._not_meant
        if fault.model is None:
            parts = whose.with_those_of(optimizer, parts, candidate)
            leaves = whose.leaves_beside(optimizer, parts, candidate, missing)
        model = self.whole = whose.model_of(parts, leaves)
        if fault.mishap is None and not fault.whole and _is_of_a_latent_that_is_gone(optimizer, model, missing):
            raise NotTheStep("no_step")
        held = whose.names_held(model, optimizer)
        left = [n for n, one in registered.parameters(model) if id(one) in missing and n not in held]
        names = (*held, *left)
        options = Options(
            given=optimizers.several(
                optimizer if fault.mishap is None and not fault.whole and (left or not held) else None
            ),
            steps=(fault.optimizer,) if fault.whole and fault.optimizer is not None else (),
            replay=replay,
            should_train=_should_train(fault.should_train, model, names),
            wished=fault.should_train is not None,
            callers=candidate.callers,
            always=(stop,) if stop is not None else (),
            alone=True,
            late=fault.mishap is None,
        )
        return model, options

    # -- is it the step ---------------------------------------------------------------------------------------------

    def _look(self, guarded: Guard, way: _Way, stop: StopAtBackward | None, first: FirstRun, tracer: Tracer) -> None:
        """Look at the first run.

        Raises:
            NotTheStep: it is not what failed.
        """
        if self.fault.mishap is None:
            self._look_silent(first, tracer, way)
        else:
            self._look_for(self.fault.mishap, first, tracer, way, stop)
        if self.candidate.unit.kind != units.LOOP and _makes_anew(first.trace):
            raise NotTheStep("made_anew")
        took = whose.that_took_part(self._parts, first.trace)
        if not self._narrowed and took.keys() != self._parts.keys():
            raise _Narrower(took)
        lost = self.fault.mishap is not None and self.fault.mishap.kind == autograd_errors.NO_HISTORY
        self.is_end = lost and not _uses_a_model(first.trace)
        self.is_later = _is_of_before(first)
        self._is_step = True
        guarded.allow(LONGER)

    def _is_whole(self, way: _Way, first: FirstRun) -> bool:
        """Whether the unit, which ends where the program failed, has all the losses that the program has."""
        return not way.skip and not other_losses.may_follow(self.candidate, first)

    def _look_for(
        self, mishap: AutogradError, first: FirstRun, tracer: Tracer, way: _Way, stop: StopAtBackward | None
    ) -> None:
        """Whether the same error came, of a loss that was made in this run."""
        asked, begun = tracer.asked, tracer.backwards.begun
        if way == _Way() and asked is not None and not asked.inputs and begun and _is_alike(first.mishap, mishap):
            if (begun > 1 or not asked.refused) and not _is_freed_elsewhere(first.mishap):
                skip = mishap.kind in _WITHOUT_HISTORY and begun > 1 and not is_of_gradients(first.trace)
                raise _Better(_Way(final=True), _Way(begun), *([_Way(begun, skip=True)] if skip else []))
        self._is_spent = _is_spent(first, mishap)
        if not self._is_spent and not _is_alike(first.mishap, mishap) and not _is_told_otherwise(first, mishap):
            raise _other(first.mishap)
        inside = first.mishap is not None and first.mishap.inside
        chain = (
            stop.chain if stop is not None and not inside else first.mishap.chain if first.mishap is not None else ()
        )
        if chain and _line(chain) != self.candidate.place:
            raise NotTheStep("raised_elsewhere", line=str(_line(chain)[1]))
        if not is_made_in(first.trace):
            raise NotTheStep("made_outside")
        self.reproduced = not self._is_spent

    def _look_silent(self, first: FirstRun, tracer: Tracer, way: _Way) -> None:
        """Whether there is a forward pass and a backward, and the same parameters get no gradient."""
        if first.mishap is not None:
            raise _other(first.mishap)
        begun = tracer.backwards.begun
        if way == _Way() and begun == 1 and not self.fault.whole:
            raise _Better(_Way(final=True), _Way(1))
        if not (begun or first.reached.runs) or not is_made_in(first.trace):
            raise NotTheStep("no_step")
        self._look_beside(first.trace, way)
        self.reproduced = self.fault.whole or not any(
            first.reached.norms.get(name) for name in self._without_gradient()
        )

    def _look_beside(self, trace: Trace, way: _Way) -> None:
        """Leave out what stands beside the model and does not take in what that computes: it may be meant as it is."""
        model, optimizer = self.whole, self.fault.optimizer
        if optimizer is None or not isinstance(model, whose.Together) or self._not_meant:
            return
        self._not_meant = beside_model.not_meant(model, trace, whose.names_held(model, optimizer))
        if self._not_meant and self._not_meant.issuperset(map(id, self.fault.missing)):
            raise NotTheStep("no_step")
        if self._not_meant:
            raise _Better(way)

    def _without_gradient(self) -> list[str]:
        """The names of what got no gradient. What the optimizer does not hold may well have got one."""
        model, ids = self.whole, {id(one) for one in self.fault.missing}
        if model is None:
            return []
        known = dict(registered.parameters(model))
        return [name for name in whose.names_held(model, self.fault.optimizer) if id(known[name]) in ids]


def _is_of_a_latent_that_is_gone(optimizer: Optimizer | None, model: nn.Module, missing: Set[int]) -> bool:
    """Whether an optimizer holds plain tensors alone that take no part, and the model is frozen: it is not to learn."""
    mine = held_by(optimizer) if optimizer is not None else []
    plain = bool(mine) and not any(isinstance(one, nn.Parameter) for one in mine)
    known = [one for _, one in registered.parameters(model)]
    return plain and set(map(id, mine)) <= missing and not any(one.requires_grad for one in known)


def _is_alike(found: AutogradError | None, wanted: AutogradError) -> bool:
    return found is not None and (found.kind, found.inside) == (wanted.kind, wanted.inside)


def _is_freed_elsewhere(found: AutogradError | None) -> bool:
    """Whether a backward on another line freed the graph: that is told only where the step goes backward itself."""
    if found is None or found.kind != autograd_errors.TWICE or not found.chain:
        return False
    return any(chain and _line(chain) != _line(found.chain) for chain in (one.chain for one in found.freeing))


def _is_spent(first: FirstRun, wanted: AutogradError) -> bool:
    """Whether a history of a step before was overwritten by the optimizer, and is now freed as well: by the backward
    that failed, half of which was made."""
    found = first.mishap
    if found is None or (found.kind, wanted.kind) != (autograd_errors.TWICE, autograd_errors.OVERWRITTEN):
        return False
    return found.inside == wanted.inside and any(first.trace.values[number].past for _, number in first.crossing)


def _is_told_otherwise(first: FirstRun, wanted: AutogradError) -> bool:
    """Whether the loss that was handed back has what the program's backward refused."""
    if first.mishap is not None:
        return False
    if wanted.kind == autograd_errors.NO_HISTORY:
        return not first.reached.runs
    return wanted.kind == autograd_errors.MANY_ELEMENTS and first.reached.elements != 1


def _other(found: AutogradError | None) -> NotTheStep:
    if found is None:
        return NotTheStep("did_not_raise")
    return NotTheStep("raised_other", error=found.message.splitlines()[0][:200])


def _line(chain: Chain) -> tuple[str, int]:
    return chain[0][0].co_filename, locations.line_of(chain[0])


def is_made_in(trace: Trace) -> bool:
    """Whether a run computed its loss, rather than only shaping one that was there before.

    A module ran, something that a module holds or another leaf was used, or the loss comes from nothing at all.
    """
    if trace.loss < 0:
        return True
    if trace.values[trace.loss].maker < 0:
        return False
    if any(call.module >= 0 for call in trace.calls):
        return True
    used = {number for call in trace.calls for number in call.inputs}
    values = [trace.values[number] for number in used]
    if any(one.parameter or one.buffer or one.attribute or one.leaf for one in values):
        return True
    return all(trace.values[number].maker >= 0 for number in trace.sources([trace.loss]))


def _is_of_before(first: FirstRun) -> bool:
    """Whether the error is about what was made before the run: a history that is needed again, a derivative's value."""
    values, mishap = first.trace.values, first.mishap
    if mishap is not None and mishap.kind == autograd_errors.UNUSED:
        made = [values[number] for number in mishap.inputs if not values[number].parameter]
        return bool(made) and all(one.past or one.maker < 0 for one in made)
    return any(values[number].past for _, number in first.crossing)


def _uses_a_model(trace: Trace) -> bool:
    """Whether a module ran, or something that trains was used."""
    used = (trace.values[number] for call in trace.calls for number in call.inputs)
    return any(call.module >= 0 for call in trace.calls) or any(one.leaf and one.requires_grad for one in used)


def _makes_anew(trace: Trace) -> bool:
    """Whether the run used parameters that it made itself: then it is a part of the set-up, not a step."""
    used = {number for call in trace.calls for number in call.inputs}
    return any(trace.values[number].stray and trace.values[number].birth >= 0 for number in used)


def _refusing(guarded: Guard, run: Callable[[], Report]) -> Report:
    """What a diagnosis raises, as a reason; a fault of gradkit's own comes through."""
    try:
        report = run()
    except (NotTheStep, _Better, _Narrower, KeyboardInterrupt):
        raise
    except NotAgain as refused:
        raise _not_again(refused) from None
    except SystemExit as left:
        raise NotTheStep(guard.LEAVES, what=f"SystemExit({left.code!r})") from None
    except GradkitError as error:
        if guarded.refused:
            raise _not_again(guarded.refused[0]) from None
        raise _of_gradkit(error) from None
    except BaseException as error:
        if isinstance(error, Exception):
            raise
        raise NotTheStep("raised_other", error=attempts.words(error)) from None
    if guarded.refused:  # the step swallowed it, and went on without
        raise _not_again(guarded.refused[0])
    return report


def _not_again(refused: NotAgain) -> NotTheStep:
    return NotTheStep(refused.reason, what=refused.what, seconds=refused.what)


def _of_gradkit(error: GradkitError) -> NotTheStep:
    if error.key in _NO_LOSS:
        return NotTheStep("did_not_raise")
    cause = error.__cause__
    if cause is not None and not faults.is_ours(cause):
        return NotTheStep("raised_other", error=attempts.words(cause))
    return NotTheStep("gradkit_error", error=attempts.words(error))


def _should_train(given: Sequence[str] | None, model: nn.Module, held: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names that should train: those that were given, also without the name of the variable in front of them, or
    those of wrappers in them."""
    together = isinstance(model, whose.Together)
    if given is None:
        return (held or None) if together else None
    plain = plain_names.names_in(model)
    if not together and all(old == new for old, new in plain.items()):
        return tuple(given)
    names = [name for name, _ in registered.parameters(model)]
    ways = {one: (one, plain[one], *(x.partition(".")[2] for x in (one, plain[one]) if together)) for one in names}
    found = [n for n in names if any(fnmatch.fnmatchcase(one, glob) for one in ways[n] for glob in given)]
    return tuple(found) or tuple(given)


def _unproven(report: Report) -> Report:
    """The same was not seen again: nothing of it is proven."""
    found = tuple(replace(one, proof=LIKELY, revived=(), alone=None) for one in report.findings)
    return replace(report, findings=found, picture=replace(report.picture, findings=found))
