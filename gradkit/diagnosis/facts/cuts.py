"""Decide, from a trace, which calls cut the gradient of which parameters.

For every value the cheapest way to the loss is worked out, from the loss backwards: a way costs nothing where the
gradient can follow and something at every call or region that cuts it. The cuts on a starved parameter's cheapest way
are what must be undone to give it a gradient: all of them, also those that stand one behind the other. Ways that nobody
means to be differentiated cost more: through an index, through one number that scales many, through a tensor that
outlives the step (a memory bank, a moving average), and where what was cut joins what is alive (a weight, a target:
such a stop can be meant) other than as a term of the loss.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gradkit.core import operations
from gradkit.core.operations import ADDS, CASTS, COPIES, FILLED, MAYBE_NEW, NEW, writes
from gradkit.core.trace import BACKWARD, CHECKPOINT, FUNCTION, OF_HOOKS, SAMPLE, Call, Chain, Key, Region, Trace, Value

DETACH, DATA, ESCAPE, REWRAP, CAST, OPERATION, REGION, UNDECLARED = (
    "detach", "data", "escape", "rewrap", "cast", "operation", "region", "undeclared",
)  # fmt: skip

INDEX, SPREAD, JOIN, STATE = "index", "spread", "join", "state"
_INDEXED = frozenset(
    """
    __getitem__ __setitem__ gather index_select embedding embedding_bag cross_entropy nll_loss scatter scatter_
    scatter_add scatter_add_ index_add index_add_ index_put index_put_ index_fill take take_along_dim where masked_fill
    masked_fill_ masked_select scaled_dot_product_attention repeat_interleave one_hot split
    """.split()
)
# What a way pays. Only which of two ways is the cheaper matters, so these are measured by one line to change.
_LINE = 1.0
_NO_DERIVATIVE = 1.25  # argmax and the like have to be written anew, where a detach is only taken out
_DRAWN = 1.5  # what is sampled is seldom meant to be differentiated
_BY_INDEX = 0.5  # nor is an index; but one line and an index are still less than two lines
_DETOUR = 0.25  # a stop that can be meant: one of them decides between ways that are cut alike, and no more
_OUTLIVES = 10.0  # a way through what is kept for later steps comes after every other that there is in this one
_TIE = 1e-9  # sums of floats that differ by less are the same
_COST = {DETACH: _LINE, DATA: _LINE, ESCAPE: _LINE, REWRAP: _LINE, CAST: _LINE, OPERATION: _NO_DERIVATIVE}
_SUMS = ADDS | {"sum", "stack"}

_ALIASES = {"data": DATA, "detach": DETACH}

Mark = tuple[str, int]  # (kind, index of the call), or (REGION, index of the region)


@dataclass(frozen=True)
class Cut:
    """One place that cuts.

    Attributes:
        kind: ``"detach"``, ``"data"``, ``"escape"`` (leaves torch), ``"rewrap"`` (a new tensor made of tensors),
            ``"cast"`` (to an integer dtype), ``"operation"`` (has no derivative), ``"region"`` (grad mode off) or
            ``"undeclared"`` (used inside a custom Function that it was not handed to).
        key: equal for the same place in every run.
        calls: indices of the calls at this place that lost the gradient, in order.
        region: index of the region, -1 if it is a call.
        parameters: names of the parameters that get no gradient because of it.
    """

    kind: str
    key: Key
    calls: tuple[int, ...]
    region: int
    parameters: tuple[str, ...]


@dataclass
class _Way:
    cost: float
    following: Call | None
    steps: list[tuple[int, tuple[Mark, ...]]] = field(default_factory=list)
    leaves: bool = False  # it goes out of torch next, as itself or a copy


@dataclass(frozen=True)
class Verdict:
    """What stands between the starved parameters and the loss.

    Attributes:
        cuts: the places that cut, in the order of the run.
        unconnected: starved parameters from which nothing flows into the loss.
        unexplained: starved parameters whose way to the loss shows no cut.
        reaching: numbers of the values that flow into the loss.
    """

    cuts: tuple[Cut, ...]
    unconnected: tuple[str, ...]
    unexplained: tuple[str, ...]
    reaching: frozenset[int]


def find(trace: Trace, starved: Iterable[str]) -> Verdict:
    """The cuts that starve the parameters ``starved`` (names).

    Example:
        >>> from gradkit.core.trace import Value
        >>> call = lambda i, name, a, b, on=True: Call(i, name, (a,), (b,), on, (), -1, (), i)
        >>> live = Value(-1, (2,), True, True, "w")
        >>> trace = Trace((call(0, "mul", 0, 1), call(1, "detach", 1, 2), call(2, "sum", 2, 3)),
        ...     (live, Value(0, (2,), True, True), Value(1, (2,), True, False), Value(2, (), True, False)),
        ...     (), (), 3, {"w": 0})
        >>> [(cut.kind, cut.calls, cut.parameters) for cut in find(trace, ["w"]).cuts]
        [('detach', (1,), ('w',))]
    """
    ways, starts = _ways(trace), _starts(trace)
    begun: dict[str, list[int]] = {}
    unconnected = []
    for name in starved:
        ends = [v for v in starts.get(name, ()) if v in ways]
        least = min((ways[v].cost for v in ends), default=0.0)
        begun[name] = [v for v in ends if ways[v].cost < least + _TIE]
        if not ends:
            unconnected.append(name)
    passed = _passed(trace, ways, begun.values())
    places = _Places(trace, ways, passed)
    behind = places.behind(passed)
    names: list[list[str]] = [[] for _ in places.found]
    unexplained = []
    for name, ends in begun.items():
        on_way = functools.reduce(operator.or_, (behind[v] for v in ends), 0)
        if ends and not on_way:
            unexplained.append(name)
        for at in _ones(on_way):
            names[at].append(name)
    cuts = [
        Cut(kind, key, tuple(sorted(calls)), region, tuple(starving))
        for (key, (kind, region, calls)), starving in zip(places.found.items(), names, strict=True)
    ]
    cuts = _blameless_checkpoints(trace, sorted(cuts, key=lambda cut: cut.calls[:1]))
    return Verdict(tuple(cuts), tuple(unconnected), tuple(unexplained), frozenset(ways))


def past_functions(verdict: Verdict, trace: Trace, connected: Collection[str]) -> Verdict:
    """A verdict that blames no custom Function's forward for parameters which the graph behind the loss holds.

    What autograd does not record in there is what backward is written for; where that hands nothing on, it is at fault.

    Args:
        connected: the names of the parameters in the graph.
    """
    cuts, left = list[Cut](), dict[str, None]()
    for cut in verdict.cuts:
        spared = cut.kind == REGION and trace.regions[cut.region].kind == FUNCTION
        names = tuple(name for name in cut.parameters if not spared or name not in connected)
        left.update(dict.fromkeys(name for name in cut.parameters if name not in names))
        cuts += [replace(cut, parameters=names)] if names else []
    cut_off = {name for cut in cuts for name in cut.parameters}
    unexplained = (*verdict.unexplained, *(name for name in left if name not in cut_off))
    return replace(verdict, cuts=tuple(cuts), unexplained=unexplained)


@dataclass(frozen=True)
class Toll:
    """One step on a way to the loss, and what it costs.

    Attributes:
        call: index of the call that is passed.
        price: what that costs; 0 where the gradient can follow.
        cuts: the cuts that are paid for: kind and index of the call, or ``"region"`` and index of the region.
        detours: why the way may not be meant to be differentiated, which is paid for as well: ``"index"``,
            ``"spread"`` (one number scales many), ``"join"`` (what was cut joins what is alive) or ``"state"`` (through
            a tensor that outlives the step).
    """

    call: int
    price: float
    cuts: tuple[Mark, ...] = ()
    detours: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheapestWay:
    """The cheapest way of a parameter to the loss; one of them, where several cost the same.

    Attributes:
        parameter: its name.
        cost: of the whole way; 0 where nothing flows into the loss.
        tolls: its steps, from the parameter to the loss; ``()`` where nothing flows into the loss.
    """

    parameter: str
    cost: float = 0.0
    tolls: tuple[Toll, ...] = ()


def cheapest(trace: Trace, names: Iterable[str]) -> tuple[CheapestWay, ...]:
    """By which way ``find`` took each of these parameters to the loss, and what it paid where.

    Example:
        >>> from gradkit.core.trace import Value
        >>> trace = Trace((Call(0, "detach", (0,), (1,), True, (), -1, (), 0),),
        ...     (Value(-1, (), True, True, "w"), Value(0, (), True, False)), (), (), 1, {"w": 0})
        >>> cheapest(trace, ["w"])[0].tolls
        (Toll(call=0, price=1.0, cuts=(('detach', 0),), detours=()),)
    """
    ways, starts = _ways(trace), _starts(trace)
    found = []
    for name in names:
        value = min((v for v in starts.get(name, ()) if v in ways), key=lambda v: ways[v].cost, default=None)
        tolls: list[Toll] = []
        cost = ways[value].cost if value is not None else 0.0
        while value is not None and ways[value].steps:
            after, marks = ways[value].steps[0]
            tolls.append(_paid(trace, value, after, ways[value].cost - ways[after].cost, marks))
            value = after
        found.append(CheapestWay(name, cost, tuple(tolls)))
    return tuple(found)


def _paid(trace: Trace, source: int, output: int, price: float, marks: tuple[Mark, ...]) -> Toll:
    """The step from one value to another, by the last call that made one of the other."""
    call = next(c for c in reversed(trace.calls) if source in c.inputs and output in c.outputs)
    detours = [STATE] if call.writes_state else []
    if not any(kind in _COST and index == call.index for kind, index in marks):  # as in _toll
        detours += [name for name, _ in _detours(trace, call, trace.values[source], trace.values[output])]
    return Toll(call.index, price, marks, tuple(detours))


class _Places:
    """The places that cut on some cheapest ways, numbered, each with its kind, its region and its calls."""

    def __init__(self, trace: Trace, ways: dict[int, _Way], passed: Iterable[int]) -> None:
        self.found: dict[Key, tuple[str, int, set[int]]] = {}
        self._trace, self._ways = trace, ways
        self._numbers: dict[Mark, int] = {}
        self._bites = _bites(trace, ways)
        places: dict[Key, int] = {}
        for mark in dict.fromkeys(mark for v in passed for _, marks in ways[v].steps for mark in marks):
            key = self._enter(mark)
            self._numbers[mark] = places.setdefault(key, len(places))

    def _enter(self, mark: Mark) -> Key:
        (kind, index), trace = mark, self._trace
        region = index if kind == REGION else _function(trace, trace.calls[index]) if kind == UNDECLARED else -1
        key = trace.regions[index].key if kind == REGION else (kind, *trace.calls[index].key)
        if kind == UNDECLARED:
            key = (kind, trace.regions[region].key, *inside(trace, trace.calls[index], region))
        _, _, calls = self.found.setdefault(key, (kind, region, set()))
        calls.update(self._bites[index] if kind == REGION else (index,))
        return key

    def behind(self, passed: Sequence[int]) -> dict[int, int]:
        """For every value, the places on all of its cheapest ways: one bit for each, as there may be thousands."""
        found: dict[int, int] = {}
        for value in reversed(passed):
            bits = 0
            for after, marks in self._ways[value].steps:
                bits |= found.get(after, 0)
                for mark in marks:
                    bits |= 1 << self._numbers[mark]
            found[value] = bits
        return found


def _passed(trace: Trace, ways: dict[int, _Way], begun: Iterable[Iterable[int]]) -> list[int]:
    """The values that are passed on the cheapest ways of some others, these included, in the order of the run."""
    needed = {value for ends in begun for value in ends}
    found = []
    for value in sorted(ways, key=lambda v: (trace.values[v].maker, v)):
        if value in needed:
            found.append(value)
            needed.update(after for after, _ in ways[value].steps)
    return found


@functools.lru_cache(maxsize=16)
def _ones(bits: int) -> list[int]:
    """The places of the ones in a number."""
    text = bin(bits)[:1:-1]
    return [at for at in range(len(text)) if text[at] == "1"] if bits else []


def _blameless_checkpoints(trace: Trace, cuts: list[Cut]) -> list[Cut]:
    """Reentrant checkpointing that was handed nothing alive because of another cut is no cut by itself."""
    found = list(cuts)
    for cut in cuts:
        if cut.region < 0 or trace.regions[cut.region].kind != CHECKPOINT:
            continue
        before = [i for i, c in enumerate(found) if c.calls < cut.calls and {*c.parameters} & {*cut.parameters}]
        if before:
            names = dict.fromkeys([*found[before[-1]].parameters, *cut.parameters])
            found[before[-1]] = replace(found[before[-1]], parameters=tuple(names))
            found.remove(cut)
    return found


def _ways(trace: Trace) -> dict[int, _Way]:
    ways: dict[int, _Way] = {trace.loss: _Way(0.0, None)} if trace.loss >= 0 else {}
    aliases = _aliases(trace)
    for call in reversed(trace.calls):
        for output in call.outputs:
            way = ways.get(output)
            if way is None or (call.name == FILLED and way.cost >= _OUTLIVES):
                continue  # a gradient that moves weights is to be a number
            for source in dict.fromkeys(call.made_of(output)):
                marks, cost = _toll(trace, call, source, output, way, aliases.get(source))
                cost += way.cost
                known = ways.get(source)
                if known is None or cost < known.cost - _TIE:
                    after = way.following if _kept(call, source) else call
                    ways[source] = _Way(cost, after, [(output, marks)], _leaves(call, trace.values[output], way))
                elif cost < known.cost + _TIE:
                    known.steps.append((output, marks))
    return ways


def _leaves(call: Call, output: Value, way: _Way) -> bool:
    return output.python or (way.leaves and call.name in COPIES)


def _toll(
    trace: Trace, call: Call, source: int, output: int, way: _Way, alias: Call | None
) -> tuple[tuple[Mark, ...], float]:
    """What it costs to pass ``call`` from ``source`` to ``output``, and the cuts that are paid for."""
    u, w, following = trace.values[source], trace.values[output], way.following
    marks: list[Mark] = []
    cost = _OUTLIVES if call.writes_state else 0.0
    handed = any(trace.regions[index].kind == BACKWARD for index in call.regions)
    if not call.grad_on and not _kept(call, source) and (call.name != FILLED or handed):
        paid = {trace.regions[r].key for r in following.regions} if following is not None else set()
        for index in call.regions:
            region = trace.regions[index]
            recorded = w.requires_grad and (not w.leaf or region.via == OF_HOOKS)
            alive = recorded and region.kind in (FUNCTION, CHECKPOINT)
            if region.key in paid or alive or _handed_nothing_alive(trace, region):
                if region.kind == FUNCTION and _undeclared(trace, source, index):
                    marks.append((UNDECLARED, call.index))
                    cost += _LINE
                continue
            marks.append((REGION, index))
            cost += _DRAWN if region.kind == SAMPLE else _LINE
    kind = "" if _function(trace, call) >= 0 or (call.name == FILLED and handed) else _cutting(call, u, w)
    if kind:
        marks.append((kind, call.index))
        cost += 0.0 if way.leaves and kind in (DETACH, DATA) else _COST[kind]
    elif alias is not None and set(alias.inputs).intersection(call.inputs):
        marks.append((_ALIASES[alias.name], alias.index))
        cost += _COST[_ALIASES[alias.name]]
    elif u.python and call.name in NEW:
        marks.append((REWRAP, call.index))  # it would cut a tensor too, so it is one more line to change, at no cost
    return tuple(marks), cost + (0.0 if kind else _detour(trace, call, u, w))


def _detour(trace: Trace, call: Call, u: Value, w: Value) -> float:
    """What a way costs besides its cuts, where it may not be meant to be differentiated."""
    return sum(price for _, price in _detours(trace, call, u, w))


def _detours(trace: Trace, call: Call, u: Value, w: Value) -> list[tuple[str, float]]:
    found = []
    if not u.floating and not u.python and call.name in _INDEXED:
        found.append((INDEX, _BY_INDEX))
    if not u.parameter and math.prod(u.shape) == 1 < math.prod(w.shape) and not _array(trace, u):
        found.append((SPREAD, _DETOUR))
    term = call.name in _SUMS and math.prod(w.shape) == 1
    if w.requires_grad and not w.leaf and not u.requires_grad and not term:
        found.append((JOIN, _DETOUR))
    return found


def _kept(call: Call, source: int) -> bool:
    """Whether a value is what is written into: it keeps the history that it has, whatever the grad mode."""
    return writes(call.name) and call.inputs[:1] == (source,)


def _aliases(trace: Trace) -> dict[int, Call]:
    """Of every value that was written through the ``.data`` or ``detach()`` of a tensor, the call that made that.

    The tensor sees the numbers, for the memory is shared; it does not see the history of what was written.
    """
    found: dict[int, Call] = {}
    for call in trace.calls:
        if writes(call.name) and call.inputs and call.name != "data=":
            maker = trace.values[call.inputs[0]].maker
            alias = found.get(call.inputs[0]) or (trace.calls[maker] if maker >= 0 else None)
            if alias is not None and alias.name in _ALIASES:
                found.update(dict.fromkeys(call.outputs, alias))
    return found


def _array(trace: Trace, value: Value) -> bool:
    """Whether it left torch as an array or a list, whose shape is not known."""
    return value.python and trace.calls[value.maker].name in ("numpy", "__array__", "tolist")


def _function(trace: Trace, call: Call) -> int:
    """The custom Function that a call ran in."""
    return next((index for index in reversed(call.regions) if trace.regions[index].kind == FUNCTION), -1)


def inside(trace: Trace, call: Call, region: int) -> Chain:
    """Where the ``forward`` of a custom Function was, when it came to ``call``."""
    around = len(trace.regions[region].chain)
    return call.chain[len(call.chain) - around - 1 :][:1] if len(call.chain) > around else call.chain[:1]


def _handed_nothing_alive(trace: Trace, region: Region) -> bool:
    """Whether it is a custom Function that had no reason to be recorded: it cuts what it was not handed, if at all."""
    return region.kind == FUNCTION and not any(trace.values[number].requires_grad for number in region.given)


def _undeclared(trace: Trace, source: int, region: int) -> bool:
    """Whether a value from outside of a custom Function is used in it without having been handed to it."""
    maker = trace.values[source].maker
    made_inside = maker >= 0 and region in trace.calls[maker].regions
    return not made_inside and source not in trace.regions[region].given


def is_hidden(trace: Trace, cut: Cut) -> bool:
    """Whether all that a custom Function uses without having been handed it came to it inside of a container."""
    if cut.kind != UNDECLARED:
        return False
    used = {n for index in cut.calls for n in trace.calls[index].inputs if _undeclared(trace, n, cut.region)}
    used = {n for n in used if trace.values[n].requires_grad}
    return bool(used) and used.issubset(trace.regions[cut.region].hidden)


def _cutting(call: Call, u: Value, w: Value) -> str:
    """The kind of cut that a call is by itself, whatever the grad mode; ``""`` if the gradient can follow."""
    if call.name in ("detach", "detach_"):
        return DETACH
    if call.name in ("data", "data="):
        return DATA
    if w.python:
        return ESCAPE
    if u.python:
        return ""
    if call.name == FILLED:
        return OPERATION if u.requires_grad and not w.requires_grad else ""
    if call.name in operations.NAMES or call.name in NEW or (call.name in MAYBE_NEW and u.shape != w.shape):
        return REWRAP
    if u.floating and not w.floating:
        return CAST if call.name in CASTS else OPERATION
    if call.grad_on and u.floating and w.floating and u.requires_grad and not w.requires_grad:
        return OPERATION
    return ""


def _starts(trace: Trace) -> dict[str, list[int]]:
    """The values that stand for each parameter: itself, and its later versions after in-place writes."""
    versions: dict[str, list[int]] = {}
    for number, value in enumerate(trace.values):
        if value.parameter:
            versions.setdefault(value.parameter, []).append(number)
    return {name: versions.get(trace.values[number].parameter, [number]) for name, number in trace.parameters.items()}


def _bites(trace: Trace, ways: dict[int, _Way]) -> dict[int, set[int]]:
    """Of every region, the calls that something on a way to the loss passed through."""
    found: dict[int, set[int]] = {index: set() for index in range(len(trace.regions))}
    for call in trace.calls:
        if call.regions and any(output in ways for output in call.outputs):
            for region in call.regions:
                found[region].add(call.index)
    return found
