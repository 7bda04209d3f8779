"""What to look at before one says that a run trains: the run-time checklist, each point answered by what was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gradkit.core import i18n, printable
from gradkit.core.records import Parameter

PASSED, FAILED, OPEN, NOTED = "passed", "failed", "open", "noted"
MARKS = {PASSED: "✓", FAILED: "✗", OPEN: "?", NOTED: "–"}


@dataclass(frozen=True)
class Check:
    """One point of the list.

    Attributes:
        key: which one: ``"value"``, ``"history"``, ``"backward"``, ``"reached"``, ``"finite"``, ``"frozen"``,
            ``"mode"`` or ``"findings"``; its sentence stands in the catalogue under ``check.<key>.<state>``.
        state: ``"passed"``, ``"failed"``, ``"open"`` (it could not be seen) or ``"noted"`` (worth knowing, no fault).
        facts: for the sentence.
    """

    key: str
    state: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def text(self, language: str | None = None) -> str:
        """Its sentence in ``language``."""
        facts = {k: printable.shortened(v) if isinstance(v, str) else v for k, v in self.facts.items()}
        return i18n.words(f"check.{self.key}.{self.state}", language, **facts)


def checks(
    rows: Sequence[Parameter], loss: str, grad_fn: str, error: str, findings: int, *, backward: bool
) -> tuple[Check, ...]:
    """The list for one run.

    Args:
        rows: the parameters.
        loss: its value as text.
        grad_fn: autograd's name of the node that made it, ``""`` if it has none.
        error: what the step or backward raised, ``""`` if nothing.
        findings: how many things were found that have to be changed.
        backward: whether backward had something to start from.

    Example:
        >>> [(c.key, c.state) for c in checks((), "0.5", "MeanBackward0", "", 0, backward=True)][:3]
        [('value', 'passed'), ('history', 'passed'), ('backward', 'passed')]
    """
    return (
        _value(loss, missing=not backward and not error),
        Check("history", PASSED if backward else FAILED, {"grad_fn": grad_fn}),
        _backward(error, backward=backward),
        _reached(rows, seen=backward and not error),
        _finite(rows, seen=backward and not error),
        _frozen(rows),
        _mode(rows),
        Check("findings", FAILED if findings else PASSED, {"n": findings}),
    )


def _value(loss: str, *, missing: bool) -> Check:
    if not loss:
        return Check("value", FAILED, {"value": None}) if missing else Check("value", OPEN)
    wrong = loss.strip().lower().lstrip("+-") in ("nan", "inf")
    return Check("value", FAILED if wrong else PASSED, {"value": loss})


def _backward(error: str, *, backward: bool) -> Check:
    if error:
        return Check("backward", FAILED, {"error": error.splitlines()[0]})
    return Check("backward", PASSED if backward else OPEN)


def _reached(rows: Sequence[Parameter], *, seen: bool) -> Check:
    wanted = [row for row in rows if row.should_train]
    reached = sum(row.reached for row in wanted)
    facts = {"n": reached, "all": len(wanted)}
    if not wanted:
        return Check("reached", NOTED)
    if not seen and reached:
        return Check("reached", OPEN, facts)
    return Check("reached", PASSED if reached == len(wanted) else FAILED, facts)


def _finite(rows: Sequence[Parameter], *, seen: bool) -> Check:
    norms = {row.name: row.grad_norm for row in rows if row.grad_norm is not None}
    if not seen or not norms:
        return Check("finite", OPEN)
    wrong = [name for name, norm in norms.items() if not math.isfinite(norm)]
    if wrong:
        return Check("finite", FAILED, {"n": len(wrong), "name": wrong[0]})
    low, high = min(norms.values()), max(norms.values())
    return Check("finite", PASSED, {"low": f"{low:.3g}", "high": f"{high:.3g}"})


def _frozen(rows: Sequence[Parameter]) -> Check:
    frozen = [row for row in rows if not row.requires_grad]
    facts = {"n": f"{sum(row.numel for row in frozen):,}", "all": f"{sum(row.numel for row in rows):,}"}
    wrong = [row.name for row in frozen if row.should_train]
    return Check("frozen", FAILED, {"name": wrong[0], "n": len(wrong)}) if wrong else Check("frozen", NOTED, facts)


def _mode(rows: Sequence[Parameter]) -> Check:
    still = [row for row in rows if row.should_train and not row.training]
    return Check("mode", NOTED, {"name": still[0].name, "n": len(still)}) if still else Check("mode", PASSED)
