"""Where several things stand in the way of a parameter: what each of them does if it alone is mended.

A rerun with all cuts undone proves the set, and says nothing of its members. So each is undone once more, with the
others left as they are. Where parameters behind a cut are frozen as well, one rerun sets them free together with the
cuts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from gradkit.core import causes, patches
from gradkit.core.attempts import Attempts
from gradkit.core.records import NOT_REVIVED, PROVEN, Finding, Note
from gradkit.core.trace import Key
from gradkit.diagnosis.experiments import undo_cuts
from gradkit.diagnosis.experiments.plan import Known, Lab
from gradkit.diagnosis.facts.cuts import REGION, Cut
from gradkit.source import locations
from gradkit.tracing.interventions import Intervention

MOST = 8
"""How many members are asked; of more, a reader has no use, and each takes a run."""


class Freed(Intervention):
    """Some leaves require grad while the step runs, and its backward.

    Example:
        >>> weight = torch.zeros(2)
        >>> with Freed([weight]).during():
        ...     weight.requires_grad
        True
        >>> weight.requires_grad
        False
    """

    def __init__(self, leaves: Iterable[torch.Tensor]) -> None:
        self._leaves = tuple(leaves)

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Set the flags, and put them back after the backward."""
        with freed(self._leaves):
            yield


@contextlib.contextmanager
def freed(leaves: Iterable[torch.Tensor]) -> Iterator[None]:
    """While the block lasts, some leaves require grad."""
    with patches.undone():
        for leaf in leaves:
            patches.later(partial(leaf.requires_grad_, leaf.requires_grad))
            leaf.requires_grad_(True)
        yield


def told(findings: Sequence[Finding], known: Known, lab: Lab, tries: Attempts) -> tuple[list[Finding], int]:
    """The findings, each member of a set with what it does alone; and how many runs that took."""
    asking = Members(known, lab)
    found = tries.make("replay", partial(asking.all, findings), list(findings)) if asking.may_ask else findings
    return [replace(one, cuts=()) for one in found], asking.runs


@dataclass
class Members:
    """Asks of the findings of one diagnosis what each does alone.

    Attributes:
        runs: how many times the step was run for that.
    """

    known: Known
    lab: Lab
    runs: int = 0
    _cuts: dict[Key, Cut] = field(init=False)

    def __post_init__(self) -> None:
        self._cuts = {cut.key: cut for cut in self.known.verdict.cuts}

    @property
    def may_ask(self) -> bool:
        """Whether the run with all cuts undone came through: where it did not, no other would tell more."""
        return self.known.replay and self.known.shown.rerun.revived is not None

    def all(self, findings: Sequence[Finding]) -> list[Finding]:
        """Every finding, with what it does alone if it is one of several in the way of the same parameters."""
        held = self._held(findings)
        found = [self._freed(one, held) for one in findings]
        asked = [i for i, one in enumerate(found) if self._is_member(one, held)][:MOST]
        for i in asked:
            found[i] = self._noted(replace(found[i], alone=self._alone(found[i], held)))
        return found

    def _is_member(self, one: Finding, held: Sequence[str]) -> bool:
        mine, names = set(one.cuts), set(one.parameters)
        if not mine:
            return _is_of_flags(one) and not names.isdisjoint(held)
        if not mine.issubset(self._cuts) or not all(undo_cuts.can_undo(self._cuts[key]) for key in mine):
            return False
        others = (cut for key, cut in self._cuts.items() if key not in mine)
        return not names.isdisjoint(held) or any(not names.isdisjoint(cut.parameters) for cut in others)

    def _alone(self, one: Finding, held: Sequence[str]) -> tuple[str, ...] | None:
        free = () if one.cuts else [name for name in one.parameters if name in held]
        revived = self._revived(one.cuts, free)
        return None if revived is None else tuple(name for name in one.parameters if name in revived)

    def _noted(self, one: Finding) -> Finding:
        """A finding whose note of another cut on its line says what that one does alone."""
        notes = [self._told_alone(note, one) if note.kind == "cuts_too" else note for note in one.notes]
        return replace(one, notes=tuple(notes))

    def _told_alone(self, note: Note, one: Finding) -> Note:
        calls = self.known.first.trace.calls
        at = [
            key for key, cut in self._cuts.items()
            if cut.kind != REGION and any(locations.innermost(calls[i].chain) == note.location for i in cut.calls)
        ]  # fmt: skip
        keys = [key for key in at if key not in one.cuts]
        revived = self._revived(keys, ()) if keys else None
        if revived is None:
            return note
        n, total = len(revived.intersection(one.parameters)), len(one.parameters)
        return replace(note, facts={**note.facts, "alone": str(n), "total": str(total)})

    def _revived(self, keys: Iterable[Key], free: Sequence[str]) -> frozenset[str] | None:
        """What comes alive with these cuts undone and no others, and these parameters free; None if the step raised."""
        keys = set(keys)
        cuts = [self._cuts[key] for key in keys]
        others = [cut for key, cut in self._cuts.items() if key not in keys]
        return self._run(cuts, others, free)

    def _run(self, cuts: Sequence[Cut], kept: Sequence[Cut] | None, free: Sequence[str]) -> frozenset[str] | None:
        session, joins = self.lab.session, self.known.joins
        parameters = session.preserved.parameters
        self.runs += 1
        also = [Freed(parameters[name] for name in free)]
        return undo_cuts.rerun_without_cuts(session, cuts, joins, kept, also).revived

    # -- frozen behind a cut ------------------------------------------------------------------------------------------

    def _held(self, findings: Sequence[Finding]) -> tuple[str, ...]:
        """The frozen parameters behind a cut that are seen to learn once they are free and all cuts are undone."""
        rows, parameters = self.known.facts.rows, self.lab.session.preserved.parameters
        behind = {name for one in findings if self._is_of_cuts(one) for name in one.parameters}
        frozen = [row.name for row in rows if row.name in behind and not row.requires_grad]
        frozen = [name for name in frozen if parameters[name].is_floating_point()]
        revived = self._run(self.known.verdict.cuts, None, frozen) if frozen else None
        return tuple(name for name in frozen if name in (revived or ()))

    def _is_of_cuts(self, one: Finding) -> bool:
        proven = one.proof == PROVEN or one.doubt == NOT_REVIVED
        return bool(one.cuts) and proven and self._cuts.keys() >= set(one.cuts)

    def _freed(self, one: Finding, held: Sequence[str]) -> Finding:
        """A finding of a cut that is proven with what is frozen behind it set free; or of what is frozen there."""
        facts, free = {**one.facts, "together": "frozen"}, tuple(name for name in one.parameters if name in held)
        if free and _is_of_flags(one):
            return replace(one, revived=free, reruns=one.reruns + 1, facts=facts)
        if not free or not self._is_of_cuts(one) or not set(one.parameters) <= {*held, *one.revived}:
            return one
        return replace(one, proof=PROVEN, doubt="", revived=one.parameters, reruns=one.reruns + 1, facts=facts)


def _is_of_flags(one: Finding) -> bool:
    """Whether a finding is of parameters that were frozen before the step."""
    cause = causes.cause(one.cause)
    return not one.cuts and not cause.drawn and not cause.arrives
