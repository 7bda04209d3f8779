"""Run the rules of ``diagnosis.rules`` in their order, and rank the findings that they make.

The most particular come first: what can be read off (frozen parameters, adapters), what cuts, what is not connected at
all, and last ``unknown``, which says what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gradkit.core import causes
from gradkit.core.records import LIKELY, PROVEN, READ, Finding
from gradkit.diagnosis.facts.optimizers import NEW, STALE
from gradkit.diagnosis.rules import (
    create_graph,
    cut_lines,
    errors,
    gradients,
    handed_out,
    idle,
    leaf_copies,
    loss,
    no_loss,
    setup,
    terms,
    unadded,
    unconnected,
    zeros,
)
from gradkit.diagnosis.rules.evidence import Evidence


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, most blocking first; ``()`` for a sound program."""
    told = _of_error(evidence)
    found = _of_run(evidence) if told is None else told
    return tuple(_complete(evidence, f) for f in found)


def are_of_an_error(found: Iterable[Finding]) -> bool:
    """Whether there are findings, and all of them are about an error that was raised."""
    rules = {one.rule for one in found}
    return rules == {f"errors.{errors.findings.__name__}"}


def besides(evidence: Evidence) -> tuple[Finding, ...]:
    """What a run past an error shows to be at fault as well: what can be told without a backward."""
    found = _ranked(_set_up_and_cut(evidence))
    found += _by(leaf_copies.flagged, evidence)
    found += _by(unconnected.findings, evidence, _explained(evidence, found))
    of_terms = _by(terms.findings, evidence, {f.location for f in found})
    found += [f for f in of_terms if f.variant not in causes.cause(f.cause).passing]
    found = [replace(f, doubt=f.doubt or READ) if _is_read(f) else f for f in found if causes.cause(f.cause).explains]
    return tuple(_complete(evidence, f) for f in found)


def _complete(evidence: Evidence, finding: Finding) -> Finding:
    """A finding with the size of what it is about, and with the other names that this has."""
    facts = {**finding.facts, **evidence.tied(finding.parameters)}
    return replace(finding, numel=evidence.numel(finding.parameters), facts=facts)


def _of_error(evidence: Evidence) -> list[Finding] | None:
    """What the error is about that autograd raised; None if the rules have to look at the run as at any other."""
    if evidence.mishap is None:
        return None
    told = _by(errors.findings, evidence)
    if told or evidence.trace.loss >= 0:
        return told or None
    return _by(cut_lines.unexplained, evidence, set())


def _of_run(evidence: Evidence) -> list[Finding]:
    found = _ranked(_set_up_and_cut(evidence))
    found += _by(leaf_copies.flagged, evidence)
    first = _by(no_loss.findings, evidence, {p for f in found for p in f.parameters})
    found = [*first, *no_loss.noted(evidence, found)]
    found += _by(unconnected.findings, evidence, _explained(evidence, found))
    for rule in (
        gradients.dropped_findings, handed_out.findings, gradients.intermediate_findings, errors.scaler_findings,
        gradients.hook_findings, gradients.zero_findings, idle.findings,
    ):  # fmt: skip
        found += _by(rule, evidence)
    found += _by(unconnected.built, evidence, {f.location for f in found})
    named = {f.location for f in found}
    found += [f for f in _by(create_graph.dead_terms, evidence) if f.location not in named]
    found += [f for f in _by(zeros.findings, evidence) if f.location not in {one.location for one in found}]
    found += _by(terms.findings, evidence, {f.location for f in found})
    found += _by(unadded.findings, evidence, tuple(found))
    found += _by(loss.findings, evidence)
    found += _by(cut_lines.unexplained, evidence, {p for f in found for p in f.parameters})
    return [replace(f, doubt=f.doubt or READ) if _is_read(f) else f for f in found]


def _set_up_and_cut(evidence: Evidence) -> list[Finding]:
    """What the setup is at fault for, then the cuts; last, an optimizer that lacks no more than what a cut replaces."""
    set_up, cuts = _by(setup.findings, evidence), _by(cut_lines.findings, evidence)
    cut = {name for one in cuts if one.proof == PROVEN for name in one.parameters}
    moved = evidence.first.gap.reason in (NEW, STALE)
    late = [one for one in set_up if moved and cut.issuperset(one.parameters) and _is_of_an_optimizer(one)]
    return [*(one for one in set_up if one not in late), *cuts, *late]


def _explained(evidence: Evidence, found: Iterable[Finding]) -> set[str]:
    """The parameters that some findings explain. What is frozen and was asked for by name may take no part besides."""
    asked = evidence.facts.wished
    return {p for f in found if not asked or causes.cause(f.cause).rank != causes.LAST for p in f.parameters}


def _is_of_an_optimizer(finding: Finding) -> bool:
    return causes.cause(finding.cause).check == "optimizer"


def _by(rule: Callable[..., Iterable[Finding]], *given: Any) -> list[Finding]:
    """The findings of one rule, each with the name of the rule."""
    name = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
    return [replace(finding, rule=name) for finding in rule(*given)]


def _is_read(finding: Finding) -> bool:
    """Whether a finding is likely for want of anything that a rerun could undo."""
    return finding.proof == LIKELY and causes.cause(finding.cause).explains


def _ranked(found: Iterable[Finding]) -> list[Finding]:
    """What is to be mended first: a flag that hides the error; last of all, what is frozen by a flag, and then an
    optimizer that lacks no more than that."""
    found = list(found)
    frozen = {name for one in found if causes.cause(one.cause).rank == causes.LAST for name in one.parameters}

    def rank(finding: Finding) -> int:
        follows = _is_of_an_optimizer(finding) and frozen.issuperset(finding.parameters)
        return causes.LAST + 1 if follows else causes.cause(finding.cause).rank

    return sorted(found, key=rank)
