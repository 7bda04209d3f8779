"""Values without history that somebody kept from before the step: does it compute them anew where they are missing?

Who holds such a value is found by walking through all that the step can read. It is taken away there, and the step is
run again: where the same call then gets a value of the same shape that the starved parameters flow into, the value was
a cache's, and it is known which line makes it. Data that is taken away is missed: such a run raises, and tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any

import torch

from gradkit.core.trace import Chain, Trace, Value
from gradkit.diagnosis.experiments import undo_cuts
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.source import dataflow, frames
from gradkit.source.faults import on_behalf
from gradkit.state import holders
from gradkit.state.holders import NAMED, Edge
from gradkit.state.reachable import ATTRIBUTE, GLOBAL, ITEM, PART, VARIABLE, Memo
from gradkit.tracing.ledger import Ledger
from gradkit.tracing.run import Session

MOST_RUNS = 8


@dataclass(frozen=True)
class CachedValue:
    """Values that one attribute, variable or function keeps.

    Attributes:
        numbers: of the values.
        name: of the attribute, variable or function.
        owner: class of the object whose attribute it is; None for anything else.
        reader: of a variable, the function that uses it.
        within: of an attribute, what holds the object that has it, the innermost first: name, class and function each.
        memo: code of a function whose results ``functools`` keeps.
        made: where the step makes such values when they are missing; ``()`` if no run without them came through.
        connected: parameters that then flow into the loss.
        revived: those of them that backward then reaches.
        idle: without them the step came through, and nothing else flowed into the loss.
    """

    numbers: tuple[int, ...]
    name: str
    owner: type | None = None
    reader: CodeType | None = None
    within: tuple[tuple[str, type | None, CodeType | None], ...] = ()
    memo: CodeType | None = None
    made: tuple[Chain, ...] = ()
    connected: frozenset[str] = frozenset()
    revived: frozenset[str] = frozenset()
    idle: bool = False


@dataclass
class _Group:
    """What is taken away together."""

    anchor: Edge
    edges: list[Edge] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    answer: _Answer | None = None
    idle: bool = False


@dataclass(frozen=True)
class _Answer:
    made: tuple[Chain, ...]
    connected: frozenset[str]
    revived: frozenset[str]


@dataclass(frozen=True)
class Caches:
    """What keeps values from before the step, and how many runs it took to find that."""

    kept: tuple[CachedValue, ...] = ()
    runs: int = 0


def ask(session: Session, ledger: Ledger, trace: Trace, verdict: Verdict, *, replay: bool) -> Caches:
    """What holds values without history where starved parameters do not flow into the loss.

    Args:
        replay: whether the step may be run again.
    """
    tensors = ledger.alive([n for n in sorted(verdict.reaching) if _may_be_stale(trace.values[n])])
    if not tensors:
        return Caches()
    search = CacheSearch(session, trace, tensors, verdict.unconnected)
    return Caches(search.found(replay), search.runs)


def _may_be_stale(value: Value) -> bool:
    return value.maker < 0 and value.floating and not value.requires_grad and not value.parameter


class CacheSearch:
    """Looks for what keeps the values on whose account parameters do not flow into the loss.

    Args:
        tensors: the values that may be stale, by number, as far as they are still alive.
        names: the parameters from which nothing flows into the loss.

    Attributes:
        runs: how many times the step was run.
    """

    def __init__(self, session: Session, trace: Trace, tensors: dict[int, torch.Tensor], names: Sequence[str]) -> None:
        self._session, self._trace = session, trace
        self._left, self.runs = set(names), 0
        self._ways = holders.paths_to([session.step, session.model], {id(tensor) for tensor in tensors.values()})
        self._groups = list(self._grouped(tensors))

    def found(self, replay: bool) -> tuple[CachedValue, ...]:
        """What keeps them; with ``replay``, the step is run without each, until nothing is left to be explained."""
        if replay:
            for group in self._groups:
                reader = group.anchor.code
                if not _bare(group) or (reader is not None and dataflow.may_be_missing(group.anchor.key, reader)):
                    self._try([group])
            idle = [group for group in self._groups if group.idle]
            if len(idle) > 1:
                self._try(idle)
        return tuple(self._told(group) for group in self._groups)

    def _grouped(self, tensors: dict[int, torch.Tensor]) -> Iterable[_Group]:
        groups: dict[tuple[int, Any], _Group] = {}
        for number, tensor in tensors.items():
            for edge in self._ways.get(id(tensor), ()):
                anchor = _anchor(edge)
                if anchor is not None:
                    group = groups.setdefault((id(anchor.holder), anchor.key), _Group(anchor))
                    group.edges += holders.path_steps(edge, self._ways)
                    group.numbers.append(number)
        return sorted(groups.values(), key=lambda group: group.anchor.kind in (VARIABLE, GLOBAL) and _bare(group))

    def _try(self, groups: list[_Group]) -> None:
        """Run the step without what these groups keep, first with the entries gone, then with None in their place."""
        for bare in (True, False):
            if not self._left or self.runs >= MOST_RUNS or (not bare and all(map(_bare, groups))):
                return
            without = partial(self._rerun, [edge for group in groups for edge in group.edges], bare)
            again = without()
            if again.trace is None:
                continue
            answers = self._answers(again, again.trace, without)
            if any(id(group) in answers for group in groups):
                for group in self._groups:
                    group.answer = answers.get(id(group), group.answer)
                self._left -= frozenset().union(*(answer.connected for answer in answers.values()))
            for group in groups:
                group.idle = group.answer is None
            return

    def _rerun(self, edges: Sequence[Edge], bare: bool, undone: Iterable[cuts.Cut] = ()) -> undo_cuts.Rerun:
        self.runs += 1
        with holders.put_back(edges):
            return undo_cuts.rerun_without_cuts(
                replace(self._session, step=partial(_without, edges, bare, self._session.step)), undone
            )

    def _answers(
        self, again: undo_cuts.Rerun, trace: Trace, rerun: Callable[..., undo_cuts.Rerun]
    ) -> dict[int, _Answer]:
        """Of the groups in whose place the run made new values of what is starved, how; by the group's id."""
        verdict, found = cuts.find(trace, sorted(self._left)), {}
        for group in self._groups:
            made = list(self._made(trace, group.numbers))
            behind = {trace.values[n].parameter for n in trace.sources(number for number, _ in made)}
            connected = frozenset(n for n in self._left - set(verdict.unconnected) if self._tensor(n) in behind)
            if connected:
                found[id(group)] = (tuple(dict.fromkeys(chain for _, chain in made)), connected)
        revived = again.revived or frozenset()
        if verdict.cuts and any(connected - revived for _, connected in found.values()):
            revived |= rerun(verdict.cuts).revived or frozenset()
        return {key: _Answer(made, connected, connected & revived) for key, (made, connected) in found.items()}

    def _tensor(self, name: str) -> str:
        return self._trace.values[self._trace.parameters[name]].parameter

    def _made(self, again: Trace, numbers: Sequence[int]) -> Iterator[tuple[int, Chain]]:
        """What the step made in the place of some values, and where: handed to the same call, of the same shape."""
        shapes = {number: self._trace.values[number].shape for number in numbers}
        wanted: dict[object, set[tuple[int, ...]]] = {}
        for call in self._trace.calls:
            for number in shapes.keys() & set(call.inputs):
                wanted.setdefault(call.key, set()).add(shapes[number])
        used: list[tuple[int, object]] = [(n, call.key) for call in again.calls for n in call.inputs]
        if self._trace.loss in shapes:
            wanted["loss"] = {shapes[self._trace.loss]}
            used.append((again.loss, "loss"))
        for number, key in dict.fromkeys(used):
            value = again.values[number]
            if value.maker >= 0 and value.floating and value.shape in wanted.get(key, ()):
                yield number, again.calls[value.maker].chain

    def _told(self, group: _Group) -> CachedValue:
        anchor, answer = group.anchor, group.answer
        memo = getattr(_memo(anchor), "__code__", None)
        outer = anchor.before if _is_buffer(anchor) else anchor
        further = (one for one in reversed(anchor.way()[:-1]) if _has_a_name(one))
        within = tuple((str(one.key), _owner(one), one.code) for one in further) if anchor.kind == ATTRIBUTE else ()
        kept = CachedValue(
            tuple(group.numbers), str(anchor.key), _owner(outer), anchor.code, within, memo, idle=group.idle
        )
        return replace(kept, **vars(answer)) if answer is not None else kept


@on_behalf
def _without(edges: Sequence[Edge], bare: bool, step: Callable[[], Any]) -> Any:
    holders.remove(edges, bare)
    return step()


def _anchor(edge: Edge) -> Edge | None:
    """The last step on the way that has a name: an attribute, a variable, a buffer, an argument with a default."""
    return next(filter(_has_a_name, reversed(edge.way())), None)


def _has_a_name(edge: Edge) -> bool:
    named = edge.kind in NAMED or _is_buffer(edge) or (edge.kind == PART and isinstance(edge.key, str) and edge.key)
    of_torch = edge.kind == VARIABLE and edge.code is not None and frames.is_torch_file(edge.code.co_filename)
    return bool(named) and not of_torch


def _owner(edge: Edge | None) -> type | None:
    """The class of the object whose attribute a step takes; None for any other step."""
    holder = edge.holder if edge is not None and edge.kind == ATTRIBUTE else None
    return holder if holder is None or isinstance(holder, type) else type(holder)


def _is_buffer(edge: Edge) -> bool:
    return edge.kind == ITEM and edge.before is not None and edge.before.key == "_buffers"


def _bare(group: _Group) -> bool:
    """Whether it is variables that hold the values, and nothing else can be taken away than their one value."""
    return all(edge.kind in (VARIABLE, GLOBAL) for edge in group.edges) and _memo(group.anchor) is None


def _memo(anchor: Edge) -> Any:
    """The function that ``functools`` keeps the results of, if it is one."""
    now = next(iter(holders.value_at(anchor)), None)
    return now.__wrapped__ if isinstance(now, Memo) else None
