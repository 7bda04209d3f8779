"""All that the naming of causes may look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gradkit import frames
from gradkit.cuts import Verdict
from gradkit.handing import Built
from gradkit.inventory import Adapter, Hidden
from gradkit.mending import Mended
from gradkit.mishaps import Mishap
from gradkit.optimizers import Gap
from gradkit.ran import Ran
from gradkit.reach import Dropped, Reached
from gradkit.records import Finding, Note, Parameter
from gradkit.scalers import Misuse
from gradkit.stale import Kept
from gradkit.traces import Call, Chain, Trace
from gradkit.unhooked import Silencer
from gradkit.vanishing import Vanishing


@dataclass(frozen=True)
class Evidence:
    """What a diagnosis knows before it is put into words.

    Attributes:
        unregistered: tensors that should train and are no parameters of the model.
        gap: parameters that the optimizers do not hold.
        no_op_flags: a module carries a plain attribute ``requires_grad``, which does nothing.
        not_finite: parameters whose gradient holds nan or inf.
        spoiler: index of the call whose derivative made it so, -1 if not known.
        revived: parameters that came alive in the rerun, None if there was none.
        rerun_error: what the step raised in the rerun, ``""`` if nothing.
        reruns: how many reruns there were.
        files: the user's source files that take part.
        callers: the user's frames around the call of ``diagnose``, innermost first.
        classes: class of every module of the model, by path.
        settings: plain attributes of every module of the model, by path.
        mishap: an error of autograd's that the step or the backward raised.
        mended: what a rerun without it showed.
        misuses: what the step did with a gradient scaler out of order.
        dropped: custom Functions whose backward let the gradient end.
        vanishing: calls that hand on a gradient of exactly zero.
        nan_loss: the loss is nan.
        silencers: hooks that keep parameters from learning.
        explicit: what should train was named by the user.
        kept: what holds values without history that were there before the step, and what comes of a step without it.
        crossing: the calls that used a history which is freed, and the value that brought it.
    """

    trace: Trace
    verdict: Verdict
    rows: tuple[Parameter, ...]
    reached: Reached
    adapters: tuple[Adapter, ...] = ()
    unregistered: tuple[Hidden, ...] = ()
    gap: Gap = field(default_factory=Gap)
    no_op_flags: bool = False
    not_finite: tuple[str, ...] = ()
    spoiler: int = -1
    revived: frozenset[str] | None = None
    rerun_error: str = ""
    reruns: int = 0
    files: tuple[str, ...] = ()
    callers: Chain = ()
    classes: dict[str, type] = field(default_factory=dict)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    mishap: Mishap | None = None
    mended: Mended = field(default_factory=Mended)
    misuses: tuple[Misuse, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    vanishing: tuple[Vanishing, ...] = ()
    nan_loss: bool = False
    silencers: tuple[Silencer, ...] = ()
    explicit: bool = False
    crossing: tuple[tuple[Call, int], ...] = ()
    kept: tuple[Kept, ...] = ()

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
    def ran(self) -> Ran:
        """Which functions of the user's ran."""
        return Ran(call.chain for call in self.trace.calls)

    @cached_property
    def near(self) -> tuple[str, ...]:
        """The qualified names of the functions that ran, and of those that called for the diagnosis."""
        codes = dict.fromkeys(code for call in self.trace.calls for code, _ in call.chain)
        return tuple(frames.qualified_name(code) for code in (*codes, *(code for code, _ in self.callers)))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Parameters that should train."""
        return tuple(row.name for row in self.rows if row.should_train)

    @property
    def starved(self) -> tuple[str, ...]:
        """Parameters that should train and that backward does not reach."""
        return tuple(row.name for row in self.rows if row.should_train and not row.reached)

    def way_to(self, parameter: str) -> list[tuple[type, str]]:
        """The class of each module on the way to a parameter, and the attribute taken from it."""
        return [(self.classes[path], part) for path, part in self._way(parameter)]

    def built_on(self, parameter: str) -> list[Built]:
        """What each module on the way to a parameter is now."""
        trains = any(row.requires_grad for row in self.rows if row.name == parameter)
        return [Built(self.classes[path], self.settings.get(path, {}), trains) for path, _ in self._way(parameter)]

    def _way(self, parameter: str) -> list[tuple[str, str]]:
        parts = parameter.split(".")
        ways = ((".".join(parts[:i]), part) for i, part in enumerate(parts))
        return [(path, part) for path, part in ways if path in self.classes]

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
    return [Note("called_by", frames.locate(chain[1]))] if len(chain) > 1 else []


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
    (code, _), node, line = call.chain[0], frames.node_at(call.chain[0]), frames.line_of(call.chain[0])
    first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", None) or line
    return [(code.co_filename, at) for at in {*range(first, last + 1), line}]


def one_place(one: Call, other: Call) -> bool:
    """Whether two calls are on one line, or one is part of the expression of the other."""
    if not one.chain or not other.chain:
        return False
    mine, its = one.chain[0], other.chain[0]
    return line_of(one) == line_of(other) or frames.holds(mine, its) or frames.holds(its, mine)


def line_of(call: Call) -> tuple[str, int] | None:
    """File and line of a call."""
    return (call.chain[0][0].co_filename, frames.line_of(call.chain[0])) if call.chain else None
