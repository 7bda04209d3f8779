"""The terms of a loss: what is added up to it, where each was made, and which leaves it gives a gradient to.

The calls of a run tell all of them, also those that autograd knows nothing of (``terms``). While its graph is alive,
that tells which leaves a term really moves (``reached_by``). A weight, a mean or a change of shape around a sum leaves
its terms what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradkit.core import patches
from gradkit.core.operations import ADDS, SCALES
from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import CHECKPOINT, FUNCTION, Call, Trace
from gradkit.tracing import backward

MOST, LARGEST = 6, 5000
_MOST_TERMS = 64
_SUBTRACTS = frozenset("sub __sub__ __isub__ sub_ subtract".split())
_FROM = frozenset("__rsub__ rsub".split())
_SUMS = ADDS | _SUBTRACTS | _FROM | frozenset("stack cat concat hstack".split())
_SHAPES = frozenset(
    "mean sum squeeze unsqueeze view reshape flatten ravel clone contiguous to float double half bfloat16 cpu cuda "
    "expand type".split()
)
_SUM_NODES = ("AddBackward0", "SubBackward0", "RsubBackward1", "StackBackward0", "CatBackward0")
_PASSED_NODES = (
    "MulBackward0", "DivBackward0", "NegBackward0", "MeanBackward0", "SumBackward0", "SqueezeBackward0",
    "ViewBackward0", "ReshapeAliasBackward0", "ToCopyBackward0", "CloneBackward0",
)  # fmt: skip


@dataclass(frozen=True)
class Term:
    """Something that is added to a loss.

    Attributes:
        number: of the value that is added, with its weight.
        made: the call that made it, before it was weighed or changed its shape; None if it is older than the step.
        added: index of the call that adds it.
        loss: which loss it belongs to, counted from 0, where the step goes backward from several.
        value: what it adds to the loss; None if that is not known.
        weightless: the call that multiplies it by zero; None as a rule.
        parameters: those that it hands a gradient to.
        alive: it hands some leaf a gradient.
        within: the values between it and its making.
    """

    number: int
    made: Call | None
    added: int
    loss: int = 0
    value: float | None = None
    weightless: Call | None = None
    parameters: tuple[str, ...] = ()
    alive: bool = True
    within: tuple[int, ...] = ()


def terms(
    trace: Trace, losses: Iterable[int], scalars: Mapping[int, Any] | None = None, reached: Iterable[str] = ()
) -> tuple[Term, ...]:
    """The terms of some losses, in the order in which they are added; none if not one of them is a sum.

    Args:
        losses: numbers of the values that backward begins from.
        scalars: single numbers by the number of their value, as ``Ledger.scalars`` has them.
        reached: the parameters that backward reached.

    Example:
        >>> from gradkit.core.trace import Value
        >>> here = ((terms.__code__, 0),)
        >>> call = lambda i, name, inputs, out: Call(i, name, inputs, (out,), True, (), -1, here, i)
        >>> live, dead = Value(-1, (), True, True, "w", leaf=True), Value(-1, (), True, False)
        >>> made = Value(1, (), True, True)
        >>> trace = Trace((call(0, "mul", (0,), 2), call(1, "add", (2, 1), 3)),
        ...     (live, dead, replace(made, maker=0), made), (), (), 3, {"w": 0})
        >>> [(one.number, one.alive, one.parameters) for one in terms(trace, [3], {}, ["w"])]
        [(2, True, ('w',)), (1, False, ())]
    """
    known = (number for number in dict.fromkeys(losses) if number >= 0)
    each = [_Sum(trace, scalars or {}, place).terms(number) for place, number in enumerate(known)]
    found = [term for one in each for term in one] if any(len(one) > 1 for one in each) else []
    return _with_reach(trace, found[:_MOST_TERMS], frozenset(reached))


class _Sum:
    """Takes one loss apart."""

    def __init__(self, trace: Trace, scalars: Mapping[int, Any], place: int) -> None:
        self._trace, self._scalars, self._place = trace, scalars, place
        self._worked_out: dict[int, float] = {}

    def terms(self, loss: int) -> list[Term]:
        found: list[Term] = []
        waiting: list[tuple[int, int, float | None, Call | None]] = [(loss, -1, 1.0, None)]
        while waiting and len(found) <= _MOST_TERMS:
            number, added, factor, nothing = waiting.pop()
            path, weight, zero = self._core(number)
            parts = self._parts(path[-1])
            factor_in = None if factor is None or weight is None else factor * weight
            if parts:
                self._work_out(path[-1], parts)
                maker = self._trace.values[path[-1]].maker
                factors = [None if factor_in is None else factor_in * sign for _, sign in parts]
                signed = zip(parts, factors, strict=True)
                waiting.extend([(n, maker, by, nothing or zero) for (n, _), by in signed][::-1])
                continue
            value = self._number(number)
            told = None if value is None or factor is None else factor * value
            found.append(
                Term(number, self._made(path, added), added, self._place, told, nothing or zero, within=tuple(path))
            )
        return found

    def _core(self, number: int) -> tuple[list[int], float | None, Call | None]:
        """The values from this one to what it is a weighted form of, what they differ by, and what makes that zero."""
        path, weight, zero = [number], 1.0, None
        while (call := self._maker(path[-1])) is not None and (inner := self._inner(call)) is not None:
            if call.name in SCALES:
                outer, within = self._number(path[-1]), self._number(inner)
                zero = call if zero is None and outer == 0 and within not in (None, 0) else zero
                weight = math.nan if outer is None or not within else weight * outer / within
            elif len(self._trace.values[inner].shape) > 0:
                weight = math.nan
            path.append(inner)
        return path, None if math.isnan(weight) else weight, zero

    def _inner(self, call: Call) -> int | None:
        """What a call weighs or reshapes; None if it does anything else."""
        values = self._trace.values
        inputs = [n for n in dict.fromkeys(call.inputs) if values[n].floating or values[n].python]
        if call.name in _SHAPES:
            return inputs[0] if len(inputs) == 1 else None
        if call.name not in SCALES or not inputs:
            return None
        if len(inputs) == 1:
            return inputs[0] if len(call.inputs) == 1 else None
        alive = [n for n in inputs if values[n].requires_grad]
        weights = [n for n in inputs if not values[n].requires_grad and math.prod(values[n].shape) == 1]
        divided = call.name.startswith(("div", "__truediv", "__itruediv")) and alive != inputs[:1]
        return alive[0] if len(alive) == 1 and len(weights) == len(inputs) - 1 and not divided else None

    def _parts(self, number: int) -> list[tuple[int, int]]:
        """What a sum is made of, with the sign of each; ``[]`` if it is no sum of the kind that makes a loss."""
        call, values = self._maker(number), self._trace.values
        if call is None or call.name not in _SUMS or not call.chain:
            return []
        if sum(size > 1 for size in values[number].shape) > 1 and call.module >= 0:
            return []  # what a network adds up is no sum of losses
        inputs = [n for n in call.inputs if values[n].floating or values[n].python]
        if len(inputs) != len(call.inputs) or not inputs:
            return []
        signs = [1] * len(inputs)
        if call.name in _FROM:
            signs[0] = -1
        elif call.name in _SUBTRACTS and len(inputs) > 1:
            signs[1] = -1
        return list(zip(inputs, signs, strict=True))

    def _work_out(self, number: int, parts: list[tuple[int, int]]) -> None:
        """What a number that left torch adds: Python may have made another of it, but the sum is known."""
        total = self._number(number)
        out = [(n, sign) for n, sign in parts if self._trace.values[n].python]
        rest = [(self._number(n), sign) for n, sign in parts if not self._trace.values[n].python]
        if total is not None and len(out) == 1 and all(value is not None for value, _ in rest):
            left, sign = out[0]
            self._worked_out[left] = (total - sum(value * by for value, by in rest if value is not None)) * sign

    def _maker(self, number: int) -> Call | None:
        maker = self._trace.values[number].maker
        return self._trace.calls[maker] if maker >= 0 and not self._trace.values[number].leaf else None

    def _made(self, path: list[int], added: int) -> Call | None:
        """The call that made a term: the last that does not stand in the place where it is added."""
        calls = [call for number in path if (call := self._maker(number)) is not None]
        place = self._trace.calls[added].chain[:1] if added >= 0 else ()
        elsewhere = (call for call in calls if call.chain[:1] != place and call.name not in SCALES)
        return next(elsewhere, calls[-1] if calls else None)

    def _number(self, number: int) -> float | None:
        if self._trace.values[number].python:
            return self._worked_out.get(number)
        one = self._scalars.get(number)
        return None if one is None or has_no_numbers(one) else float(one)


def _with_reach(trace: Trace, found: list[Term], reached: frozenset[str]) -> tuple[Term, ...]:
    numbers = [one.number for one in found]
    behind, ended = leaves_behind(trace, numbers), ends_in_the_step(trace, numbers)
    made = []
    for one, leaves, end in zip(found, behind, ended, strict=True):
        names = dict.fromkeys(trace.values[n].parameter for n in leaves)
        told = tuple(name for name in names if name and (name in reached or not reached))
        alive = bool(leaves) or (trace.values[one.number].requires_grad and not end)  # not all that is recorded is seen
        made.append(replace(one, parameters=told, alive=alive))
    return tuple(made)


def leaves_behind(trace: Trace, numbers: list[int]) -> list[list[int]]:
    """For each of some values, the leaves that a gradient comes to from it: not those that were made in the step."""
    values, flowing = trace.values, _flowing(trace, numbers)
    ends = [(n, bits) for n, bits in flowing.items() if values[n].leaf and (values[n].maker < 0 or values[n].parameter)]
    return [[n for n, bits in ends if bits >> place & 1] for place in range(len(numbers))]


def ends_in_the_step(trace: Trace, numbers: list[int]) -> list[bool]:
    """For each of some values, whether its gradient comes to a leaf that the step has made, and ends there."""
    values, inside = trace.values, _in_functions(trace)
    flowing = ((values[n], bits) for n, bits in _flowing(trace, numbers).items())
    made = [bits for value, bits in flowing if value.leaf and value.maker >= 0 and value.maker not in inside]
    return [any(bits >> place & 1 for bits in made) for place in range(len(numbers))]


def _flowing(trace: Trace, numbers: list[int]) -> dict[int, int]:
    """The values that a gradient comes to, each with one bit for each of those that it comes from.

    At a leaf which the forward of a custom Function has made it does not end: the Function's backward hands on what
    that leaf is given.
    """
    values, inside = trace.values, _in_functions(trace)
    flowing: dict[int, int] = {}
    for place, number in enumerate(numbers):
        if values[number].requires_grad:
            flowing[number] = flowing.get(number, 0) | 1 << place
    for call in reversed(trace.calls if flowing else ()):
        bits = 0
        for output in call.outputs:
            ends = values[output].leaf and not values[output].parameter and call.index not in inside
            bits |= 0 if ends else flowing.get(output, 0)
        if not bits:
            continue
        hidden = any(trace.regions[r].kind in (FUNCTION, CHECKPOINT) for r in call.regions)
        hidden = hidden or call.index in inside
        for given in call.inputs if call.grad_on or hidden else call.inputs[:1]:
            if values[given].requires_grad or hidden:
                flowing[given] = flowing.get(given, 0) | bits
    return flowing


def _in_functions(trace: Trace) -> set[int]:
    """The calls in the forwards of custom Functions, also where those switch recording on."""
    own = [(call, r) for call in trace.calls for r in call.regions if trace.regions[r].kind == FUNCTION and call.chain]
    depths = [(call.chain, len(call.chain) - len(trace.regions[r].chain) - 1) for call, r in own]
    codes = {chain[depth][0] for chain, depth in depths if depth >= 0}
    return {call.index for call in trace.calls if codes and any(code in codes for code, _ in call.chain)}


# -- while the graph is alive ----------------------------------------------------------------------------------------


def reached_by(loss: torch.Tensor) -> tuple[frozenset[int], ...] | None:
    """For each term of a loss, the ids of the leaves whose gradient from it is not zero. The graph is kept.

    A term without history reaches nothing.

    Returns:
        None of a loss that is no sum, or one of very many terms, or that cannot be asked twice.

    Example:
        >>> a, b = (torch.ones(1, requires_grad=True) for _ in "ab")
        >>> [len(one) for one in reached_by((a * b).sum() + b.sum())]
        [2, 1]
    """
    if loss.numel() != 1 or loss.grad_fn is None or has_no_numbers(loss):
        return None
    parts = _nodes(loss.grad_fn)
    nodes = backward.nodes_of(loss)
    if not 1 < len(parts) <= MOST or len(nodes) > LARGEST:
        return None
    leaves = backward.leaves_of(loss)
    try:
        return tuple(_reached(loss, one, parts, leaves) if one is not None else frozenset() for one in parts)
    except RuntimeError:  # reentrant checkpoints refuse to be asked by name
        return None


def idle_terms(root: Any) -> tuple[bool, bool]:
    """Whether something is added to a loss that has no history; and whether something is multiplied by zero in it.

    A number that is added, as ``sum()`` begins with, looks no other than what has lost its history.

    Args:
        root: the ``grad_fn`` of the loss.

    Example:
        >>> loss = torch.ones(1, requires_grad=True).sum()
        >>> idle_terms((loss + loss.detach()).grad_fn), idle_terms((loss + 0 * loss).grad_fn)
        ((True, False), (False, True))
    """
    found = _nodes(root)
    weightless = len(found) > 1 and any(_is_weightless(node) for one in found for node in _passed(one))
    return any(one is None for one in found), weightless


def nodes_of_sums(root: Any) -> list[Any]:
    """The nodes of a loss, of the sums that it is, and of their terms.

    Example:
        >>> one, other = (torch.ones(1, requires_grad=True).exp() for _ in "ab")
        >>> {one.grad_fn, other.grad_fn} <= set(nodes_of_sums((one + 0.1 * other).sum().grad_fn))
        True
    """
    passed = _passed(root)
    if not passed or type(passed[-1]).__name__ not in _SUM_NODES:
        return passed
    return [*passed, *(node for parent, _ in passed[-1].next_functions for node in nodes_of_sums(parent))]


def _is_weightless(node: Any) -> bool:
    other = getattr(node, "_saved_other", None) if type(node).__name__ == "MulBackward0" else None
    if not isinstance(other, torch.Tensor) or other.requires_grad or other.device.type != "cpu":
        return False  # to look at what lies on a device would be to wait for it
    return other.numel() == 1 and float(other) == 0


def _nodes(root: Any) -> list[Any]:
    """The nodes of the terms in their order; None for one without history."""
    if root is None or type(end := _passed(root)[-1]).__name__ not in _SUM_NODES:
        return [root]
    return [term for parent, _ in end.next_functions for term in _nodes(parent)]


def _passed(root: Any) -> list[Any]:
    """A node, and those behind it that only weigh or reshape what they are handed."""
    found = [root] if root is not None else []
    while found and type(found[-1]).__name__ in _PASSED_NODES:
        parents = [parent for parent, _ in found[-1].next_functions if parent is not None]
        if len(parents) != 1:
            break
        found.append(parents[0])
    return found


def _reached(loss: torch.Tensor, term: Any, parts: list[Any], leaves: list[torch.Tensor]) -> frozenset[int]:
    with patches.undone():
        for other in {id(one): one for one in parts if one is not None and one is not term}.values():
            patches.later(other.register_prehook(_nothing).remove)
        grads = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
    return frozenset(
        id(leaf) for leaf, grad in zip(leaves, grads, strict=True) if grad is not None and bool(grad.any())
    )


def _nothing(grads: Any) -> Any:
    return tuple(None if grad is None else torch.zeros_like(grad) for grad in grads)
