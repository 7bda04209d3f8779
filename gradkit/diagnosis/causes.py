"""Run the rules of ``diagnosis.rules`` in their order, and rank the findings that they make.

The most particular come first: what can be read off (frozen parameters, adapters), what cuts, what is not connected at
all, and last ``unknown``, which says what was seen. The rules for a custom Function that drops a gradient, and for a
loss that is no scalar or has nan for a gradient, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType
from typing import Any

from gradkit.core import causes
from gradkit.core.operations import JOINS
from gradkit.core.records import LIKELY, OBSERVED, READ, Finding
from gradkit.core.trace import Call, Chain
from gradkit.diagnosis.rules import cut_lines, errors, gradients, no_loss, setup, unconnected
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import locations
from gradkit.source import setup as source_setup


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, most blocking first; ``()`` for a sound program."""
    if evidence.mishap is not None:
        told = _by(errors.findings, evidence)
        if told or evidence.trace.loss < 0:
            told = told or _by(_unexplained, evidence, set())
            return tuple(replace(f, numel=evidence.numel(f.parameters)) for f in told)
    found = sorted([*_by(setup.findings, evidence), *_by(cut_lines.findings, evidence)], key=_rank)
    found = [
        *_by(no_loss.findings, evidence, {p for f in found for p in f.parameters}),
        *no_loss.noted(evidence, found),
    ]
    found += _by(unconnected.findings, evidence, {p for f in found for p in f.parameters})
    for rule in (_dropped, errors.scaler_findings, gradients.hook_findings, gradients.zero_findings):
        found += _by(rule, evidence)
    found += _by(unconnected.built, evidence, {f.location for f in found})
    named = {f.location for f in found}
    found += [f for f in _by(unconnected.dead_terms, evidence) if f.location not in named]
    found += _by(_loss, evidence)
    found += _by(_unexplained, evidence, {p for f in found for p in f.parameters})
    found = [replace(f, doubt=f.doubt or READ) if _is_read(f) else f for f in found]

    return tuple(replace(f, numel=evidence.numel(f.parameters)) for f in found)


def _by(rule: Callable[..., Iterable[Finding]], *given: Any) -> list[Finding]:
    """The findings of one rule, each with the name of the rule."""
    name = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
    return [replace(finding, rule=name) for finding in rule(*given)]


def _is_read(finding: Finding) -> bool:
    """Whether a finding is likely for want of anything that a rerun could undo."""
    return finding.proof == LIKELY and causes.cause(finding.cause).explains


def _rank(finding: Finding) -> int:
    """What is to be mended first: a flag that hides the error; last of all, what is frozen by a flag."""
    return causes.cause(finding.cause).rank


def _dropped(e: Evidence) -> list[Finding]:
    """Custom Functions whose backward returns None, or zeros written out, for what should learn."""
    found = []
    zero = {n for n in e.wanted if e.reached.norms.get(n) == 0}
    for one in e.shown.gradients.dropped:
        names = tuple(n for n in (zero if one.zeros else e.verdict.unexplained) if n in one.parameters)
        spot = source_setup.returned(one.code, one.position, zeros=one.zeros)
        if names and (spot is not None or not one.zeros):
            found.append(Finding("custom_function", spot, (), OBSERVED, names, call=one.name))
    return found


def _loss(e: Evidence) -> list[Finding]:
    """Faults of the loss itself: several elements, or a gradient that is nan."""
    found = []
    if e.reached.elements != 1 and not e.starved:
        maker = e.trace.values[e.trace.loss].maker if e.trace.loss >= 0 else -1
        chain = _reducing(e, e.trace.calls[maker]) if maker >= 0 else ()
        spot = locations.innermost(chain)
        facts = {"elements": str(e.reached.elements), "shape": str(e.trace.values[e.trace.loss].shape)}
        found.append(Finding("non_scalar", spot, tuple(called_by(chain)), OBSERVED, facts=facts))
    if e.open.not_finite:
        call = e.trace.calls[e.shown.gradients.spoiler] if 0 <= e.shown.gradients.spoiler < len(e.trace.calls) else None
        spot = locations.innermost(call.chain) if call is not None else None
        notes = called_by(call.chain) if call is not None else []
        proof, name = (OBSERVED, call.name) if call is not None else (LIKELY, "")
        found.append(Finding("nan_gradient", spot, tuple(notes), proof, e.open.not_finite, call=name))
    return found


def _reducing(e: Evidence, maker: Call) -> Chain:
    """Where a loss of several elements ought to have been reduced: where it was made.

    A wrapper in the manner of ``DataParallel`` calls the whole model several times, and joins whatever that returns:
    it has no say in what that is, and the line that called the wrapper is meant.
    """
    made = [one for n in maker.inputs if (one := _returned(e, n, maker.module)) is not None]
    codes = set.intersection(*({code for code, _ in one.chain} for one in made)) if made else set()
    at = next((i for i, (code, _) in enumerate(maker.chain) if code in codes and _wraps(code)), -1)
    paths = {e.trace.modules[one.module] for one in made}
    whole = len(paths) == 1 and all(_within(name, path) for name in e.wanted for path in paths)
    replicas = whole and len(made) == len(maker.inputs) > 1
    return maker.chain[at + 1 :] if maker.name in JOINS and replicas and at >= 0 else maker.chain


def _returned(e: Evidence, number: int, module: int) -> Call | None:
    """The call in another module that handed a value to this one, as it was or in another shape."""
    maker = e.trace.values[number].maker
    while maker >= 0 and e.trace.calls[maker].module == module and len(e.trace.calls[maker].inputs) == 1:
        maker = e.trace.values[e.trace.calls[maker].inputs[0]].maker
    call = e.trace.calls[maker] if maker >= 0 else None
    return call if call is not None and call.module not in (-1, module) else None


def _wraps(code: CodeType) -> bool:
    return code.co_name in ("__call__", "forward") and code.co_varnames[:1] == ("self",)


def _within(parameter: str, module: str) -> bool:
    return not module or parameter.startswith(f"{module}.")


def _unexplained(e: Evidence, told: set[str]) -> list[Finding]:
    told = told.union(e.frozen)
    names = [n for n in e.verdict.unexplained if n not in told]
    facts = {"error": e.reached.error.splitlines()[0]} if e.reached.error else {}
    if not names and not facts:
        return []
    return [Finding("unknown", None, (), LIKELY, tuple(names), facts=facts)]
