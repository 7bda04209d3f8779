"""Numbers that left torch and came back into the loss as bare ones: the step is run with others in their place.

``float(x)`` and much of NumPy hand out plain numbers, which remember nothing of the tensor that they were computed
from. That one of them takes part in the loss is seen by the loss: with a number that is a little larger it moves one
way, with one that is a little smaller the other way. What is logged only, or decides a branch, does not do so.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import Call, Key, Trace, spot
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import Cut, Verdict
from gradkit.source import dataflow, faults, locations, syntax
from gradkit.tracing.interventions import Intervention, Moment
from gradkit.tracing.run import Session

_EXITS = frozenset("item tolist numpy __array__ __float__".split())
_SAYING = frozenset("print debug info warning log write add_scalar add_scalars set_postfix set_description".split())
_STEP, _CLOSE, _MOST = 1e-3, 1e-7, 6


@dataclass(frozen=True)
class Numbers:
    """What the runs showed.

    Attributes:
        ways: of each number that takes part in the loss, the index of the call by which it left torch, and of that
            which took it in again.
        runs: how many times the step was run.
    """

    ways: tuple[tuple[int, int], ...] = ()
    runs: int = 0

    @property
    def left(self) -> tuple[int, ...]:
        """Indices of the calls by which the numbers left torch."""
        return tuple(left for left, _ in self.ways)

    @property
    def back(self) -> tuple[int, ...]:
        """Indices of the calls that took them in."""
        return tuple(dict.fromkeys(back for _, back in self.ways))


def exits(trace: Trace, names: Iterable[str]) -> dict[Key, list[Call]]:
    """The calls by which something computed from the named parameters left torch, by their places.

    Left out is what came by way of integers: a reward of what was chosen is a number by nature.

    Example:
        >>> from gradkit.core.trace import Value
        >>> trace = Trace((Call(0, "item", (0,), (1,), True, (), -1, ((exits.__code__, 0),), 0),),
        ...     (Value(-1, (), True, True, "w"), Value(0, (), False, False, python=True)), (), (), -1, {"w": 0})
        >>> [[call.name for call in calls] for calls in exits(trace, ["w"]).values()]
        [['item']]
    """
    wanted, starts = _numbers_of(trace, names)
    found: dict[Key, list[Call]] = {}
    for call in trace.ahead(starts):
        asked = call.name in _EXITS and call.chain and any(trace.values[n].floating for n in call.inputs)
        if asked and not _is_only_said(call) and wanted & _behind(trace, [call]):
            found.setdefault(call.key, []).append(call)
    return found


def _numbers_of(trace: Trace, names: Iterable[str]) -> tuple[set[str], list[int]]:
    """What a trace calls the named parameters, and the values that stand for them."""
    wanted = {trace.values[trace.parameters[name]].parameter for name in names}
    return wanted, [number for number, value in enumerate(trace.values) if value.parameter in wanted]


def _behind(trace: Trace, calls: Iterable[Call]) -> set[str]:
    """The parameters that flow into some calls without going through integers, as a trace calls them."""
    values, inputs = trace.values, [number for call in calls for number in call.inputs]
    found = trace.sources(inputs, lambda number: values[number].floating or values[number].python)
    return {values[number].parameter for number in found}


def _is_only_said(call: Call) -> bool:
    """Whether a number stands in what is printed or logged, by a statement that does nothing else."""
    code, _ = call.chain[0]
    statement = dataflow.statement_at(code, locations.line_of(call.chain[0]))
    said = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(said, ast.Call) and syntax.call_name(said) in _SAYING


def ask(session: Session, trace: Trace, names: Iterable[str], loss: torch.Tensor | None) -> Numbers:
    """Run the step with other numbers in the place of those that the named parameters' values left torch as.

    Args:
        trace: of the first run.
        loss: what it came to; without it nothing is asked.
    """
    places = exits(trace, names)
    asking = _Asking(session, trace, places)
    if loss is None or not places or not _is_same(asking.run((), 0.0).loss, loss):
        return Numbers(runs=asking.runs)
    if _is_same(asking.run(places, _STEP).loss, loss):
        return Numbers(runs=asking.runs)
    ways: list[tuple[int, int]] = []
    for key, calls in list(places.items())[:_MOST]:
        back = asking.taken_in(key)
        ways += [(call.index, back) for call in calls if call.index < back]
    return Numbers(tuple(ways), asking.runs)


def joined(trace: Trace, found: Numbers) -> Trace:
    """The trace with the numbers among what goes into the calls that took them in."""
    calls = list(trace.calls)
    for left, back in found.ways:
        given = dict.fromkeys((*calls[back].inputs, *calls[left].outputs))
        calls[back] = replace(calls[back], inputs=tuple(given))
    return replace(trace, calls=tuple(calls))


def blame(trace: Trace, verdict: Verdict, found: Numbers) -> Verdict:
    """The same, with what cuts off the parameters from which only numbers flow into the loss.

    Args:
        trace: with these numbers joined.
    """
    behind = _behind(trace, (trace.calls[index] for index in found.left))
    mine = [name for name in verdict.unconnected if trace.values[trace.parameters[name]].parameter in behind]
    told, known = cuts.find(trace, mine), {cut.key: cut for cut in verdict.cuts}
    for cut in told.cuts:
        known[cut.key] = _both(known[cut.key], cut) if cut.key in known else cut
    left = tuple(name for name in verdict.unconnected if name not in mine or name in told.unconnected)
    together = tuple(sorted(known.values(), key=lambda cut: cut.calls[:1]))
    return Verdict(together, left, (*verdict.unexplained, *told.unexplained), told.reaching)


def _both(one: Cut, other: Cut) -> Cut:
    calls, names = {*one.calls, *other.calls}, dict.fromkeys((*one.parameters, *other.parameters))
    return replace(one, calls=tuple(sorted(calls)), parameters=tuple(names))


@dataclass(frozen=True)
class _Answer:
    loss: torch.Tensor | None = None
    sums: Mapping[int, tuple[str, float]] | None = None


class _Asking:
    """Runs the step with numbers moved, and compares with the run in which none was."""

    def __init__(self, session: Session, trace: Trace, places: Mapping[Key, Sequence[Call]]) -> None:
        self._session, self._trace, self._places = session, trace, places
        self._before = _Answer()
        self.runs = 0

    def run(self, keys: Iterable[Key], step: float) -> _Answer:
        """The run with the numbers of some places moved; others are compared to the first of all, that moves none."""
        moved = _Moved({key: len(self._places[key]) for key in keys}, step)
        self.runs += 1
        try:
            loss = self._session.ask(lambda tracer, result: tracer.ledger.scalars.get(tracer.trace(result).loss), moved)
        except Exception as error:
            if faults.is_ours(error):
                raise
            return _Answer()  # the step may refuse other numbers
        answer = _Answer(loss, moved.sums)
        self._before = answer if self._before.loss is None else self._before
        return answer

    def taken_in(self, key: Key) -> int:
        """Index of the call by which the numbers of one place come into the loss; -1 if they do not."""
        up, down, before = self.run([key], _STEP), self.run([key], -_STEP), self._before.loss
        if up.loss is None or down.loss is None or before is None or up.sums is None:
            return -1
        if _is_same(up.loss, before) or float((up.loss - before) * (down.loss - before)) >= 0:
            return -1
        reaching, known = self._trace.sources([self._trace.loss]), self._before.sums or {}
        calls = (call for call in self._trace.calls if reaching.intersection(call.outputs))
        moved = (c.index for c in calls if c.index in up.sums and up.sums[c.index] != known.get(c.index))
        return next(moved, -1)


class _Moved(Intervention):
    """Hands out other numbers at some places, as often as they were asked for in the first run, and sums up tensors.

    Attributes:
        sums: of what each call has made, by its index, with the name of the call.
    """

    def __init__(self, often: dict[Key, int], step: float) -> None:
        self._left, self._step = often, step
        self.sums: dict[int, tuple[str, float]] = {}

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Move a number that is asked about; of a tensor, note the sum."""
        if name in _EXITS and self._left:
            key = (name, *spot(moment.chain()))
            self._left[key] = self._left.get(key, 0) - 1
            return _moved(result, self._step) if self._left[key] >= 0 else result
        if type(result) is torch.Tensor and result.is_floating_point() and not has_no_numbers(result):
            self.sums[moment.index] = (name, _sum(result))
        return result


@torch.no_grad()
def _sum(tensor: torch.Tensor) -> float:
    with torch._C.DisableTorchFunction():
        return float(torch.nan_to_num(tensor.detach()).double().sum()) if tensor.layout is torch.strided else 0.0


def _moved(value: Any, step: float, place: int = 0) -> Any:
    """A number, a list or an array of floats, by a small part of itself more; nought by a little.

    Those of several move each by another part: a direction is the same whatever its length.
    """
    if isinstance(value, list):
        return [_moved(one, step, at) for at, one in enumerate(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        steps = step * (1 + 0.5 * np.cos(np.arange(value.size, dtype=np.float64))).reshape(value.shape)
        return (value + np.where(value == 0, 1, value) * steps).astype(value.dtype)
    if type(value) is float:
        return value + (value or 1.0) * step * (1 + 0.5 * math.cos(place))
    return value


def _is_same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and torch.allclose(one, other, rtol=_CLOSE, atol=0)
