"""What is at fault besides an error that stops the step: the run past it, diagnosed as a run that did not raise.

Only what such a run shows for certain is asked of it: what was set up, what cuts, what takes no part. Left out is what
the error is about itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gradkit.core.attempts import Attempts
from gradkit.core.records import BEHIND, LIKELY, PROVEN, Finding, Location, Meant
from gradkit.core.trace import Trace
from gradkit.diagnosis import rule_order
from gradkit.diagnosis.experiments import past_error, plan
from gradkit.diagnosis.experiments.past_error import PassOver, Past
from gradkit.diagnosis.experiments.plan import Known, Lab, Shown
from gradkit.diagnosis.experiments.undo_cuts import Rerun, Revived
from gradkit.diagnosis.facts import cuts, dead_terms
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.tracing import autograd_errors, ranks
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.ledger import Ledger

Read = Callable[[FirstRun, Ledger], tuple[ModelFacts, Sequence[str], Meant]]


@dataclass(frozen=True)
class Behind:
    """What lies behind an error.

    Attributes:
        findings: those that are to be told besides, in the order to mend them.
        known: what is known of the run past the error; None if there was none, or nothing was found.
        evidence: what the findings rest on.
        meant: by what is known which parameters are to learn.
        runs: how many times the step was run for it.
    """

    findings: tuple[Finding, ...] = ()
    known: Known | None = None
    evidence: Evidence | None = None
    meant: Meant | None = None
    runs: int = 0

    def joined(self, evidence: Evidence) -> Evidence:
        """The evidence of an error, with the run past it where something was found in that: it goes to the end."""
        past = self.evidence
        if past is None:
            return evidence
        first = replace(evidence.first, trace=past.trace, graph=past.first.graph, terms=past.first.terms)
        shown = replace(evidence.shown, rerun=past.shown.rerun, terms=past.shown.terms)
        return replace(evidence, first=first, facts=past.facts, verdict=past.verdict, dead=past.dead, shown=shown)


def find(
    findings: Sequence[Finding], evidence: Evidence, known: Known, lab: Lab, read: Read, gap: past_error.Lacking,
    tries: Attempts,
) -> Behind:  # fmt: skip
    """What else is at fault where all findings are about an error.

    Args:
        findings: of that error.
        read: reads the model, as ``model_facts.read`` does.
        gap: tells what the optimizers lack at the end of a run.
    """
    if not known.replay or not rule_order.are_of_an_error(findings) or not _may_go_on(evidence):
        return Behind()
    past = tries.make("mend", partial(past_error.run, lab.session, known, gap=gap), None)
    if past is None:
        return Behind(runs=1)
    facts, want, meant = read(past.first, past.ledger)
    verdict = cuts.find(past.first.trace, [name for name in want if name not in past.first.reached.norms])
    beyond = Known(first=past.first, facts=facts, verdict=verdict, replay=True)
    beyond, shown = _with_experiments(beyond, past, known, lab, tries)
    told = Evidence(
        first=beyond.first, facts=facts, verdict=verdict, shown=beyond.shown, seen=evidence.seen, dead=beyond.dead
    )
    found = [one for one in rule_order.besides(told) if not _is_told(one, findings, told, evidence)]
    runs = 1 + beyond.shown.reruns
    if not found:
        return Behind(runs=runs)
    return Behind(tuple(_marked(one, shown) for one in found), beyond, told, meant, runs)


def _may_go_on(evidence: Evidence) -> bool:
    mishap = evidence.mishap
    return mishap is not None and past_error.can_pass(mishap) and not ranks.several()


def _with_experiments(beyond: Known, past: Past, known: Known, lab: Lab, tries: Attempts) -> tuple[Known, bool]:
    """What is known once cuts were undone and what holds old values was sought; and whether a backward was run."""
    shown, seen, mishap = Shown(), False, known.first.mishap
    undone = [*beyond.verdict.cuts, *(cut for one in beyond.dead for cut in one.verdict.cuts)]
    if undone:
        ask = partial(past_error.rerun, lab.session, known, undone)
        rerun, seen = tries.make("replay", ask, (Rerun(None, 1), False))
        shown = replace(shown, rerun=rerun, terms=_of_terms(beyond, rerun), made=("rerun",))
    if beyond.verdict.unconnected and mishap is not None:
        over = PassOver(mishap, known.first.trace)
        inside = Lab(replace(lab.session, always=(*lab.session.always, over)), past.ledger)
        kept = tries.make("stale", partial(plan.without_what_was_kept, beyond, inside), shown.caches)
        shown = replace(shown, caches=kept, made=(*shown.made, "caches"))
    return replace(beyond, shown=shown), seen


def _of_terms(beyond: Known, rerun: Rerun) -> Revived:
    if rerun.trace is None:
        return Revived()
    return Revived(dead_terms.revived(beyond.dead, beyond.first.trace, rerun.trace), rerun)


def _marked(one: Finding, shown: bool) -> Finding:
    """A finding that says where it lies; proven is what a backward has shown."""
    one = replace(one, cuts=(), facts={**one.facts, BEHIND: "1"})
    if one.proof != PROVEN or shown:
        return one
    return replace(one, proof=LIKELY, doubt=BEHIND, revived=(), reruns=0)


# -- what the error is about itself -----------------------------------------------------------------------------------


def _is_told(one: Finding, findings: Iterable[Finding], beyond: Evidence, evidence: Evidence) -> bool:
    """Whether a finding is at a line of the error's own, of its parameters, or what the error comes from."""
    places = {(spot.file, spot.line) for other in findings for spot in _places(other)}
    if one.location is not None and (one.location.file, one.location.line) in places:
        return True
    named = {name for other in findings for name in other.parameters}
    if one.parameters and named.issuperset(one.parameters):
        return True
    asked = _asked(evidence.trace, evidence.mishap) if evidence.mishap is not None else frozenset()
    known = {cut.key: cut.calls for cut in beyond.verdict.cuts}
    return any(asked.intersection(known.get(key, ())) for key in one.cuts)


def _places(one: Finding) -> list[Location]:
    notes = [note.location for note in one.notes if note.kind != "called_by"]
    return [spot for spot in (one.location, *notes) if spot is not None]


def _asked(trace: Trace, mishap: AutogradError) -> frozenset[int]:
    """The calls on whose ways a derivative was asked for that is not to be had: what cuts there made the error."""
    into = {call.index for call in trace.behind([mishap.asked])} if mishap.asked >= 0 else set[int]()
    if mishap.kind == autograd_errors.NO_HISTORY:
        return frozenset(into)
    if mishap.kind == autograd_errors.NOT_ASKED:
        return frozenset(call.index for call in trace.behind(mishap.inputs))
    if mishap.kind == autograd_errors.UNUSED:
        return frozenset(into & {call.index for call in trace.ahead(mishap.inputs)})
    return frozenset()
