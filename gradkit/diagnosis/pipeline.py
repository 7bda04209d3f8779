"""The straight line of a diagnosis: run, facts, cuts, experiments, evidence, causes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from gradkit.core import attempts, causes, introspection
from gradkit.core.attempts import Attempts
from gradkit.core.errors import GradkitError
from gradkit.core.records import Finding, Harmless, LossTerm, Meant, Untried
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis import behind_error, preconditions, rule_order
from gradkit.diagnosis.behind_error import Behind
from gradkit.diagnosis.experiments import alone, judge, plan
from gradkit.diagnosis.experiments.plan import Known, Lab
from gradkit.diagnosis.facts import cuts, first_run, hooks, inventory, model_facts, optimizers, seen, target_copies
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.diagnosis.facts.optimizers import Gap
from gradkit.diagnosis.rules import harmless, histories, no_loss, still_frozen, terms, unadded, unheld
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.load.step import Step
from gradkit.source import attributes, faults, imported
from gradkit.state import reachable, registered, warned
from gradkit.state.preserve import Preserved
from gradkit.tracing import ranks
from gradkit.tracing.after_backward import AfterBackward
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.ledger import Ledger
from gradkit.tracing.no_loss import EARLIER
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer
from gradkit.witness import listening

Told = TypeVar("Told")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a step is to be diagnosed.

    Attributes:
        given: the optimizers in use.
        steps: further optimizers that the step may let step.
        replay: whether the step may be run again.
        should_train: names or globs of the parameters that ought to learn; None: all that require grad.
        wished: these names are the user's own, and not read off an optimizer.
        callers: the user's frames around the call of ``diagnose``, innermost first.
        always: interventions of every run.
        look: handed the first run, while its tensors are alive; may raise to end the diagnosis.
        alone: no other rank takes part: none is waited for.
        whole: whether the step goes on to where the program's ends, asked once it was run: else what it leaves aside
            may have a use after it.
        missing: ``should_train`` named what the model does not have, and no longer does.
        late: what a later step of the program may do otherwise is told, too: who asks holds it back until then.
    """

    given: tuple[torch.optim.Optimizer, ...] = ()
    steps: tuple[torch.optim.Optimizer, ...] = ()
    replay: bool = True
    should_train: Sequence[str] | None = None
    wished: bool = True
    callers: Chain = ()
    always: tuple[Intervention, ...] = ()
    look: Callable[[FirstRun, Tracer], object] = lambda first, tracer: None
    alone: bool = False
    whole: Callable[[FirstRun], bool] = lambda first: True
    missing: bool = False
    late: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that a diagnosis found, as records: nothing of the step is alive in it.

    Attributes:
        label: what was diagnosed, for example ``"train.py:step"``.
        findings: what to change, most blocking first.
        evidence: what they rest on: the first run, the model, the cuts, and what the experiments showed.
        harmless: stop-gradients that were looked at and cost no parameter its gradient.
        untried: parts that broke off.
        apart: how many times the step was run with one thing alone mended of several that stand in one way, or past
            an error.
        judged: how many times the step was run to try changes.
        meant: by what is known which parameters are to learn.
        terms: what the losses of the step are put together from, of those that are sums.

    Example:
        >>> from gradkit.load import from_step
        >>> model = nn.Linear(2, 1)
        >>> step = from_step(lambda: model(torch.ones(1, 2)).detach().sum(), model)
        >>> found, left = run(step, Options(), lambda diagnosis: diagnosis)
        >>> [finding.rule for finding in found.findings], found.evidence.shown.made
        (['cut_lines.findings'], ('rerun',))
    """

    label: str
    findings: tuple[Finding, ...]
    evidence: Evidence
    harmless: tuple[Harmless, ...] = ()
    untried: tuple[Untried, ...] = ()
    apart: int = 0
    judged: int = 0
    meant: Meant = field(default_factory=Meant)
    terms: tuple[LossTerm, ...] = ()

    @property
    def runs(self) -> int:
        """How many times the step was run."""
        return 1 + self.evidence.reruns + self.apart + self.judged


def run(
    step: Step,
    options: Options,
    then: Callable[[Diagnosis], Told],
    tell: Callable[[str], None] = lambda _: None,
    waits: Callable[[str], None] | None = None,
) -> tuple[Told, tuple[str, ...]]:
    """Diagnose a step, and put back all that its runs changed.

    Args:
        then: handed the diagnosis while source is still read as it was when the step ran.
        tell: told the name of each stage as it begins; may raise to cancel.
        waits: told when another diagnosis has to end first.

    Returns:
        What ``then`` made of it, and what was raised where something could not be put back.

    Raises:
        GradkitError: the step cannot be run, or what it returns is nothing that a loss may have become.
    """
    outer = [step.model, *reachable.modules_of(introspection.ask(step.run, "step", step.run))]
    used = [module for one in outer for module in registered.each(one)]
    preconditions.check(step.model, used, options.given)
    preserved = Preserved(step.model, step.run, waits)
    together = [] if options.alone else used
    work = partial(_found, step, together, preserved, options, then, tell)  # a frame keeps what a lambda closes over
    # What the runs do to the model is none of the program's deeds.
    with faults.apart_from(sys.exc_info()[1]), listening.paused(), warned.untold():
        made = preserved.during(work)
    return made, tuple(map(attempts.words, preserved.left))


def _found(
    step: Step,
    together: Sequence[nn.Module],
    preserved: Preserved,
    options: Options,
    then: Callable[[Diagnosis], Told],
    tell: Callable[[str], None],
) -> Told:
    options, unknown = _without_unknown_names(step.model, options)
    want = inventory.wanted(step.model, options.should_train)
    with imported.looking(), ranks.ranks_together(together):
        first, ledger = _first(step, preserved, options, tell)
        if unknown is not None and not any(one.stray and one.birth >= 0 for one in first.trace.values):
            raise unknown
        diagnosis = _conclude(step, first, want, preserved, options, tell, ledger)
        if unknown is not None and not diagnosis.findings:
            raise unknown
        return then(diagnosis)


def _without_unknown_names(model: nn.Module, options: Options) -> tuple[Options, GradkitError | None]:
    """Names that the model does not have yet may be of what its forward makes, as the first run will tell."""
    try:
        inventory.wanted(model, options.should_train)
    except GradkitError as error:
        known = inventory.known_patterns(model, options.should_train or ())
        return replace(options, should_train=known or None, missing=True), error
    return options, None


def _first(step: Step, preserved: Preserved, options: Options, tell: Callable[[str], None]) -> tuple[FirstRun, Ledger]:
    found = reachable.optimizers_of(step.run, step.model)
    for one in (*options.given, *options.steps, *found):
        preserved.optimizer(one)
    tell("trace")
    steps = [
        one for one in (*options.given[1:], *options.steps, *found) if introspection.is_a(one, torch.optim.Optimizer)
    ]
    after = [AfterBackward(steps, preserved.parameters)] if steps else []
    tracer = Tracer(step.model, preserved, (*options.always, *after))
    with tracer.interventions.during():
        first = first_run.make(step, tracer, preserved, tell)
    options.look(first, tracer)
    gap = _gap_of(step, preserved, options.given, found, tracer, first.trace)
    idle = optimizers.idle_steps((one for heard in after for one in heard.found), preserved.parameters)
    first = replace(first, gap=gap, hooks=hooks.hooks_seen(tracer, preserved), idle=idle)
    preserved.rewind()
    return first, tracer.ledger


def _conclude(
    step: Step,
    first: FirstRun,
    want: Sequence[str],
    preserved: Preserved,
    options: Options,
    tell: Callable[[str], None],
    ledger: Ledger,
) -> Diagnosis:
    tries = Attempts(preserved.rewind)
    witnessed = seen.read(step.model)
    chains = (options.callers, *(call.chain for call in first.trace.calls))
    ran = dict.fromkeys((*witnessed.codes(), *(code for chain in chains for code, _ in chain)))
    imported.codes_ran(ran, attributes.codes(map(type, registered.each(step.model))))
    read = partial(_read, step, want, options, tries)
    facts, want, meant = read(first, ledger)
    facts = replace(facts, missing=options.missing)
    tell("cuts")
    verdict = cuts.find(first.trace, [name for name in want if name not in first.reached.norms])
    if not first.reached.error and first.mishap is None:
        verdict = cuts.past_functions(verdict, first.trace, first.graph.leaves)
    known = Known(first=first, facts=facts, verdict=verdict, replay=options.replay)
    lab = Lab(Session(step.run, step.model, preserved, options.always), ledger)
    known = plan.make(known, lab, tries, tell)
    tell("causes")
    evidence = Evidence(
        first=known.first,
        facts=known.facts,
        verdict=known.verdict,
        shown=known.shown,
        open=known.open,
        seen=witnessed,
        dead=known.dead,
    )
    if unadded.are_any(evidence):
        evidence = replace(evidence, rivals=optimizers.are_rivals(preserved.parameters.values()))
    found = [f for f in rule_order.findings(evidence) if options.late or f.variant not in causes.cause(f.cause).passing]
    found, apart = alone.told(found, known, lab, tries)
    gap = partial(_gap_at_the_end, step, preserved, options.given)
    behind = behind_error.find(found, evidence, known, lab, read, gap, tries) if options.whole(first) else Behind()
    found, meant = [*found, *behind.findings], behind.meant or meant
    findings, judged = judge.judged(found, known, lab, options.given, tries, tell, beyond=behind.known)
    evidence = behind.joined(evidence)
    evidence, meant = _without_what_is_left(evidence, findings, meant)
    nothing: tuple[Harmless, ...] = ()
    asides = tries.make("harmless", partial(harmless.harmless_stops, evidence, findings), nothing)
    table: tuple[LossTerm, ...] = tries.make("terms", partial(terms.rows, evidence), ())
    untried = (*_unread(evidence, findings), *tries.untried)
    return Diagnosis(
        label=step.label, findings=findings, evidence=evidence, harmless=asides, untried=untried,
        apart=apart + behind.runs, judged=judged, meant=meant, terms=table,
    )  # fmt: skip


def _read(
    step: Step, want: Sequence[str], options: Options, tries: Attempts, first: FirstRun, ledger: Ledger
) -> tuple[ModelFacts, Sequence[str], Meant]:
    """What is known of the model as a run used it; what should train in it, and by what that is known."""
    named = options.should_train is not None
    want, meant = optimizers.meant(want, first.gap, first.reached.norms, named=named)
    if not named and first.mishap is None:
        copies = target_copies.find(step.model, first.trace, want, first.reached.norms)
        want, meant = [name for name in want if name not in copies], replace(meant, copies=copies)
    facts, want = model_facts.read(
        step, first, want, options.should_train, options.callers, ledger, tries, wished=named and options.wished
    )
    return facts, want, meant


def _gap_of(
    step: Step, preserved: Preserved, given: Sequence[torch.optim.Optimizer], found: Sequence[torch.optim.Optimizer],
    tracer: Tracer, trace: Trace,
) -> Gap:  # fmt: skip
    """What the optimizers lack at the end of a run, told of the one that stands nearest to it."""
    live = optimizers.live_values(trace) if given else set[int]()
    parameters, every = preserved.parameters, (*given[1:], *found)
    ask = partial(
        optimizers.gap, step.model, parameters, ran=tracer.took_part(), learns=lambda p: tracer.ledger.known(p) in live
    )
    gap = ask(given=next(iter(given), None), in_reach=every)
    near = optimizers.nearest(given, parameters, gap.missing) if len(given) > 1 else None
    return gap if near is None or near is given[0] else ask(given=near, in_reach=(given[0], *every))


def _gap_at_the_end(
    step: Step, preserved: Preserved, given: Sequence[torch.optim.Optimizer], tracer: Tracer, trace: Trace
) -> Gap:
    """The same, with the optimizers that are looked for only when it is asked."""
    return _gap_of(step, preserved, given, reachable.optimizers_of(step.run, step.model), tracer, trace)


def _without_what_is_left(evidence: Evidence, findings: Sequence[Finding], meant: Meant) -> tuple[Evidence, Meant]:
    """The same, without asking those to learn that a library computes with for nothing and no finding names."""
    told = {name for finding in findings for name in finding.parameters}
    left = tuple(name for name in evidence.facts.left if name not in told)
    facts = replace(evidence.facts.without(left), left=left)
    idle, lacking = evidence.shown.influence.without, unheld.spared(evidence, told)
    kind = meant.optimizer or (evidence.first.gap.kind if lacking else "")
    still = () if findings else still_frozen.lines(evidence)
    before = () if findings else histories.used_from_before(evidence)
    meant = replace(
        meant, without_influence=idle, left=left, unheld=lacking, optimizer=kind, frozen=still, from_before=before,
        unadded=unadded.left(evidence, findings),
    )  # fmt: skip
    return replace(evidence, facts=facts), meant


def _unread(evidence: Evidence, findings: Sequence[Finding]) -> list[Untried]:
    """What the first run left unread: a graph, warnings, and the lines of a loss that was computed before it."""
    first = evidence.first
    unread = [Untried("graph", first.graph.error)] if first.graph.error else []
    unread += [Untried("warning", one) for one in dict.fromkeys(first.reached.warned)]
    if no_loss.is_earlier(evidence) and not any(one.variant == no_loss.LOSS for one in findings):
        unread.append(Untried(EARLIER, ""))
    return unread
