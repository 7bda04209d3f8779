"""Silent faults: the step is run again at the first suspicion, and what that finds is told once it has lasted.

Look early, speak late. The batch is in hand in the step that is suspicious and gone afterwards; but a gradient that is
missing or zero in one step may be there in the next, as a LoRA adapter's first factor, an expert or a head by turns.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import causes
from gradkit.core.records import Finding
from gradkit.live import bystanders, idle, surroundings, whole_weights
from gradkit.live.by_hand import Unmoved
from gradkit.live.looks import AT_REST, BARE, DEAD_TERM, LASTING, MISSING, SCALED, WEIGHTLESS, ZERO, Looks
from gradkit.tracing.after_backward import held_by

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation


WHOLE = ("idle.findings", "errors.scaler_findings")
"""The rules that look at what a step does after backward."""


@dataclass(frozen=True)
class _Explained:
    """An explanation, and what gave rise to it.

    Attributes:
        missing: ids of the parameters that had no gradient, or that no optimizer held.
        around: those of them that the optimizer does not hold.
        ids: of the report's parameters, by their names; of one that might be several, all.
    """

    suspicions: frozenset[str]
    explanation: Explanation
    missing: frozenset[int]
    around: frozenset[int]
    ids: dict[str, frozenset[int]]


class Suspect:
    """An optimizer whose steps are looked at.

    Attributes:
        looks: what was seen of it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.looks = Looks(optimizer)
        self._around: frozenset[str] = frozenset()
        self._explained: list[_Explained] = []
        self._tried: frozenset[str] = frozenset()
        self._resting: Explanation | None = None
        self._waiting: Explanation | None = None
        self._waits = 0
        self._weighed = False
        self._since = 0
        self._unmoved = Unmoved()

    def renew(self) -> None:
        """Look at the next step as if it were the first: its model has changed."""
        if self.looks.due:
            self._since, self.looks.due, self._tried = self.looks.steps, self.looks.steps + 1, frozenset()
            self.looks.renew()

    @property
    def peeks(self) -> bool:
        """Whether the next loss is to be looked at: the next step is due, or something is told of this one's terms."""
        due = 0 < self.looks.due <= self.looks.steps + 1
        return due or any(WEIGHTLESS in one.suspicions for one in self._explained)

    def heard(self, idle: frozenset[str]) -> None:
        """Take note of what the losses of this step hold that hands on no gradient."""
        self.looks.idle = idle
        self._weighed = self._weighed or (WEIGHTLESS not in idle and self.looks.steps > 1)

    @property
    def is_explained(self) -> bool:
        """Whether something was found that has not been told yet."""
        return bool(self._explained or self._resting or self._waiting)

    def look(self, optimizer: Optimizer, frame: FrameType, after_step: bool, model: nn.Module | None) -> None:
        """Look, and run the step again if something is suspicious that was not so before.

        Args:
            optimizer: the one that steps.
            frame: what called it.
            after_step: it has stepped, by a closure that went backward.
            model: the model, if that is known.
        """
        looks, about = self.looks, tuple[torch.Tensor, ...]()
        if looks.is_still_at_rest():
            return
        found, self._waiting = looks.look(), None
        made = looks.steps - self._since
        if made == 1 or (self._around and made <= LASTING):
            self._around, about = surroundings.look(frame, optimizer, model, self._around)
            self._let_go(self._unmoved.look(about))
            found = looks.suspect(found | self._around)
        if looks.is_bare:
            found = looks.suspect(found | {BARE})
        if (SCALED in self._tried) if looks.steps > 1 else bystanders.scaler_is_suspicious(frame, optimizer):
            found = looks.suspect(found | {SCALED})
        if AT_REST in found and looks.steps == LASTING:
            self._resting = idle.at_rest(optimizer, frame)
        new = found - self._tried - {AT_REST}
        self._tried |= new
        told = bool(new & {BARE, SCALED}) and self._explain_whole(optimizer, frame, after_step, new)
        if not told and new - {BARE, SCALED}:
            self._explain(optimizer, frame, after_step, found, about)
        if SCALED in new and not self._explained:
            self._tried -= {SCALED}
            looks.suspect(found - {SCALED})
        if any(ZERO in one.suspicions for one in self._explained):
            looks.again_soon()

    def _let_go(self, moved: frozenset[int]) -> None:
        """Forget what was found of tensors that no optimizer holds and that have moved all the same."""
        self._explained = [one for one in self._explained if moved.isdisjoint(one.around)]

    def wait(self, optimizer: Optimizer, names: frozenset[str], frame: FrameType, alone: bool) -> None:
        """Take note of one that has not stepped: whether backward has given what it holds a gradient since.

        Args:
            names: its names, as variables or attributes.
            frame: what called for a backward, or for the step of another optimizer.
            alone: no optimizer has stepped so far.
        """
        if not self.looks.is_untouched():
            self._waits, self._waiting = -LASTING, None
        elif any(one.requires_grad and one.grad is not None and one.grad.any() for one in held_by(optimizer)):
            self._waits += 1
            if self._waits > 1:
                self._waiting = idle.waiting(optimizer, names, frame, alone)

    def _explain_whole(self, optimizer: Optimizer, frame: FrameType, after_step: bool, found: frozenset[str]) -> bool:
        """Run the step again with all that it does after backward; whether that is what is wrong."""
        from gradkit.live import explain

        explanation = explain.of_running(frame, optimizer, after_step=after_step, whole=True)
        report = explanation.report if explanation is not None else None
        findings = tuple(one for one in report.findings if one.rule in WHOLE) if report is not None else ()
        if explanation is None or report is None or not findings:
            return False
        told = replace(explanation, report=replace(report, findings=findings))
        self._explained.append(_Explained(found & {BARE, SCALED}, told, frozenset(), frozenset(), {}))
        return True

    def _explain(
        self, optimizer: Optimizer, frame: FrameType, after_step: bool, found: frozenset[str],
        about: tuple[torch.Tensor, ...],
    ) -> None:  # fmt: skip
        from gradkit.live import explain

        missing = [one for one in held_by(optimizer) if id(one) in self.looks.missing] + list(about)
        zero = self.looks.zero()
        with self._whole(optimizer, frame) as whole:
            lack = [whole.get(id(one), one) for one in missing]
            explanation = explain.of_running(frame, optimizer, after_step=after_step, missing=lack)
        report = explanation.report if explanation is not None else None
        if explanation is None or report is None or report.healthy or not report.findings:
            return
        if report.origin is None or report.origin.reproduced:  # else it is not this program's fault that was seen
            about_these = {id(one) for one in missing} | zero
            ids = surroundings.ids_of([row.name for row in report.parameters], frame, about_these)
            lost = frozenset(map(id, missing))
            self._explained.append(_Explained(found, explanation, lost, frozenset(map(id, about)), ids))

    def _whole(
        self, optimizer: Optimizer, frame: FrameType
    ) -> contextlib.AbstractContextManager[dict[int, torch.Tensor]]:
        """A block in which a model that is split over ranks is whole, as far as it is known what that is."""
        if not any(hasattr(one, "to_local") for one in held_by(optimizer)):
            return contextlib.nullcontext({})
        models = surroundings.models_of(frame, {id(one) for one in held_by(optimizer)})
        return whole_weights.kept.in_place(models, optimizer)

    def ripe(self) -> list[Explanation]:
        """What has lasted for some looks in a row, and that no later step is likely to change; each once."""
        if self.looks.lasted < LASTING:
            return []
        return self._told(late=False)

    def ended(self, moved: frozenset[int] = frozenset()) -> list[Explanation]:
        """What is left to be told when the program, or the watch, is over.

        Args:
            moved: ids of what another optimizer has trained: that this one is at rest does it no harm.
        """
        looks = self.looks
        found = [self._resting] if looks.at_rest and looks.steps >= LASTING and not looks.held <= moved else []
        found += [self._waiting] if looks.is_untouched() else []
        return [*(self._told(late=True) if looks.suspicions else []), *(one for one in found if one is not None)]

    def _told(self, *, late: bool) -> list[Explanation]:
        found = []
        for one in list(self._explained):
            told = self._holds(one, late)
            if told is not None:
                found.append(told)
                self._explained.remove(one)
        return found

    def _holds(self, one: _Explained, late: bool) -> Explanation | None:
        """An explanation without what has changed since, or may change later; None if nothing is left of it."""
        report = one.explanation.report
        if report is None or not one.suspicions & self.looks.suspicions:
            return None
        passed = one.missing - self.looks.still_missing() - one.around
        now = self.looks.zero() if late else None
        findings = [
            f for f in report.findings
            if (late or not causes.may_pass(f.cause, f.variant)) and not _is_over(f, passed, one)
            and self._stands(f, one, now)
        ]  # fmt: skip
        if one.suspicions - {DEAD_TERM, WEIGHTLESS} == {MISSING} and passed == one.missing:
            findings = [f for f in findings if "term" in f.facts]
        return replace(one.explanation, report=replace(report, findings=tuple(findings))) if findings else None

    def _stands(self, finding: Finding, one: _Explained, zero: frozenset[int] | None) -> bool:
        """Whether no step since had a weight for a term that had none, or a gradient where all was zero.

        Args:
            zero: ids of the parameters whose gradient is zero to the end; None if the end is not yet.
        """
        if finding.variant == WEIGHTLESS and WEIGHTLESS in one.suspicions and self._weighed:
            return False
        mine = frozenset[int]().union(*(one.ids.get(name, frozenset()) for name in finding.parameters))
        is_zero = causes.cause(finding.cause).check == "nonzero"
        return not is_zero or zero is None or ZERO not in one.suspicions or bool(mine & zero)


def _is_over(finding: Finding, passed: frozenset[int], one: _Explained) -> bool:
    """Whether all parameters of a finding have had a gradient since."""
    mine = frozenset[int]().union(*(one.ids.get(name, frozenset()) for name in finding.parameters))
    return bool(mine) and mine <= passed
