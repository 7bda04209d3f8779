"""Why training failed just now: the failing step is run again from the frames that the error, or the program, holds.

``of_error`` takes an exception, ``of_running`` the frames that lead to an optimizer's step. Nothing in the program has
to be changed for that, and afterwards the program is as it was.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from gradkit.core import attempts, causes, introspection
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.records import OF_RANKS, Finding, Note, Origin, Picture
from gradkit.diagnosis import read_off
from gradkit.diagnosis.experiments.candidates import KEPT, ONCE
from gradkit.diagnosis.facts import optimizers
from gradkit.live import (
    caveats,
    earlier_cells,
    empty_optimizer,
    leftovers,
    plain_names,
    stack,
    thawed,
    whole_weights,
    whose,
)
from gradkit.live.candidates import INSIDE, MOST, OUTSIDE, Candidate, candidates, files, recording_off, runs_without
from gradkit.live.rebuild import CannotRebuild
from gradkit.live.stack import Point
from gradkit.live.trial import Fault, NotTheStep, Trial
from gradkit.report import layout
from gradkit.report.report import Report
from gradkit.source import faults, frames
from gradkit.source.units import LOOP
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError

REASONS = "origin.refused"
"""Where the sentences for the reasons of ``Tried`` lie."""


@dataclass(frozen=True)
class Tried:
    """A unit that was looked at and not taken.

    Attributes:
        file, function, kind, first, last: which; as in ``Origin``.
        reason: names its sentence, ``origin.refused.<reason>``; ``"own_fault"`` for a fault of gradkit's own.
        facts: what the sentence names.
    """

    file: str
    function: str
    kind: str
    first: int
    last: int
    reason: str
    facts: dict[str, str]

    def text(self, language: str | None = None) -> str:
        """In one line: where, and why not."""
        with speaking(language):
            reason = words(f"{REASONS}.{self.reason}", **self.facts)
            place = f"{layout.shown_path(self.file)}:{self.first}-{self.last}" if self.file else "-"
            return words("origin.told.tried", place=place, reason=reason)


@dataclass(frozen=True)
class Explanation:
    """What was found of a program that failed.

    Attributes:
        report: with its ``origin``; None if nothing can be said.
        tried: the units that were not taken, the innermost first.
    """

    report: Report | None
    tried: tuple[Tried, ...] = ()

    @property
    def fault(self) -> str:
        """The fault of gradkit's own that ended the search, in one line; ``""`` as a rule."""
        return next((one.facts["error"] for one in self.tried if one.reason == "own_fault"), "")

    def headline(self, language: str | None = None) -> str:
        """Place and cause, and what to change: at most three lines."""
        report = self.report
        with speaking(language):
            if report is None or not report.findings:
                said = report.verdict() if report is not None else self._nothing()
                return words("origin.told.headline_none", sentence=said)
            finding, section = report.findings[0], report.sections()[0]
            place = layout.shown_place(finding.location).rsplit(":", 1)[0] if finding.location else ""
            key = "origin.told.headline" if place else "origin.told.headline_no_line"
            proof = words(f"report.{finding.proof}")
            first = words(key, place=place, title=section.title, cause=finding.cause, proof=proof)
            return "\n".join([first, words("origin.told.help", text=section.help)])

    def text(self, language: str | None = None) -> str:
        """The report; without one, what was tried, and what to do instead."""
        with speaking(language):
            if self.report is not None:
                return self.report.text()
            if self.fault:
                return self._nothing() + "\n"
            lines = [self._nothing(), *(one.text() for one in self.tried)]
            return "\n".join([*lines, words("origin.told.wrap")]) + "\n"

    def on_one_rank(self) -> Explanation:
        """The same where only some of the ranks have found it: what helps has to hold on all of them.

        To freeze what one batch does not use, say, would take it from the ranks whose batches do.
        """
        report = self.report
        if report is None:
            return self
        findings, picture = _for_ranks(report.findings), report.picture
        picture = replace(picture, findings=_for_ranks(picture.findings))
        return replace(self, report=replace(report, findings=findings, picture=picture))

    def _nothing(self) -> str:
        return words("origin.told.fault", error=self.fault) if self.fault else words("origin.told.none")

    def data(self) -> dict[str, Any]:
        """As plain data for scripts: what ``Report.data`` has, and the units that were tried; without a report, why."""
        nothing: dict[str, Any] = {"healthy": None, "findings": [], "origin": None}
        told = self.report.data() if self.report is not None else {**nothing, "why": self.text().strip()}
        return {**told, "tried": [asdict(one) for one in self.tried]}


def _for_ranks(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    passing = (causes.cause(one.cause).may_pass for one in findings)
    parts = ({**one.facts, OF_RANKS: one.module or "part"} for one in findings)
    return tuple(
        replace(one, facts=facts) if may_pass else one
        for one, facts, may_pass in zip(findings, parts, passing, strict=True)
    )


def last_error() -> BaseException | None:
    """The exception that ended the last statement, script or cell, as far as nobody caught it."""
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None and error.__traceback__ is None:
        error = error.with_traceback(getattr(sys, "last_traceback", None))
    return error


def last_report(
    error: BaseException | None = None,
    *,
    model: nn.Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> Report:
    """As ``of_error``, of the last error if none is given: see :func:`gradkit.explain`.

    Raises:
        GradkitError: there is none, autograd has no part in it, or it cannot be explained.
    """
    error = error if error is not None else last_error()
    if error is None:
        raise GradkitError("nothing_failed")
    given = optimizers.several(optimizer)  # of several it is looked for which of them comes next
    found = of_error(error, model=model, optimizer=given[0] if len(given) == 1 else None)
    if found is None:
        raise GradkitError("not_of_autograd", error=attempts.words(error))
    if found.report is None:
        raise GradkitError("not_explained", reason=found.text().strip())
    return found.report


def of_error(
    error: BaseException,
    *,
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    while_raised: bool = False,
) -> Explanation | None:
    """Explain an error that training failed with.

    Args:
        error: with its traceback.
        model: the model whose parameters are of interest; None to look for it.
        optimizer: the optimizer in use; None to look for it.
        while_raised: the error is on its way out, and what the step has entered is still in force. Call it after the
            ``except`` block has ended.

    Returns:
        None if autograd has no part in the error, nor an optimizer that was handed nothing.

    Example:
        >>> def train(net):
        ...     for x in torch.ones(3, 1, 2):
        ...         net(x).detach().sum().backward()
        >>> try: train(nn.Linear(2, 1))
        ... except RuntimeError as error: report = of_error(error).report
        >>> report.findings[0].cause, report.findings[0].proof, report.origin.kind
        ('detach', 'proven', 'loop')
    """
    found = _failure(error)
    if found is None:
        made = _safely(lambda _: empty_optimizer.of_error(error))
        return made if made.report is not None or made.fault else None
    inner, mishap = found
    points = stack.of_error(error, inner)
    fault = Fault(mishap=mishap, optimizer=optimizer, model=model)
    with whole_weights.kept.of_frames([point.frame for point in points]):
        return _safely(lambda tried: _searched(candidates(points), fault, points, tried, live=while_raised))


def of_running(
    frame: FrameType,
    optimizer: Optimizer,
    *,
    after_step: bool = False,
    should_train: Sequence[str] | None = None,
    missing: Sequence[torch.Tensor] = (),
    whole: bool = False,
) -> Explanation | None:
    """Explain a step that trains nothing, or not all: from the frames that lead to an optimizer's step.

    Args:
        frame: the innermost one; those further out are its callers.
        after_step: the optimizer has stepped already.
        should_train: names or globs of the parameters that ought to learn.
        missing: parameters that got no gradient.
        whole: with all that the step does after backward, the optimizer's step included; else up to its last backward.

    Returns:
        None if no unit of these frames is the step.
    """
    points = stack.running(frame)
    wanted = tuple(should_train) if should_train is not None else None
    fault = Fault(optimizer=optimizer, should_train=wanted, missing=tuple(missing), whole=whole)
    found = candidates(points, inclusive=whole)
    made = _safely(lambda tried: _searched(found, fault, points, tried, live=True, after_step=after_step))
    return made if made.report is not None or made.fault else None


def _failure(error: BaseException) -> tuple[BaseException, AutogradError] | None:
    """The exception that autograd has a part in, among those that one was raised from."""
    for one in faults.raised_from(error):
        mishap = autograd_errors.classify_one(one, in_step=True)
        if mishap is not None:
            return one, mishap
    return None


def _safely(search: Callable[[list[Tried]], Report | None]) -> Explanation:
    """The search; a fault of gradkit's own is told among what was tried, and never raised."""
    tried: list[Tried] = []
    try:
        report = search(tried)
    except Exception as error:
        if attempts.LOUD:
            raise
        tried.append(Tried("", "", "", 0, 0, "own_fault", {"error": attempts.words(error)}))
        report = None
    return Explanation(report, tuple(tried))


def _searched(
    found: Iterator[Candidate], fault: Fault, points: Sequence[Point], tried: list[Tried],
    *, live: bool, after_step: bool = False,
) -> Report | None:  # fmt: skip
    """The first unit that is the step, diagnosed; one whose recording is switched off further out, or which only ends
    what was begun further out, only if need be. Where a history is needed once more that was made before a unit, the
    passes of loops further out are tried, in which it may be made."""
    reserve: Report | None = None
    later: Candidate | None = None
    few = itertools.islice(found, MOST)
    silent = fault.mishap is None
    for candidate in (way for one in few for way in earlier_cells.ways(one, silent=silent)):
        if later is not None and (candidate.unit.kind != LOOP or not _may_have_made(candidate, later, reserve)):
            continue
        try:
            report, trial = _tried(candidate, fault, live, after_step)
        except (CannotRebuild, NotTheStep) as refused:
            known = _as_tried(candidate, refused.reason, refused.facts)
            tried += [known] if refused.reason != earlier_cells.NONE and known not in tried else []
            continue
        if later is not None and later.at == candidate.at and not _is_of_once(report, KEPT):
            continue
        if trial.is_later:
            later = later or candidate
        elif not trial.is_end and not _is_from_further_out(candidate, live):
            return report
        else:
            tried.append(_as_tried(candidate, "only_end" if trial.is_end else "decorated", {}))
        reserve = reserve or report
    if reserve is not None or fault.mishap is None:
        return reserve
    return _read_off(fault.mishap, points)


def _may_have_made(candidate: Candidate, later: Candidate, report: Report | None) -> bool:
    """Whether a loop further out may make what a unit uses: in another frame, or around what it found made once."""
    return candidate.at < later.at or (candidate.at == later.at and report is not None and _is_of_once(report))


def _is_of_once(report: Report, *kept: str) -> bool:
    """Whether a report tells of what was made once, before the passes of a loop that use it.

    Args:
        kept: further variants that do: of what a pass puts away for another.
    """
    return any(one.variant in (ONCE, *kept) for one in report.findings[:1])


def _is_from_further_out(candidate: Candidate, live: bool) -> bool:
    return runs_without(candidate) or (live and recording_off(candidate) == OUTSIDE)


def _tried(candidate: Candidate, fault: Fault, live: bool, after_step: bool) -> tuple[Report, Trial]:
    """One unit, run again and diagnosed, and its trial.

    Raises:
        CannotRebuild: it is no function by itself.
        NotTheStep: it is not what failed.
    """
    rebuilt = earlier_cells.rebuilt(candidate)
    lost = caveats.written_over(candidate)
    if lost and _is_redrawn(candidate):
        raise NotTheStep("rebound", names=", ".join(lost))
    switched = live and recording_off(candidate) == INSIDE
    with _recording() if switched else contextlib.nullcontext():
        trial, report, emptied = _reported(candidate, rebuilt.step, fault)
    if rebuilt.unlike:
        raise NotTheStep("made_otherwise", name=rebuilt.unlike[0])
    differs = (*caveats.of(candidate, trial.whole, after_step=after_step), *rebuilt.caveats, *emptied)
    if trial.not_proven is not None:
        differs = (*differs, Note("not_proven", None, {**trial.not_proven.facts, "reason": trial.not_proven.reason}))
    unit = candidate.unit
    origin = Origin(
        candidate.point.code.co_filename, candidate.function, unit.kind, unit.loop_line, unit.first, unit.last,
        reproduced=trial.reproduced, silent=fault.mishap is None, caveats=differs, before=rebuilt.before,
    )  # fmt: skip
    return replace(plain_names.in_report(report, [trial.whole]), origin=origin), trial


def _reported(candidate: Candidate, step: Callable[[], object], fault: Fault) -> tuple[Trial, Report, tuple[Note, ...]]:
    """The trial of a unit, and what it reports.

    Where another error came, once more without what buffers still hold; where none came because the unit has changed
    what requires grad, once more from its beginning.

    Raises:
        NotTheStep: it is not what failed.
    """
    trial = Trial(candidate, step, fault)
    try:
        return trial, trial.report(), ()
    except NotTheStep as refused:
        silent = fault.mishap is None
        buffers = leftovers.of(candidate) if silent and refused.reason == "raised_other" else {}
        spent = thawed.by(candidate, step) if not silent and refused.reason == "did_not_raise" else ()
        if not buffers and not spent:
            raise
    if spent:
        with thawed.undone(spent):
            return trial, trial.report(), ()
    trial = Trial(candidate, leftovers.without(buffers, step), fault)
    return trial, trial.report(), (Note("emptied", None, {"names": ", ".join(dict.fromkeys(buffers))}),)


def _is_redrawn(candidate: Candidate) -> bool:
    """Whether there is a unit that draws anew what this one has written over."""
    return not candidate.unit.redraws and bool(candidate.unit.lost & candidate.unit.targets)


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """Recording as it was before the unit switched it off, which it will do again."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _as_tried(candidate: Candidate, reason: str, facts: dict[str, str]) -> Tried:
    unit = candidate.unit
    file = candidate.point.code.co_filename
    return Tried(file, candidate.function, unit.kind, unit.first, unit.last, reason, dict(facts))


def _read_off(mishap: AutogradError, points: Sequence[Point]) -> Report | None:
    """What the error says by itself, where nothing could be run again."""
    users = [point for point in points if frames.is_user_file(point.code.co_filename)]
    callers = tuple((point.code, point.lasti) for point in reversed(users))
    found = read_off.findings(mishap, files(points), callers, _in_parallel(points))
    if not found or not users:
        return None
    inner = users[-1]
    label = whose.name_of(inner)
    origin = Origin(inner.code.co_filename, label, "", first=inner.line, last=inner.line)
    picture = Picture((), (), (), found, backward=False)
    report = Report(found, (), picture, label, backward=False, error=mishap.message, runs=0, origin=origin)
    return plain_names.in_report(report, [_in_parallel(points)])


def _in_parallel(points: Sequence[Point]) -> nn.Module | None:
    """The ``DistributedDataParallel`` in whose frames an error was raised: it counts its parameters in its words."""
    owners = (point.frame.f_locals.get("self") for point in reversed(points))
    return next((one for one in owners if introspection.is_a(one, DistributedDataParallel)), None)
