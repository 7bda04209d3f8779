"""The experiments of a diagnosis, in their order: when each is made, and what it runs.

A new experiment is a new line in ``EXPERIMENTS`` and a field of ``Shown``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from gradkit.core.attempts import Attempts
from gradkit.diagnosis.experiments import (
    before_derivatives,
    caches,
    influence,
    intermediates,
    later_step,
    lost_gradients,
    numbers,
    returns,
    undo_cuts,
    undo_errors,
    without_hooks,
    zero_gradients,
)
from gradkit.diagnosis.experiments.caches import Caches, CacheSearch
from gradkit.diagnosis.experiments.influence import Influence
from gradkit.diagnosis.experiments.intermediates import Kept
from gradkit.diagnosis.experiments.later_step import LaterStep
from gradkit.diagnosis.experiments.lost_gradients import ZeroGradient
from gradkit.diagnosis.experiments.numbers import Numbers
from gradkit.diagnosis.experiments.returns import Returned
from gradkit.diagnosis.experiments.undo_cuts import Rerun, Revived
from gradkit.diagnosis.experiments.undo_errors import RerunWithout
from gradkit.diagnosis.experiments.without_hooks import Unhooked
from gradkit.diagnosis.facts import cuts, dead_terms
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.diagnosis.facts.dead_terms import DeadTerm
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.tracing import autograd_errors, backward
from gradkit.tracing.ledger import Ledger
from gradkit.tracing.no_loss import EARLIER, NOTHING
from gradkit.tracing.recomputed import Recomputed, Recomputing
from gradkit.tracing.run import Session


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the experiments showed, each in the field of its name; as it stands here, if it was not made.

    Attributes:
        mended: the run without autograd's error.
        rerun: the run with the cuts undone.
        histories: what holds values whose history is from before the step, where the error speaks of such.
        returns: the run that watches where what took the place of the loss was returned.
        numbers: the runs with other numbers in the place of those that left torch.
        caches: the runs without what was kept from before.
        later: the runs of two steps in a row.
        influence: the runs with other values of what a loss made of derivatives may not depend on.
        hooks: the runs with the user's hooks made transparent.
        refused: likewise, for hooks whose result torch refused.
        gradients: the runs that ask where a gradient becomes nan, nothing or zero.
        recomputed: the run that watches what the backwards of custom Functions compute.
        intermediates: the run with the history of what custom Functions compute on the way and keep.
        zeros: the runs that ask why a gradient is zero in this run, and whether it stays so.
        terms: the run with the dead terms of the loss given back what was cut from them.
        made: the names of those that were made.
    """

    mended: RerunWithout = field(default_factory=RerunWithout)
    rerun: Rerun = field(default_factory=Rerun)
    histories: Caches = field(default_factory=Caches)
    returns: Returned = field(default_factory=Returned)
    numbers: Numbers = field(default_factory=Numbers)
    caches: Caches = field(default_factory=Caches)
    later: LaterStep = field(default_factory=LaterStep)
    influence: Influence = field(default_factory=Influence)
    hooks: Unhooked = field(default_factory=Unhooked)
    refused: Unhooked = field(default_factory=Unhooked)
    gradients: lost_gradients.GradientFaults = field(default_factory=lost_gradients.GradientFaults)
    recomputed: Recomputed = field(default_factory=Recomputed)
    intermediates: Kept = field(default_factory=Kept)
    zeros: zero_gradients.Zeros = field(default_factory=zero_gradients.Zeros)
    terms: Revived = field(default_factory=Revived)
    made: tuple[str, ...] = ()

    def runs(self, name: str) -> int:
        """How many times the step was run for one experiment."""
        return int(getattr(self, name).runs)

    @property
    def reruns(self) -> int:
        """How many times the step was run for all of them."""
        return sum(map(self.runs, self.made))

    @property
    def silencers(self) -> tuple[without_hooks.SilencingHook, ...]:
        """Hooks that keep parameters from learning."""
        return self.refused.silencers or self.hooks.silencers


@dataclass(frozen=True)
class Open:
    """What is still to be explained of the gradients, once cuts and hooks were.

    Attributes:
        not_finite: parameters whose gradient holds nan or inf.
        lost: parameters that are part of the graph behind the loss and still get no gradient.
        zero: parameters whose gradient is exactly zero, or none.
        vanishing: calls that hand on a gradient of exactly zero, as far as the graphs show them.
        nan_loss: the loss is nan.
        barren: it is to be asked where the gradient becomes zero.
    """

    not_finite: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    vanishing: tuple[ZeroGradient, ...] = ()
    nan_loss: bool = False
    barren: bool = False


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known when an experiment may be made.

    Attributes:
        first: the first run.
        facts: the model.
        verdict: what cuts.
        replay: whether the step may be run again.
        shown: what the experiments before it showed.
    """

    first: FirstRun
    facts: ModelFacts
    verdict: Verdict
    replay: bool
    shown: Shown = field(default_factory=Shown)

    @cached_property
    def behind(self) -> frozenset[str]:
        """The parameters that are part of the graph behind the loss."""
        return self.first.graph.leaves

    @cached_property
    def dead(self) -> tuple[DeadTerm, ...]:
        """Terms of the loss that should hand on a gradient and do not."""
        first, facts = self.first, self.facts
        if first.reached.error:
            return ()
        return dead_terms.find(first.trace, first.terms, facts.wanted, facts.starved)

    @cached_property
    def unsound(self) -> Open:
        """The parameters with no gradient, or one that is zero or not finite, whatever the reason."""
        wanted, reached = self.facts.wanted, self.first.reached
        not_finite = tuple(backward.not_finite(reached.norms, wanted))
        if reached.error:
            return Open(not_finite)
        lost = tuple(n for n in self.verdict.unexplained if n in self.behind)
        return Open(not_finite, lost, tuple(n for n in wanted if reached.norms.get(n, 1.0) in (0, None)))

    @property
    def joins(self) -> undo_cuts.Joins:
        """The numbers that are part of the loss and have forgotten what they came from."""
        left = (*self.shown.returns.left, *self.shown.numbers.left)
        return undo_cuts.joins(self.first.trace, left, self.shown.numbers.back)

    @cached_property
    def filled(self) -> frozenset[str]:
        """Parameters that should train, whose hook is called after their ``.grad`` was filled, and that have none."""
        hooks = self.first.hooks
        return hooks.filled.intersection(self.facts.wanted, self.first.reached.emptied) if hooks else frozenset()

    @cached_property
    def refuses(self) -> bool:
        """Whether a hook's result was refused by torch, and that may be looked into."""
        mishap = self.first.mishap
        return self.replay and mishap is not None and mishap.kind == autograd_errors.HOOK_RESULT

    @cached_property
    def open(self) -> Open:
        """What neither the cuts nor the hooks explain."""
        if self.refuses:
            return Open()
        told = {name for one in self.shown.silencers for name in one.parameters}
        not_finite, lost, zero = (
            tuple(n for n in names if n not in told)
            for names in (self.unsound.not_finite, self.unsound.lost, self.unsound.zero)
        )
        graph, rerun = self.first.graph, self.shown.rerun
        faint = lost_gradients.faint(self.first.reached.norms).intersection(self.facts.wanted) - told
        found = lost_gradients.zero_gradients(graph, self.first.trace, zero, faint)
        if zero and not found and any(n.label.endswith("Backward") for n in graph.nodes if not n.leaf):
            lost += tuple(n for n in zero if n in self.behind)  # a custom Function may return zeros
        if rerun.trace is not None:
            found += lost_gradients.zero_gradients(
                rerun.graph, rerun.trace, rerun.zero.intersection(self.facts.starved)
            )
        nan = self.first.value == "nan"
        all_zero = len(zero) == len(self.facts.wanted) and lost_gradients.open_to_question(graph)
        return Open(not_finite, lost, zero, found, nan, bool(zero) and not found and (nan or all_zero))


@dataclass(frozen=True)
class Lab:
    """What is alive while experiments are made.

    Attributes:
        session: runs the step again.
        ledger: the tensors of the first run, as far as they are still alive.
    """

    session: Session
    ledger: Ledger


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment.

    Attributes:
        name: the field of ``Shown`` that holds its answer.
        untried: names the sentence for when it breaks off, ``untried.<untried>``.
        applies: whether it has anything to find out.
        ask: make it.
        broken: its answer if it breaks off.
        stage: what is told of it to who waits, ``""`` for nothing.
        learn: what is known once it is answered, beside the answer.
    """

    name: str
    untried: str
    applies: Callable[[Known], bool]
    ask: Callable[[Known, Lab], Any]
    broken: Any
    stage: str = ""
    learn: Callable[[Known], Known] = lambda known: known


def make(known: Known, lab: Lab, tries: Attempts, tell: Callable[[str], None]) -> Known:
    """Make the experiments that apply, in their order; each knows what those before it showed."""
    for one in EXPERIMENTS:
        if one.applies(known):
            if one.stage:
                tell(one.stage)
            answer = tries.make(one.untried, partial(one.ask, known, lab), one.broken)
            made: dict[str, Any] = {one.name: answer, "made": (*known.shown.made, one.name)}
            known = one.learn(replace(known, shown=replace(known.shown, **made)))
    return known


def _without_the_error(known: Known, lab: Lab) -> RerunWithout:
    first = known.first
    if first.mishap is None:
        return RerunWithout()
    taken_over = [call for call, *_ in first.taken_over]
    resets = [reset for *_, reset in first.resets]
    return undo_errors.rerun_without(first.mishap, first.crossing, lab.session, taken_over, resets)


def _what_holds_the_past(known: Known, lab: Lab) -> Caches:
    """Where the values are held whose history is used again. It takes no run."""
    latest = {number: known.first.trace.latest(number) for _, number in known.first.crossing}
    found = lab.ledger.alive(latest.values())
    tensors = {number: found[last] for number, last in latest.items() if last in found}
    return Caches(CacheSearch(lab.session, known.first.trace, tensors, ()).found(False)) if tensors else Caches()


def _without_the_cuts(known: Known, lab: Lab) -> Rerun:
    return undo_cuts.rerun_without_cuts(lab.session, known.verdict.cuts, known.joins)


def _has_no_loss(known: Known) -> bool:
    """Whether something took the place of the loss, and no call of the run tells where that comes from."""
    first = known.first
    if first.no_loss is None or (first.no_loss.kind == EARLIER and first.no_loss.asked):
        return False
    return first.no_loss.kind == NOTHING or bool(known.verdict.unconnected) or first.mishap is not None


def _where_it_returns(known: Known, lab: Lab) -> Returned:
    tensor = lab.ledger.alive([known.first.trace.loss]).get(known.first.trace.loss)
    names = known.verdict.unconnected
    return returns.ask(lab.session, known.first.trace, known.first.no_loss, tensor, names, replay=known.replay)


def _with_the_numbers_that_left(known: Known) -> Known:
    """The loss is what the source says it is made of: where that left torch are cuts, to be undone like any other."""
    if not known.shown.returns.left:
        return known
    trace = returns.joined(known.first.trace, known.shown.returns.left)
    first, verdict = replace(known.first, trace=trace), cuts.find(trace, known.facts.starved)
    return replace(known, first=first, verdict=verdict)


def _may_be_numbers(known: Known) -> bool:
    first = known.first
    asked = known.replay and first.mishap is None and first.no_loss is None
    return asked and bool(numbers.exits(first.trace, known.verdict.unconnected))


def _with_other_numbers(known: Known, lab: Lab) -> Numbers:
    trace = known.first.trace
    return numbers.ask(lab.session, trace, known.verdict.unconnected, lab.ledger.scalars.get(trace.loss))


def _with_the_numbers_that_came_back(known: Known) -> Known:
    found = known.shown.numbers
    trace = numbers.joined(known.first.trace, found)
    first, verdict = replace(known.first, trace=trace), numbers.blame(trace, known.verdict, found)
    return replace(known, first=first, verdict=verdict) if found.ways else known


def without_what_was_kept(known: Known, lab: Lab) -> Caches:
    """What holds values without history where starved parameters do not flow into the loss."""
    return caches.ask(lab.session, lab.ledger, known.first.trace, known.verdict, replay=known.replay)


def _left_unconnected(known: Known) -> tuple[str, ...]:
    """Parameters from which nothing flows into the loss, and which no value kept from before explains."""
    told = {name for one in known.shown.caches.kept for name in one.connected}
    return tuple(name for name in known.verdict.unconnected if name not in told)


def _may_come_later(known: Known) -> bool:
    may_run = known.replay and known.first.hooks is not None and known.first.no_loss is None
    return may_run and known.first.mishap is None and bool(_left_unconnected(known))


def _in_the_step_after(known: Known, lab: Lab) -> LaterStep:
    return later_step.ask(lab.session, _left_unconnected(known))


def _may_drop_out(known: Known) -> bool:
    asked = known.replay and not known.first.error and known.verdict.unexplained
    return bool(asked) and influence.is_of_derivatives(known.first.trace)


def _with_other_values(known: Known, lab: Lab) -> Influence:
    found = influence.without_influence(lab.session, known.verdict.unexplained)
    return influence.by_nature(lab.session, known.first.trace, found)


def _without_what_drops_out(known: Known) -> Known:
    shown, severed = known.shown, known.shown.influence.severed
    facts, verdict = influence.set_aside(known.facts, known.verdict, shown.influence.without)
    if severed.cuts:
        verdict = influence.blame(verdict, severed)
        shown = replace(shown, rerun=before_derivatives.joined(shown.rerun, severed))
    return replace(known, facts=facts, verdict=verdict, shown=shown)


def _may_be_silenced(known: Known) -> bool:
    allowed = known.first.hooks is not None and known.replay and not known.first.reached.error
    return allowed and bool(_dead(known) or known.filled)


def _dead(known: Known) -> tuple[str, ...]:
    return (*known.unsound.not_finite, *known.unsound.lost, *known.unsound.zero)


def _without_hooks(known: Known, lab: Lab) -> Unhooked:
    return without_hooks.silencing_hooks(lab.session, _dead(known), known.filled)


def _without_refused_hooks(_: Known, lab: Lab) -> Unhooked:
    return without_hooks.refused_by_autograd(lab.session)


def _with_dead_terms_revived(known: Known, lab: Lab) -> Revived:
    cut = [cut for one in known.dead for cut in one.verdict.cuts]
    rerun = undo_cuts.rerun_without_cuts(lab.session, cut)
    if rerun.trace is None:
        return Revived({}, rerun, 1)
    return Revived(dead_terms.revived(known.dead, known.first.trace, rerun.trace), rerun, 1)


def _is_open(known: Known) -> bool:
    return known.replay and bool(known.open.not_finite or known.open.lost or known.open.barren)


def _where_gradients_end(known: Known, lab: Lab) -> lost_gradients.GradientFaults:
    still = known.open
    return lost_gradients.gradient_faults(lab.session, not_finite=still.not_finite, lost=still.lost, zero=still.barren)


def _may_recompute(known: Known) -> bool:
    """Whether a custom Function's backward raised, or one takes part where a gradient is lost."""
    first = known.first
    if not known.replay or first.reached.error:
        return known.replay and first.mishap is not None and first.mishap.inside == autograd_errors.IN_FUNCTION
    return bool(known.open.lost) and any(n.label.endswith("Backward") for n in first.graph.nodes if not n.leaf)


def _what_is_recomputed(_: Known, lab: Lab) -> Recomputed:
    watching = Recomputing()
    lab.session.run(watching)
    return Recomputed(tuple(watching.found), 1)


def _may_keep_intermediates(known: Known) -> bool:
    return known.replay and bool(_lost_to_derivatives(known)) and influence.is_of_derivatives(known.first.trace)


def _lost_to_derivatives(known: Known) -> tuple[str, ...]:
    return intermediates.lost(known.first.trace, known.verdict, failed=bool(known.first.reached.error))


def _without_what_derivatives_lack(known: Known) -> Known:
    revived = known.shown.intermediates.revived
    return replace(known, verdict=intermediates.without(known.first.trace, known.verdict, revived))


def _flat(known: Known) -> tuple[str, ...]:
    """Parameters with a gradient of exactly zero that nothing so far explains."""
    told = {name for one in known.open.vanishing for name in one.parameters}
    norms = known.first.reached.norms
    return tuple(name for name in known.open.zero if norms.get(name) == 0 and name not in told)


def _why_zero(known: Known, lab: Lab) -> zero_gradients.Zeros:
    names, norms = _flat(known), known.first.reached.norms
    parameters = lab.session.preserved.parameters
    gates = [name for name in known.facts.wanted if norms.get(name) and zero_gradients.is_zero(parameters[name])]
    woken = zero_gradients.behind_gates(known.first.trace, gates, names) if gates else ()
    left = [name for name in names if name not in woken]
    # What holds them may be a factor that nobody asked about, and that is held by them in turn.
    beside = [
        name for name, one in parameters.items()
        if one.requires_grad and norms.get(name) == 0 and name not in (*names, *woken) and zero_gradients.is_zero(one)
    ]  # fmt: skip
    tried = zero_gradients.ask(lab.session, [*left, *beside]) if left else zero_gradients.Zeros()
    tried = replace(tried, woken=tuple(name for name in tried.woken if name not in beside))
    return replace(tried, woken=(*woken, *tried.woken))


EXPERIMENTS = (
    Experiment(
        name="mended", untried="mend", ask=_without_the_error, broken=RerunWithout(runs=1),
        applies=lambda known: known.replay and known.first.mishap is not None,
    ),
    Experiment(
        name="histories", untried="stale", ask=_what_holds_the_past, broken=Caches(),
        applies=lambda known: bool(known.first.crossing),
    ),
    Experiment(
        name="returns", untried="returns", ask=_where_it_returns, broken=Returned(runs=1), applies=_has_no_loss,
        learn=_with_the_numbers_that_left,
    ),
    Experiment(
        name="numbers", untried="influence", ask=_with_other_numbers, broken=Numbers(runs=1), applies=_may_be_numbers,
        learn=_with_the_numbers_that_came_back,
    ),
    Experiment(
        name="rerun", untried="replay", ask=_without_the_cuts, broken=Rerun(None, 1), stage="replay",
        applies=lambda known: known.replay and bool(known.verdict.cuts),
    ),
    Experiment(
        name="caches", untried="stale", ask=without_what_was_kept, broken=Caches(runs=1),
        applies=lambda known: bool(known.verdict.unconnected),
    ),
    Experiment(
        name="later", untried="replay", ask=_in_the_step_after, broken=LaterStep(runs=1), applies=_may_come_later,
    ),
    Experiment(
        name="influence", untried="influence", ask=_with_other_values, broken=Influence(runs=1),
        applies=_may_drop_out, learn=_without_what_drops_out,
    ),
    Experiment(name="hooks", untried="hooks", ask=_without_hooks, broken=Unhooked(), applies=_may_be_silenced),
    Experiment(
        name="refused", untried="hooks", ask=_without_refused_hooks, broken=Unhooked(),
        applies=lambda known: known.refuses,
    ),
    Experiment(
        name="gradients", untried="questions", ask=_where_gradients_end,
        broken=lost_gradients.GradientFaults(runs=1), applies=_is_open,
    ),
    Experiment(
        name="recomputed", untried="questions", ask=_what_is_recomputed, broken=Recomputed(runs=1),
        applies=_may_recompute,
    ),
    Experiment(
        name="intermediates", untried="questions", broken=Kept(runs=1), applies=_may_keep_intermediates,
        ask=lambda known, lab: intermediates.ask(lab.session, _lost_to_derivatives(known)),
        learn=_without_what_derivatives_lack,
    ),
    Experiment(
        name="zeros", untried="questions", ask=_why_zero, broken=zero_gradients.Zeros(runs=1),
        applies=lambda known: known.replay and not known.first.reached.error and bool(_flat(known)),
    ),
    Experiment(
        name="terms", untried="replay", ask=_with_dead_terms_revived, broken=Revived(runs=1),
        applies=lambda known: known.replay and any(one.verdict.cuts for one in known.dead),
    ),
)  # fmt: skip
