"""All that the naming of causes may look at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gradkit.core.records import LIKELY, OBSERVED, PROVEN, TIED, Finding, Location, Note, Parameter
from gradkit.core.trace import Call, Chain, Trace
from gradkit.diagnosis.experiments.lost_gradients import ZeroGradient
from gradkit.diagnosis.experiments.plan import Open, Shown
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.diagnosis.facts.dead_terms import DeadTerm
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.diagnosis.facts.seen import Seen
from gradkit.source import attributes, locations, unused_results
from gradkit.source.callgraph import FunctionsRan
from gradkit.source.constructors import Built
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.backward import Reached

_MOST_TIED = 3


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a diagnosis knows before it is put into words. What rules ask for most has a name of its own.

    Attributes:
        first: the first run.
        facts: the model.
        verdict: what cuts.
        shown: what the experiments showed.
        open: what neither cuts nor hooks explain.
        seen: what a witness saw while the program was set up.
        dead: terms of the loss that should hand on a gradient and do not.
        rivals: several optimizers train the model, each a part of its own: a step may be the turn of one.
    """

    first: FirstRun
    facts: ModelFacts
    verdict: Verdict
    shown: Shown = field(default_factory=Shown)
    open: Open = field(default_factory=Open)
    seen: Seen = field(default_factory=Seen)
    dead: tuple[DeadTerm, ...] = ()
    rivals: bool = False

    @property
    def trace(self) -> Trace:
        """The calls of the first run."""
        return self.first.trace

    @property
    def reached(self) -> Reached:
        """What its backward reached."""
        return self.first.reached

    @property
    def mishap(self) -> AutogradError | None:
        """An error of autograd's that the step or the backward raised."""
        return self.first.mishap

    @property
    def rows(self) -> tuple[Parameter, ...]:
        """One for each parameter of the model."""
        return self.facts.rows

    @property
    def files(self) -> tuple[str, ...]:
        """The user's source files that take part."""
        return self.facts.files

    @property
    def revived(self) -> frozenset[str] | None:
        """Parameters that came alive in the run with the cuts undone, None if there was none."""
        return self.shown.rerun.revived

    @property
    def reruns(self) -> int:
        """How many reruns there were."""
        return self.shown.reruns

    @cached_property
    def vanishing(self) -> tuple[ZeroGradient, ...]:
        """Calls that hand on a gradient of exactly zero."""
        known = {(call.index, call.key): call for call in self.trace.calls}
        again = [(kind, known.get((call.index, call.key))) for kind, call in self.shown.gradients.swallowed]
        asked = tuple(ZeroGradient(kind, call, self.open.zero) for kind, call in again if call is not None)
        return self.open.vanishing + asked

    def numel(self, names: Sequence[str]) -> int:
        """How many elements the named parameters hold."""
        return sum(self._numels.get(name, 0) for name in set(names))

    @cached_property
    def _numels(self) -> dict[str, int]:
        return {row.name: row.numel for row in self.rows}

    @cached_property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that should train and do not require grad, at the start of the step or while it ran."""
        values = self.trace.values
        off = {name for name, number in self.trace.parameters.items() if not values[number].requires_grad}
        starved = (row for row in self.rows if row.should_train and not row.reached)
        return tuple(row.name for row in starved if not row.requires_grad or row.name in off)

    @cached_property
    def ran(self) -> FunctionsRan:
        """Which functions of the user's ran."""
        return FunctionsRan(call.chain for call in self.trace.calls)

    @cached_property
    def lines_run(self) -> unused_results.Run:
        """Which function called which, and on which lines the loss was computed."""
        reaching = (call for call in self.trace.calls if self.verdict.reaching.intersection(call.outputs))
        return unused_results.Run((call.chain for call in self.trace.calls), (call.chain for call in reaching))

    @cached_property
    def near(self) -> tuple[str, ...]:
        """The qualified names of the functions that ran, and of those that called for the diagnosis."""
        codes = dict.fromkeys(code for call in self.trace.calls for code, _ in call.chain)
        return tuple(locations.qualified_name(code) for code in (*codes, *(code for code, _ in self.facts.callers)))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Parameters that should train."""
        return self.facts.wanted

    @property
    def starved(self) -> tuple[str, ...]:
        """Parameters that should train and that backward does not reach."""
        return self.facts.starved

    def way_to(self, parameter: str) -> list[tuple[type, str]]:
        """The class of each module on the way to a parameter, and the attribute taken from it."""
        return [(self.facts.classes[path], part) for path, part in self._way(parameter)]

    def built_on(self, parameter: str) -> list[Built]:
        """What each module on the way to a parameter is now."""
        trains = any(row.requires_grad for row in self.rows if row.name == parameter)
        return [
            Built(self.facts.classes[path], self.facts.settings.get(path, {}), trains)
            for path, _ in self._way(parameter)
        ]

    def _way(self, parameter: str) -> list[tuple[str, str]]:
        parts = parameter.split(".")
        ways = ((".".join(parts[:i]), part) for i, part in enumerate(parts))
        return [(path, part) for path, part in ways if path in self.facts.classes]

    def defined_at(self, parameter: str, idle: Collection[str]) -> tuple[Location | None, str]:
        """The line that defines what a parameter belongs to, and the attribute.

        What it belongs to is the outermost module of a class of the user's that never ran and in which all is idle that
        may learn; else its own layer.

        Args:
            idle: the names of all parameters of which the line is sought.
        """
        whole = self.idle_part(parameter, idle)
        deep = whole.count(".") + 1 if whole else None
        return attributes.definition(self.way_to(parameter)[:deep], self.files, self.built_on(parameter)[:deep])

    def idle_part(self, parameter: str, idle: Collection[str]) -> str:
        """The outermost module of the user's own around a parameter in which all is idle; ``""`` if there is none."""
        return next((path for path in self._modules_of(parameter) if self._is_idle(path, idle)), "")

    def _modules_of(self, parameter: str) -> list[str]:
        parts = parameter.split(".")
        paths = (".".join(parts[:i]) for i in range(1, len(parts)))
        return [path for path in paths if path in self.facts.classes]

    def _is_idle(self, path: str, idle: Collection[str]) -> bool:
        within = [row.name for row in self.rows if row.requires_grad and row.name.startswith(f"{path}.")]
        whole = path not in self.trace.begun and bool(within) and all(name in idle for name in within)
        return whole and any(attributes.bodies(self.facts.classes[path]))

    def tied(self, names: Iterable[str]) -> dict[str, str]:
        """Of parameters that the model holds under several names, all of these, as the fact of a finding.

        What would train such a tensor under one of its names trains it under all of them.
        """
        groups: dict[str, list[str]] = {}
        for row in self.rows:
            groups.setdefault(row.same_as or row.name, []).append(row.name)
        mine = set(names)
        found = [", ".join(group) for group in groups.values() if len(group) > 1 and mine.intersection(group)]
        shown = [*found[:_MOST_TIED], *(["…"] if len(found) > _MOST_TIED else [])]
        return {TIED: "; ".join(shown)} if shown else {}

    def flow_from(self, names: Iterable[str]) -> list[Call]:
        """Every call that used something computed from the named parameters, in order."""
        wanted = set(names)
        return self.trace.ahead(v for v, value in enumerate(self.trace.values) if value.parameter in wanted)

    def behind(self, calls: Iterable[Call], *, floating: bool = False) -> set[str]:
        """The parameters that flow into any of these calls; with ``floating``, without going through integers."""
        values = self.trace.values
        tensors = {values[number].parameter for number in self._sources(calls, floating)} - {""}
        return {name for name, number in self.trace.parameters.items() if values[number].parameter in tensors}

    def computed(self, calls: Iterable[Call]) -> bool:
        """Whether a parameter, or data that the model does not hold, flows into any of these calls."""
        found = (self.trace.values[number] for number in self._sources(calls))
        return any(v.parameter or (v.maker < 0 and v.floating and not v.buffer and not v.attribute) for v in found)

    def _sources(self, calls: Iterable[Call], floating: bool = False) -> set[int]:
        values, inputs = self.trace.values, (number for call in calls for number in call.inputs)
        return self.trace.sources(inputs, (lambda n: values[n].floating or values[n].python) if floating else None)


def called_by(chain: Chain) -> list[Note]:
    """The user's frame around the innermost one, as a note."""
    return [Note("called_by", locations.locate(chain[1]))] if len(chain) > 1 else []


def by_line(findings: Iterable[Finding]) -> list[Finding]:
    """Of these findings, the first at each line of code; those that have none are left out."""
    found: dict[tuple[str, int], Finding] = {}
    for one in findings:
        if one.location is not None:
            found.setdefault((one.location.file, one.location.line), one)
    return list(found.values())


class Beside:
    """Some calls, to be found by those that are on one line with them, or part of the same expression."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._lines: dict[tuple[str, int], dict[int, Call]] = {}
        for call in calls:
            for line in _lines(call):
                self._lines.setdefault(line, {})[call.index] = call

    def __bool__(self) -> bool:
        return bool(self._lines)

    def of(self, call: Call) -> Iterator[Call]:
        """The calls that are on one line with another, or of which one is part of the expression of the other."""
        for line in _lines(call):
            yield from (other for other in self._lines.get(line, {}).values() if one_place(call, other))


def _lines(call: Call) -> list[tuple[str, int]]:
    """The lines that the expression of a call stands on."""
    if not call.chain:
        return []
    (code, _), node, line = call.chain[0], locations.node_at(call.chain[0]), locations.line_of(call.chain[0])
    first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", None) or line
    return [(code.co_filename, at) for at in {*range(first, last + 1), line}]


def one_place(one: Call, other: Call) -> bool:
    """Whether two calls are on one line, or one is part of the expression of the other."""
    return at_one_place(one.chain, other.chain)


def at_one_place(one: Chain, other: Chain) -> bool:
    """Likewise, of the user's frames of both."""
    if not one or not other:
        return False
    mine, its = one[0], other[0]
    same = mine[0].co_filename == its[0].co_filename and locations.line_of(mine) == locations.line_of(its)
    return same or locations.holds(mine, its) or locations.holds(its, mine)


def line_of(call: Call) -> tuple[str, int] | None:
    """File and line of a call."""
    return (call.chain[0][0].co_filename, locations.line_of(call.chain[0])) if call.chain else None


def of_error(
    cause: str, e: Evidence, mishap: AutogradError, spot: Location | None, *, call: str = "", proof: str = OBSERVED,
    names: Sequence[str] = (), chain: Chain | None = None, **facts: str,
) -> Finding:  # fmt: skip
    """A finding about the error that autograd raised, with its message among the facts."""
    chain = mishap.chain if chain is None else chain
    there = locations.innermost(chain)
    beside = spot is None or there is None or (spot.file, spot.function) == (there.file, there.function)
    notes = called_by(chain) if beside else []
    told = {"error": mishap.message.splitlines()[0].split(". ")[0], **facts}
    revived = tuple(n for n in e.wanted if n in (e.shown.mended.revived or ())) if proof == PROVEN else ()
    return Finding(
        cause,
        spot,
        tuple(notes),
        proof=proof,
        parameters=tuple(names),
        call=call,
        revived=revived,
        reruns=e.shown.mended.runs,
        facts=told,
    )


def same_line(one: Location, other: Location) -> bool:
    """Whether two places stand in one line of code."""
    return (one.file, one.line) == (other.file, other.line)


def searched(spot: Location | None) -> str:
    """How sure a finding is whose line was looked for in the source: only what names no line was observed."""
    return OBSERVED if spot is None else LIKELY
