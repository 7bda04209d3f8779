"""Silent faults: the step is run again at the first suspicion, and what that finds is told once it has lasted.

Look early, speak late. The batch is in hand in the step that is suspicious and gone afterwards; but a gradient that is
missing or zero in one step may be there in the next, as a LoRA adapter's first factor, an expert or a head by turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import causes
from gradkit.core.records import Finding
from gradkit.live import surroundings
from gradkit.live.looks import LASTING, MISSING, Looks, held_by

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation


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

    @property
    def is_explained(self) -> bool:
        """Whether something was found that has not been told yet."""
        return bool(self._explained)

    def look(self, optimizer: Optimizer, frame: FrameType, after_step: bool, model: nn.Module | None) -> None:
        """Look, and run the step again if something is suspicious that was not so before.

        Args:
            optimizer: the one that steps.
            frame: what called it.
            after_step: it has stepped, by a closure that went backward.
            model: the model, if that is known.
        """
        looks, about = self.looks, tuple[torch.Tensor, ...]()
        found = looks.look()
        if looks.steps == 1 or (self._around and looks.steps <= LASTING):
            self._around, about = surroundings.look(frame, optimizer, model, self._around)
            found = looks.suspect(found | self._around)
        if found - self._tried:
            self._tried |= found
            self._explain(optimizer, frame, after_step, found, about)

    def _explain(
        self, optimizer: Optimizer, frame: FrameType, after_step: bool, found: frozenset[str],
        about: tuple[torch.Tensor, ...],
    ) -> None:  # fmt: skip
        from gradkit.live import explain

        missing = [one for one in held_by(optimizer) if id(one) in self.looks.missing] + list(about)
        explanation = explain.of_running(frame, optimizer, after_step=after_step, missing=missing)
        report = explanation.report if explanation is not None else None
        if explanation is None or report is None or report.healthy or not report.findings:
            return
        if report.origin is None or report.origin.reproduced:  # else it is not this program's fault that was seen
            ids = surroundings.ids_of([row.name for row in report.parameters], frame, {id(one) for one in missing})
            lost = frozenset(map(id, missing))
            self._explained.append(_Explained(found, explanation, lost, frozenset(map(id, about)), ids))

    def ripe(self) -> list[Explanation]:
        """What has lasted for some looks in a row, and that no later step is likely to change; each once."""
        if self.looks.lasted < LASTING:
            return []
        return self._told(late=False)

    def ended(self) -> list[Explanation]:
        """What is left to be told when the program, or the watch, is over."""
        return self._told(late=True) if self.looks.suspicions else []

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
        findings = [
            f for f in report.findings if (late or not causes.cause(f.cause).may_pass) and not _is_over(f, passed, one)
        ]
        if one.suspicions == {MISSING} and passed == one.missing:
            return None
        return replace(one.explanation, report=replace(report, findings=tuple(findings))) if findings else None


def _is_over(finding: Finding, passed: frozenset[int], one: _Explained) -> bool:
    """Whether all parameters of a finding have had a gradient since."""
    mine = frozenset[int]().union(*(one.ids.get(name, frozenset()) for name in finding.parameters))
    return bool(mine) and mine <= passed
