"""Try every change that a finding suggests on the run, and offer it only if it cures and does no harm.

A change is tried by three steps in a row with the changed source, beside a step with the source as it is; beside three
of those, where what a later step did tells something. It does harm
if the step raises; if a parameter loses its gradient, or the gradient turns round; if a backward or a summand of the
loss no longer reaches what it reached; if graphs grow from step to step or values keep their history; if something
comes to learn that is not meant to; or if the loss is another number where an expression was written anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import CodeType

import torch

from gradkit.core import causes
from gradkit.core.attempts import Attempts
from gradkit.core.records import BEHIND, CURES, PROVEN, UNTRIED, WAITS, WITHHELD, ChangeTried, Finding, Location
from gradkit.diagnosis.experiments import candidates, undo_errors
from gradkit.diagnosis.experiments.alone import freed
from gradkit.diagnosis.experiments.changed_code import CannotTryError, Part, running_changed
from gradkit.diagnosis.experiments.plan import Known, Lab
from gradkit.diagnosis.experiments.trial import STEPS, Trial, trial
from gradkit.source import changes, frames, locations
from gradkit.source.changes import Candidate
from gradkit.state import reachable, registered
from gradkit.tracing import ranks
from gradkit.tracing.autograd_errors import TWICE

RAISES, LOSES, ZERO, TURNS, TERM, GROWS, KEEPS, REACHES, NOTHING, NUMBER = (
    "raises", "loses", "zero", "turns", "term", "grows", "keeps", "reaches", "nothing", "number",
)  # fmt: skip
TRAINABLE, AND_NOW = "trainable", "and_now"
_ZERO, _AGAINST = 1e-6, -0.5
Around = Callable[[], AbstractContextManager[object]]


def judged(
    findings: Sequence[Finding],
    known: Known,
    lab: Lab,
    given: Sequence[torch.optim.Optimizer],
    tries: Attempts,
    tell: Callable[[str], None],
    beyond: Known | None = None,
) -> tuple[tuple[Finding, ...], int]:
    """The findings, each with what came of trying its change; and how many steps that took.

    Args:
        given: the optimizers that were handed over.
        beyond: what is known of the run past an error, which some of the findings lie behind.
    """
    suggested = [candidates.suggested(one, (beyond if _is_behind(one) else None) or known) for one in findings]
    if not any(suggested):
        return tuple(findings), 0
    why = "not_run" if not known.replay else "ranks" if ranks.several() else "broke_off"
    answers: list[ChangeTried | None] = [
        ChangeTried(UNTRIED, kind=some[-1].kind if _is_rewrite(some[-1].kind) else "", why=why) if some else None
        for some in suggested
    ]
    steps = 0
    if why == "broke_off":
        tell("changes")
        judge = Judge(known, lab, given, beyond)
        answers = tries.make("changes", partial(judge.all, findings, suggested), answers)
        steps = judge.steps
    return tuple(_told(finding, answer) for finding, answer in zip(findings, answers, strict=True)), steps


def _is_behind(finding: Finding) -> bool:
    """Whether an error comes before what a finding is about: by itself, no change can show anything."""
    return BEHIND in finding.facts


def _is_rewrite(kind: str) -> bool:
    return kind in changes.REWRITES


def _joined(
    findings: Sequence[Finding], made_to: Mapping[int, Candidate | ChangeTried]
) -> dict[int, Candidate]:  # fmt: skip
    """Of changes to one line, those that can be made as one: each of the findings then has the same."""
    found: dict[int, Candidate] = {}
    for i, block in made_to.items():
        spot, lines = findings[i].location, {change.number for change in block.changes}
        for j, one in made_to.items() if block.kind in ("block", "narrowed") else ():
            other = findings[j].location
            if i != j and spot is not None and other is not None and spot.file == other.file:
                so_far = found.get(i, block).changes
                both = changes.joined(so_far, one.changes) if lines & {change.number for change in one.changes} else ()
                if both:
                    found.update({i: Candidate(block.kind, both), j: Candidate(one.kind, both)})
    return found


def _chosen(several: Sequence[Candidate], answer: ChangeTried | None) -> Candidate:
    """Of several changes that give nothing, the one to be tried with others."""
    plain = changes.plainest(several)
    if answer is None or not _is_rewrite(plain.kind):
        return plain
    return next((one for one in several if one.kind == answer.kind), plain)


def _told(finding: Finding, answer: ChangeTried | None) -> Finding:
    """A finding with its answer. Where a history that is gone cannot be let go of, it is to be made anew; where that
    takes nothing from its own step, the step does not need it.

    An expression can be written anew in many ways: of one that is none, nothing is said.
    """
    if answer is not None and _is_rewrite(answer.kind) and answer.outcome != CURES:
        return finding
    starves = answer is not None and answer.outcome == WITHHELD and answer.why in (TERM, LOSES, ZERO)
    anew = (
        causes.cause(finding.cause).change == candidates.KEPT and starves and finding.variant in ("", candidates.KEPT)
    )
    cured = finding.variant == AND_NOW and answer is not None and answer.outcome == CURES
    variant = "anew" if anew else candidates.KEPT if cured else finding.variant
    return replace(finding, tried=answer, variant=variant)


@dataclass(frozen=True)
class Harm:
    """What a change does that it must not: ``why``, to which leaves. ``bounded``: it is as much after each step."""

    why: str
    leaves: frozenset[int] = frozenset()
    said: str = ""
    bounded: bool = False


class Judge:
    """Tries the changes of one diagnosis.

    Attributes:
        steps: how many steps were run so far.
    """

    def __init__(
        self, known: Known, lab: Lab, given: Sequence[torch.optim.Optimizer], beyond: Known | None = None
    ) -> None:
        self._known, self._lab, self._beyond = known, lab, beyond
        session = lab.session
        found = reachable.optimizers_of(session.step, session.model)
        self._optimizers = list({id(one): one for one in (*given, *found)}.values())
        self._before, self._beside = Trial(), 0  # the steps as they are, and how many were asked for
        self.steps = 0

    def _run_beside(self, after: Trial) -> None:
        """Run the step as it is: as often as the change is tried, where what a later step did tells something."""
        wanted = STEPS if (after.error and after.steps) or _grows(after) or any(after.kept) else 1
        if self._beside < wanted and not self._raised:
            self._before, self._beside = self._run((), steps=wanted), wanted

    def all(self, findings: Sequence[Finding], suggested: Sequence[tuple[Candidate, ...]]) -> list[ChangeTried | None]:
        """An answer for each finding; None where nothing was suggested."""
        flags = [i for i, several in enumerate(suggested) if several and several[0].kind == changes.FLAG]
        behind = [i for i, several in enumerate(suggested) if several and _is_behind(findings[i])]
        alone = [
            None if i in flags or i in behind else self._best(finding, several)
            for i, (finding, several) in enumerate(zip(findings, suggested, strict=True))
        ]
        if behind:
            return self._after_the_error(findings, suggested, alone, behind)
        alone = [self._unless_frozen_again(i, one, findings, suggested) for i, one in enumerate(alone)]
        idle = [i for i, one in enumerate(alone) if one is not None and one.why == NOTHING]
        raising = [i for i, one in enumerate(alone) if one is not None and one.why == RAISES]
        if raising and len(raising) + len(idle) + len(flags) > 1:  # one may raise for want of the next
            both = self._together(findings, suggested, alone, sorted((*idle, *raising, *flags)))
            if both != alone:
                return both
        return self._together(findings, suggested, alone, [*idle, *flags], may_wait=True) if idle else alone

    def _after_the_error(
        self, findings: Sequence[Finding], suggested: Sequence[tuple[Candidate, ...]],
        alone: Sequence[ChangeTried | None], behind: list[int],
    ) -> list[ChangeTried | None]:  # fmt: skip
        """What lies behind an error is tried with what is offered for that; else nothing is said of its change."""
        if not any(one is not None and one.outcome == CURES for one in alone):
            return list(alone)
        told = self._together(findings, suggested, alone, behind)
        for i in behind:
            one = told[i]
            told[i] = one if one is not None and set(findings[i].parameters).intersection(one.gained) else None
        return told

    def _unless_frozen_again(
        self, number: int, answer: ChangeTried | None, findings: Sequence[Finding],
        suggested: Sequence[tuple[Candidate, ...]],
    ) -> ChangeTried | None:  # fmt: skip
        """A flag was tried as it is in the end: another line that takes it away would do so after the change, too."""
        if answer is None or answer.kind != TRAINABLE or answer.outcome != CURES:
            return answer
        mine = set(findings[number].parameters)
        others = [
            one for i, one in enumerate(findings) if i != number and not suggested[i] and one.location is not None
        ]
        again = any(
            causes.cause(one.cause).family == causes.PARAMETERS and mine & set(one.parameters) for one in others
        )
        return replace(answer, outcome=WAITS, gained=(), other=None) if again else answer

    def _together(
        self, findings: Sequence[Finding], suggested: Sequence[tuple[Candidate, ...]],
        alone: Sequence[ChangeTried | None], idle: list[int], *, may_wait: bool = False,
    ) -> list[ChangeTried | None]:  # fmt: skip
        """What gives nothing by itself is tried with all that is offered: each may be in the way of the next."""
        chosen = {i: _chosen(suggested[i], alone[i]) for i in idle}
        made_to: dict[int, Candidate | ChangeTried] = {**chosen}
        made_to.update((i, one) for i, one in enumerate(alone) if one is not None and one.changes)
        made_to.update(one_change := _joined(findings, made_to))
        parts = [(findings[i], one) for i, one in made_to.items()]
        made, told = self._try(parts, {n for i in idle for n in findings[i].parameters}), list(alone)
        chosen.update(one_change)
        nothing = [i for i in idle if (was := alone[i]) and was.why == NOTHING and findings[i].proof == PROVEN]
        plain = [i for i in idle if not _is_rewrite(chosen[i].kind)]
        if made.outcome != CURES and 0 < len(plain) < len(idle):
            return self._together(findings, suggested, alone, plain, may_wait=may_wait)
        for i, one in chosen.items():
            if made.outcome == CURES:
                why = "together" if len(parts) > 1 else made.why
                told[i] = replace(made, changes=one.changes, kind=one.kind, why=why)
            elif may_wait and len(findings) > 1 and made.why == NOTHING and i in nothing:
                told[i] = ChangeTried(WAITS, one.changes, one.kind, steps=made.steps)
        return told

    def _best(self, finding: Finding, several: Sequence[Candidate]) -> ChangeTried | None:
        """The first candidate that cures, with the next one told beside it; else what is wrong with the plainest."""
        answers: list[ChangeTried] = []
        replaced: list[ChangeTried] = []
        for one in several:
            answer = self._one(finding, one)
            if answer.outcome == CURES and not _is_rewrite(one.kind):
                other = answers[-1] if answers else self._next(finding, several, one)
                return replace(answer, other=other)
            if answer.outcome == CURES:
                return answer
            if answer.why == KEEPS and answer.gained:  # better than none
                replaced.append(replace(answer, outcome=CURES, why="replaced", changes=one.changes))
            answers += [] if _is_no_way(answer) else [answer]
        if replaced:
            return replaced[0]
        idle = [one for one in answers if one.why == NOTHING and _is_rewrite(one.kind)]
        return next(iter((*idle, *reversed(answers))), None)

    def _next(self, finding: Finding, several: Sequence[Candidate], chosen: Candidate) -> ChangeTried | None:
        rest = several[list(several).index(chosen) + 1 :]
        answer = self._one(finding, rest[0]) if rest else None
        return None if answer is None or _is_no_way(answer) else replace(answer, changes=())

    def _one(self, finding: Finding, one: Candidate) -> ChangeTried:
        spot, alive = finding.location, set(finding.parameters)
        if spot is None or not frames.is_user_file(spot.file):
            return ChangeTried(UNTRIED, kind=one.kind, why="library")
        stale = candidates.stale(self._known, self._lab) if one.kind in ("stored", "moved") else ()
        answer = self._try([(finding, one)], alive, stale=stale)
        return replace(answer, changes=one.changes if answer.outcome == CURES else (), kind=one.kind)

    def _try(
        self, made: Sequence[tuple[Finding, Candidate | ChangeTried]], alive: set[str],
        *, stale: Sequence[torch.Tensor] = (),
    ) -> ChangeTried:  # fmt: skip
        """Run the step with some changes, each made for a finding; an adapter that is loaded as trainable has its
        flags set."""
        flags = [name for finding, one in made if one.kind == TRAINABLE for name in finding.parameters]
        spots = [(finding.location, one) for finding, one in made if one.kind != TRAINABLE]
        once = {(spot.file, one.changes): (spot, one.changes) for spot, one in spots if spot is not None}
        parts: list[Part] = list(once.values())
        kinds = frozenset(one.kind for _, one in made)
        try:
            after = self._run(stale, partial(_changed, parts, self._ran, self._parameters(flags)))
        except CannotTryError as error:
            return ChangeTried(UNTRIED, why=error.why)
        harm = self._harm(after, self._behind([spot for spot, _ in parts]), kinds)
        gained = self._gained(after, alive)
        if harm is not None:
            return ChangeTried(
                WITHHELD, why=harm.why, steps=after.steps, harmed=self._names(harm.leaves), facts={"error": harm.said},
                gained=gained if harm.bounded else (),
            )  # fmt: skip
        if not gained:
            return ChangeTried(WITHHELD, why=NOTHING, steps=after.steps)
        return ChangeTried(CURES, why="runs" if self._raised else "", steps=after.steps, gained=gained)

    @cached_property
    def _ran(self) -> frozenset[CodeType]:
        traces = [one.first.trace for one in (self._known, self._beyond) if one is not None]
        chains = [call.chain for trace in traces for call in trace.calls]
        chains += [region.chain for trace in traces for region in trace.regions]
        return frozenset(code for chain in chains for code, _ in chain)

    def _behind(self, spots: Sequence[Location]) -> frozenset[int]:
        """What stands behind the lines that are changed gets a gradient by another way, too: it may turn anywhere."""
        trace, lines = self._known.first.trace, {(spot.file, spot.line) for spot in spots}
        points = {point for call in trace.calls for point in call.chain}
        at = {point for point in points if (point[0].co_filename, locations.line_of(point)) in lines}
        here = [call for call in trace.calls if at.intersection(call.chain)]
        sources = trace.sources(number for call in here for number in (*call.inputs, *call.outputs))
        names = [trace.values[number].parameter for number in sources]
        parameters = self._lab.session.preserved.parameters
        return frozenset(id(parameters[name]) for name in names if name in parameters)

    def _parameters(self, names: Iterable[str]) -> list[torch.Tensor]:
        return [self._lab.session.preserved.parameters[name] for name in names]

    def _run(self, stale: Sequence[torch.Tensor], around: Around | None = None, steps: int = STEPS) -> Trial:
        made = trial(self._lab.session, self._optimizers, stale=stale, changed=around or nullcontext, steps=steps)
        self.steps += min(made.steps + bool(made.error), steps)
        return made

    # -- what is harm -----------------------------------------------------------------------------------------------

    def _harm(self, after: Trial, behind: frozenset[int], kinds: frozenset[str]) -> Harm | None:
        self._run_beside(after)
        before = self._before
        if after.error and after.steps < max(before.steps, 1):
            return Harm(RAISES, said=after.error)
        turned = partial(self._turned, apart=behind)
        numbers = (self._other_numbers,) if kinds & changes.REWRITES else ()
        kept = self._grown if changes.ASSIGNED in kinds else self._kept
        reached = partial(self._reached, anew=candidates.ANEW in kinds)
        rules = (*numbers, self._lost, turned, self._terms, kept, reached)
        harm = next((harm for rule in rules if (harm := rule(before, after)) is not None), None)
        whole = self._with_all_graphs if harm is None else None
        return harm if whole is None else self._lost(whole, after) or self._untaught(whole, after)

    def _untaught(self, before: Trial, after: Trial) -> Harm | None:
        """What should train and is no longer reached by a loss that is still to be stepped by, or by a term of it."""
        both = zip(before.backwards, after.backwards, strict=False)
        pairs = [(was.reach, now.reach) for was, now in both if now.taken is None]
        if before.terms is not None and after.terms is not None and len(before.terms) == len(after.terms):
            pairs += zip(before.terms, after.terms, strict=True)
        lost = frozenset[int]().union(*((was & self._wanted) - now for was, now in pairs))
        return Harm(TERM, lost) if lost else None

    @cached_property
    def _wanted(self) -> frozenset[int]:
        """What should train."""
        parameters = self._lab.session.preserved.parameters
        return frozenset(id(parameters[name]) for name in self._known.facts.wanted if name in parameters)

    @cached_property
    def _with_all_graphs(self) -> Trial | None:
        """The step as it is, of which no backward frees its graph: what each of its losses is to reach.

        None where it did not raise for a graph that was freed in it, or does not come through so either.
        """
        first = self._known.first
        past = any(first.trace.values[number].past for _, number in first.crossing)
        if first.mishap is None or first.mishap.kind != TWICE or past or not self._raised:
            return None
        made = self._run((), undo_errors.graphs_kept, steps=1)
        return made if made.steps else None

    def _other_numbers(self, before: Trial, after: Trial) -> Harm | None:
        """Nothing that carries a history is another number for it; and a loss is one number."""
        if before.scalar and not after.scalar:
            return Harm(NUMBER)
        both = zip(before.losses, after.losses, strict=False)
        same = all(_alike(one, other, max(noise, more)) for (one, noise), (other, more) in both)
        return None if same and len(after.losses) >= len(before.losses) else Harm(NUMBER)

    def _lost(self, before: Trial, after: Trial) -> Harm | None:
        was, now = before.norms, after.norms
        gone = frozenset(key for key, norm in was.items() if norm > 0 and key not in now)
        zero = frozenset(key for key, norm in was.items() if norm > 0 and now.get(key, 1.0) <= _ZERO * norm)
        return Harm(LOSES, gone) if gone else Harm(ZERO, zero) if zero else None

    def _turned(self, before: Trial, after: Trial, apart: frozenset[int]) -> Harm | None:
        both = (before.samples.keys() & after.samples.keys()) - apart
        against = frozenset(k for k in both if _cosine(before.samples[k], after.samples[k]) < _AGAINST)
        return Harm(TURNS, against) if against else None

    def _terms(self, before: Trial, after: Trial) -> Harm | None:
        """A backward, or a summand of the loss, that reached something which is meant to learn by it."""
        if len(after.backwards) < len(before.backwards):
            return Harm(TERM)
        for was, now in zip(before.backwards, after.backwards, strict=False):
            meant = now.taken if now.taken is not None else self._behind_the_end or self._held or was.reach
            lost = (was.reach & meant) - now.reach
            if not before.steps and was is before.backwards[0]:  # no later one is as it was before
                terms = zip(was.terms, now.terms, strict=True) if len(was.terms) == len(now.terms) else ()
                lost = lost.union(*((one & meant) - other for one, other in terms))
            if lost:
                return Harm(TERM, lost)
        if before.terms is not None and after.terms is not None and len(before.terms) == len(after.terms):
            for one, other in zip(before.terms, after.terms, strict=True):
                if one - other:
                    return Harm(TERM, one - other)
        return None

    def _kept(self, before: Trial, after: Trial) -> Harm | None:
        if not before.steps:  # of a step that raises it is not known what it keeps
            return self._grown(before, after)
        more = max(after.kept, default=0) > max(before.kept, default=0)
        if _grows(after) and not _grows(before):
            return Harm(GROWS)
        return Harm(KEEPS, bounded=self._grown(before, after) is None) if more else None

    def _grown(self, before: Trial, after: Trial) -> Harm | None:
        """Of a value that is carried over on purpose, the history of one step is kept, and let go of in the next."""
        growing = len(after.kept) == STEPS and after.kept[0] < after.kept[1] < after.kept[2]
        return Harm(GROWS) if growing or (_grows(after) and not _grows(before)) else None

    def _reached(self, before: Trial, after: Trial, *, anew: bool) -> Harm | None:
        """What comes to learn; to compute anew what no optimizer trains would be for nothing."""
        meant = self._held if anew and self._held else self._meant
        if meant is None:
            return None
        new = frozenset(k for k, norm in after.norms.items() if norm > 0 and not before.norms.get(k))
        return Harm(REACHES, new - meant) if new - meant else None

    @cached_property
    def _behind_the_end(self) -> frozenset[int]:
        """What the optimizer holds that steps behind the end of a step, which was cut out of a program."""
        facts = self._known.facts
        return self._wanted if facts.explicit and not facts.wished else frozenset()

    @cached_property
    def _held(self) -> frozenset[int]:
        """What the optimizers at hand hold."""
        return frozenset(id(p) for one in self._optimizers for group in one.param_groups for p in group["params"])

    @cached_property
    def _meant(self) -> frozenset[int] | None:
        """What is meant to learn, by the clearest evidence that there is; None if all that requires grad is."""
        facts, wanted = self._known.facts, self._wanted
        if facts.explicit:
            return wanted | (self._held or self._biases_beside(facts.wanted))
        return wanted | self._held if self._held & wanted else None

    def _biases_beside(self, names: Iterable[str]) -> frozenset[int]:
        """A layer's bias that requires grad learns with its weight: who names one does not mean the other to stand."""
        layers = {name.rpartition(".")[0] for name in names}
        parameters = self._lab.session.preserved.parameters.items()
        found = ((p, *name.rpartition(".")[::2]) for name, p in parameters)
        return frozenset(id(p) for p, layer, name in found if layer in layers and "bias" in name)

    # -- what is gained ---------------------------------------------------------------------------------------------

    def _gained(self, after: Trial, alive: set[str]) -> tuple[str, ...]:
        """The names of those that get a gradient and got none; of a step that raised, of all that get one."""
        was, now = self._before.norms, after.norms
        parameters = self._lab.session.preserved.parameters
        names = {id(p): name for name, p in reversed(list(parameters.items()))}
        new = {n for k, n in names.items() if now.get(k, 0.0) > 0 and (self._raised or not was.get(k))}
        new |= {names[k] for k in self._by_a_term(after) if k in names}
        return tuple(n for n in parameters if n in new) if self._raised or alive & new else ()

    def _by_a_term(self, after: Trial) -> frozenset[int]:
        """The leaves that a term of the loss gives a gradient to, and gave none before: others may reach them too."""
        was, now = self._before.every_term, after.every_term
        if len(was) != len(now):
            return frozenset()
        return frozenset[int]().union(*(there - here for here, there in zip(was, now, strict=True)))

    @property
    def _raised(self) -> bool:
        """Whether the step raises as it is."""
        return bool(self._before.error) and not self._before.steps

    def _names(self, leaves: Iterable[int]) -> tuple[str, ...]:
        preserved = self._lab.session.preserved
        names = {id(p): name for name, p in reversed(list(preserved.parameters.items()))}
        for module in preserved.modules:
            for name, parameter in registered.parameters(module):
                names.setdefault(id(parameter), f"{type(module).__name__}.{name}")
        return tuple(sorted(names[key] for key in leaves if key in names))


@contextmanager
def _changed(parts: Sequence[Part], ran: Container[CodeType], trainable: Sequence[torch.Tensor]) -> Iterator[None]:
    """While the block lasts, source is changed, and some leaves require grad."""
    with running_changed(parts, ran) if parts else nullcontext(), freed(trainable):
        yield


def _grows(steps: Trial) -> bool:
    """Whether autograd's graphs grow from each step to the next."""
    return len(steps.nodes) == STEPS and steps.nodes[0] < steps.nodes[1] < steps.nodes[2]


def _is_no_way(answer: ChangeTried) -> bool:
    """Whether a change was made for something else than what stands there: that is no fault of the program's."""
    return answer.why == RAISES and "has no attribute 'detach'" in answer.facts.get("error", "")


def _alike(one: float, other: float, noise: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or abs(one - other) <= noise


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return 1.0 if one.shape != other.shape else float(torch.cosine_similarity(one, other, 0))
