"""Whether a step can train, point by point: the diagnosis, read as a checklist that a person or a CI can act on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from gradkit.api import walk as steps_taken
from gradkit.api.diagnose import diagnose
from gradkit.core import printable
from gradkit.core.causes import failing
from gradkit.core.errors import letting_go
from gradkit.core.i18n import columns, speaking, words
from gradkit.core.records import Parameter
from gradkit.diagnosis.experiments.train_steps import Walk, walked
from gradkit.diagnosis.facts import inventory, optimizers
from gradkit.load.step import Step, step_of
from gradkit.report import breakdown
from gradkit.report.checklist import FAILED, MARKS, NOTED, OPEN, PASSED, Check
from gradkit.report.report import Report
from gradkit.state import registered
from gradkit.state.reachable import optimizers_of

GROUPS = {
    "forward": ("value", "requires_grad", "grad_fn"),
    "backward": ("backward",),
    "gradients": ("reached", "finite", "nonzero", "untouched"),
    "optimizer": ("optimizer",),
    "parameters": ("frozen", "loose", "mode"),
    "diagnosis": ("findings",),
}
NAMED = 5


@dataclass(frozen=True)
class Holding:
    """What the optimizers of a step hold.

    Attributes:
        kinds: their class names; ``()`` if none was seen.
        missing: names of the parameters that should train and that none of them holds.
    """

    kinds: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The run-time checklist of one step. It is true if every check passed, so that ``assert`` takes it as it is.

    Attributes:
        report: the diagnosis that the checks are read from.
        holding: what the optimizers hold.
        frozen: names of the parameters that must not train.
        walk: what some steps of training have shown; None if none was asked for.

    Example:
        >>> from gradkit.core.records import Picture
        >>> row = Parameter("fc.weight", (2,), 2, "float32", True, True, True, True, True, 0.5, "Linear")
        >>> done = Verification(Report((), (row,), Picture((), (), (), ()), loss="0.5", grad_fn="MeanBackward0"))
        >>> bool(done), [check.key for check in done.checks if check.state == "open"]
        (True, ['optimizer'])
    """

    report: Report
    holding: Holding = Holding()
    frozen: frozenset[str] = frozenset()
    walk: Walk | None = None

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every point, in the order of ``GROUPS``, and those of the steps; its sentence is ``check.text(language)``."""
        found = {
            check.key: check for check in (*self.report.checklist(), *_further(self.report, self.holding, self.frozen))
        }
        further = steps_taken.checks(self.walk, self.frozen) if self.walk is not None else ()
        return (*(found[key] for keys in GROUPS.values() for key in keys), *further)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The points that failed; ``()`` if the step can train."""
        return tuple(check for check in self.checks if check.state == FAILED)

    @property
    def passed(self) -> bool:
        """Whether no point failed."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.passed

    def counts(self) -> dict[str, int]:
        """Elements: ``trainable`` and ``all``, each tensor once."""
        rows = [row for row in self.report.parameters if not row.same_as]
        return {"trainable": sum(row.numel for row in rows if row.requires_grad), "all": sum(row.numel for row in rows)}

    def verdict(self, language: str | None = None) -> str:
        """The outcome in one sentence."""
        n, every = len(self.failed), len(self.checks)
        return words("verify.failed", language, n=n, all=every) if n else words("verify.passed", language)

    def text(self, language: str | None = None, depth: int = 1) -> str:
        """The list for a terminal, with the parameters by module, the findings' places, and the verdict.

        Args:
            language: ``"en"``, ``"zh"``, or None for the one in use.
            depth: how many steps the table of modules goes down.
        """
        with speaking(language):
            told = [words("verify.title", label=self.report.label), *self._groups(depth), "", self.verdict()]
            return printable.fitted(printable.inert("\n".join(told) + "\n"))

    def _groups(self, depth: int) -> Iterator[str]:
        checks = {check.key: check for check in self.checks}
        groups = GROUPS if self.walk is None else {**GROUPS, "steps": steps_taken.KEYS}
        for group, keys in groups.items():
            yield from ("", words(f"verify.{group}"))
            yield from (f"  {MARKS[checks[key].state]} {checks[key].text()}" for key in keys)
            yield from (f"    {line}" for line in self._below(group, depth))

    def _below(self, group: str, depth: int) -> Iterator[str]:
        if group == "gradients":
            starved = [row.name for row in self.report.parameters if row.should_train and not row.reached]
            if starved:
                yield words("verify.without", names=_listed(starved))
        elif group == "parameters":
            yield from self._modules(depth)
        elif group == "diagnosis":
            for section in self.report.sections():
                yield words("report.told", name=section.place, text=section.title)
        elif group == "steps" and self.walk is not None:
            yield from steps_taken.lines(self.walk)

    def _modules(self, depth: int) -> Iterator[str]:
        counts = self.counts()
        part = 100 * counts["trainable"] / counts["all"] if counts["all"] else 0.0
        yield words("verify.trainable", **{k: f"{n:,}" for k, n in counts.items()}, percent=f"{part:.4f}")
        found = breakdown.shares(self.report.parameters, self.report.picture.modules, depth)
        told = [(printable.fitted("  " * s.level + breakdown.name(s)), s, f"{s.trainable:,}") for s in found]
        wide = max((columns(name) for name, *_ in told), default=0)
        long = max((len(number) for *_, number in told), default=0)
        for name, share, number in told:
            mode = printable.fitted(words(f"breakdown.{share.mode}"))
            remark = "" if share.should_train else words("verify.should_be_0")
            mark = "⚠ " if share.loose else ""
            row = f"{name}{' ' * (wide - columns(name))}  {mode}{' ' * (5 - columns(mode))}  {number:>{long}}"
            yield f"{row}  {mark}{remark}".rstrip()

    def data(self, depth: int = 1) -> dict[str, Any]:
        """The same as plain data, for scripts: equal in every language but for each check's ``text``."""
        listed = [
            {"key": c.key, "state": c.state, "facts": {k: str(v) for k, v in c.facts.items()}, "text": c.text()}
            for c in self.checks
        ]
        found = breakdown.shares(self.report.parameters, self.report.picture.modules, depth)
        return {
            "passed": self.passed,
            "label": self.report.label,
            "checks": listed,
            "parameters": {**self.counts(), "modules": [asdict(share) for share in found]},
            "optimizers": list(self.holding.kinds),
            "diagnosis": self.report.data(),
            "steps": None if self.walk is None else asdict(self.walk),
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        failed = ", ".join(check.key for check in self.failed)
        return f"<gradkit.Verification: {f'failed: {failed}' if failed else 'passed'}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": f"<pre>{printable.entities(self.text())}</pre>"}


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(printable.name, names[:NAMED]))
    more = len(names) - NAMED
    return words("report.and_more", names=shown, n=more) if more > 0 else shown


def _further(report: Report, holding: Holding, frozen: frozenset[str]) -> Iterator[Check]:
    """The points that a verification has and a report's own checklist has not."""
    rows = report.parameters
    yield Check("requires_grad", PASSED if report.backward else FAILED)
    yield _grad_fn(report)
    yield _nonzero(report)
    still = [row for row in rows if not row.requires_grad]
    touched = [row.name for row in still if row.reached and row.grad_norm is not None]
    yield Check("untouched", NOTED) if not still else _answer("untouched", touched, len(still))
    yield _optimizer(report, holding)
    yield _loose(rows, frozen)


def _loose(rows: Sequence[Parameter], frozen: frozenset[str]) -> Check:
    """What may train beside what should: a fault only where it was said that it must not."""
    free = [row for row in rows if row.requires_grad and not row.same_as]
    wrong = [row for row in free if row.name in frozen]
    told = wrong or [row for row in free if not row.should_train]
    facts = {"n": f"{sum(row.numel for row in told):,}", "name": told[0].name} if told else {}
    return Check("loose", FAILED if wrong else NOTED if told else PASSED, facts)


def _answer(key: str, wrong: Sequence[str], every: int) -> Check:
    facts: dict[str, object] = {"n": len(wrong), "name": wrong[0]} if wrong else {"n": every}
    return Check(key, FAILED if wrong else PASSED, facts)


def _grad_fn(report: Report) -> Check:
    made = report.grad_fn.endswith(("Backward", *(f"Backward{n}" for n in range(10))))
    if made:
        return Check("grad_fn", PASSED, {"grad_fn": report.grad_fn})
    return Check("grad_fn", FAILED)


def _nonzero(report: Report) -> Check:
    """Exactly zero is a fault only where nothing else arrives, or where the diagnosis says so: a fresh adapter's first
    factor has a zero gradient, and rightly."""
    norms = {row.name: row.grad_norm for row in _wanted(report) if row.grad_norm is not None}
    zero = [name for name, norm in norms.items() if norm == 0]
    if not norms or report.error:
        return Check("nonzero", OPEN)
    found = [finding for finding in report.findings if finding.cause in failing("nonzero")]
    blamed = {name for finding in found for name in finding.parameters}
    facts = {"n": len(zero), "name": zero[0]} if zero else {}
    state = PASSED if not zero else FAILED if len(zero) == len(norms) or blamed.intersection(zero) else NOTED
    return Check("nonzero", state, facts)


def _optimizer(report: Report, holding: Holding) -> Check:
    if not holding.kinds:
        return Check("optimizer", OPEN)
    kinds = ", ".join(holding.kinds)
    if not holding.missing:
        return Check("optimizer", PASSED, {"kinds": kinds, "n": len(_wanted(report))})
    certain = any(finding.cause in failing("optimizer") for finding in report.findings)
    facts = {"kinds": kinds, "n": len(holding.missing), "name": holding.missing[0]}
    return Check("optimizer", FAILED if certain else NOTED, facts)


def _wanted(report: Report) -> list[Parameter]:
    return [row for row in report.parameters if row.should_train]


@letting_go
def verify(  # noqa: PLR0913  what a person may say of a step
    model_or_step: Any,
    batch: Any = None,
    *,
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    should_train: Sequence[str] | None = None,
    frozen: Sequence[str] = (),
    replay: bool = True,
    steps: int = 0,
) -> Verification:
    """Check that a step can train: its loss, backward, every gradient, the optimizer, what is frozen.

    Args:
        model_or_step: as for :func:`gradkit.diagnose`, and so are ``batch``, ``model``, ``loss``, ``should_train`` and
            ``replay``.
        frozen: names or globs of the parameters that must not train: none of them may require grad.
        optimizer: the one that trains the model, or a list of several; without it, those that the step reaches. It
            fails if the diagnosis finds that what it lacks should learn, as all that ``should_train`` names. What else
            it lacks, as the body behind a probe that nobody froze, is noted.
        steps: how many steps of training to make as well, with this optimizer, or those that the step reaches, or Adam:
            how the loss goes, what moves, and what stays as it is, bit by bit. All is put back.

    Returns:
        A record that is true if nothing failed: ``assert gradkit.verify(step)``.

    Raises:
        GradkitError: the step cannot be run, or returns no loss; or a pattern matches no parameter.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> net.bias.requires_grad_(False)
        Parameter containing:
        ...
        >>> done = verify(net, torch.ones(3, 2), loss=lambda output: output.sum(), should_train=["weight"])
        >>> done.passed, done.counts()
        (True, {'trainable': 2, 'all': 3})
    """
    step = step_of(model_or_step, batch, model, loss)
    report = diagnose(step, optimizer=optimizer, should_train=should_train, replay=replay)
    still = frozenset(inventory.wanted(step.model, frozen)) if frozen else frozenset()
    wanted = [row.name for row in report.parameters if row.should_train and not row.same_as]
    given = optimizers.several(optimizer)
    walk = walked(step, wanted, steps, given) if steps > 0 else None
    return Verification(report, _holding(step, report, given), still, walk)


def _holding(step: Step, report: Report, given: Sequence[torch.optim.Optimizer]) -> Holding:
    """What the given optimizers hold; without one, those that the step can reach and that hold any of the model's."""
    wanted = {row.name for row in report.parameters if row.should_train}
    named = {n: p for n, p in registered.parameters(step.model, twice=True) if n in wanted}
    ours = {id(parameter) for parameter in named.values()}
    reachable = optimizers_of(step.run, step.model)
    found = list(given) or [one for one in reachable if ours & optimizers.holding([one])]
    covered = optimizers.holding(found)
    missing = tuple(name for name, parameter in named.items() if id(parameter) not in covered)
    return Holding(tuple(type(one).__name__ for one in found), missing if found else ())
