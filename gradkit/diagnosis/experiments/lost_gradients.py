"""Where a gradient becomes nan, zero or nothing: the step run once more, its backward watched (``gradient_faults``).

An operation that hands on a gradient of exactly zero, whatever it is handed, has a derivative that is zero everywhere
(``round``, ``sign``, ``bernoulli``): a parameter all of whose ways to the loss lead through such operations gets zeros
for certain. A gradient that merely happens to be zero, as behind a gate that starts at zero, is never asked about here.
Source: https://github.com/pytorch/pytorch/blob/main/tools/autograd/derivatives.yaml
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradkit.core.operations import CRITERIA
from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import Call, Trace
from gradkit.diagnosis.facts import single_elements
from gradkit.state.preserve import Preserved
from gradkit.tracing import backward
from gradkit.tracing.autograd_graph import AutogradGraph, AutogradNode
from gradkit.tracing.dropped import Dropped, Dropping
from gradkit.tracing.interventions import Intervention, Moment
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer

ROUNDED, SAMPLED, OVERWRITTEN, NEAREST = "rounded", "sampled", "overwritten", "nearest"
IGNORED, EMPTY, ONE_CLASS, TIMES_ZERO = "ignored", "empty", "one_class", "times_zero"
ALONE = "alone"
NOISE = 1e-4  # of the largest gradient: what is zero by nature may be rounded to as much

DRAWS = re.compile(r"(Bernoulli|Poisson|Normal|Uniform|Exponential|Geometric|Cauchy|LogNormal|Random)Backward\d+$")
_KINDS = (
    (ROUNDED, re.compile(r"(Round|Sign|Sgn|Floor|Ceil|Trunc)Backward\d+$|DivBackward2$")),
    (SAMPLED, DRAWS),
    (OVERWRITTEN, re.compile(r"(Zero|Fill)Backward\d+$")),
)
_OF_ONE_INPUT = ((NEAREST, re.compile(r"GridSampler")), (ROUNDED, re.compile(r"Copysign")))


@dataclass(frozen=True)
class ZeroGradient:
    """A call that hands on zeros.

    Attributes:
        kind: ``"rounded"``, ``"sampled"``, ``"overwritten"``: the derivative is zero everywhere; ``"nearest"``: so it
            is with respect to a grid; ``"ignored"`` (no label counts), ``"empty"`` (a mean of no elements),
            ``"one_class"`` (a softmax over a single element), ``"times_zero"`` (by a number that is zero): it is zero
            in this run; ``"alone"``: a single element is normalised, by softmax or a division by itself.
        call: the call.
        parameters: names of the parameters that get nothing but zeros because of it.
    """

    kind: str
    call: Call
    parameters: tuple[str, ...]


def zero_gradients(
    graph: AutogradGraph, trace: Trace, zero: Iterable[str], faint: Collection[str] = ()
) -> tuple[ZeroGradient, ...]:
    """The operations that must be replaced for the parameters ``zero`` to get more than zeros, in the order of the run.

    They are those on the ways to the loss that pass fewest of them; one behind the other, all are named. Nothing is
    said of a parameter that has a way which passes none.

    Args:
        zero: names of parameters whose gradient is exactly zero.
        faint: likewise, whose gradient is next to nothing: it may be zero by nature, and what is left is rounding.

    Example:
        >>> import torch
        >>> from gradkit.tracing import autograd_graph
        >>> w = torch.ones(2, requires_grad=True)
        >>> graph = autograd_graph.graph_behind([(w * 2).round().sum()], {"w": w})
        >>> call = Call(0, "round", (0,), (1,), True, (), -1, (), 0)
        >>> zero_gradients(graph, Trace((call,), (), (), (), 1, {}), ["w"])[0].parameters
        ('w',)
    """
    wanted = {*zero, *faint}
    leaves = {i: node.label for i, node in enumerate(graph.nodes) if node.leaf and node.label in wanted}
    kinds = _kinds(graph) if leaves and not graph.truncated else {}
    passed = _passed(graph, kinds) if kinds else {}
    found: dict[int, tuple[str, dict[str, None]]] = {}
    for leaf, name in leaves.items():
        through = passed.get(leaf, frozenset())
        for node in through if name not in faint or all(kinds[one] == ALONE for one in through) else ():
            found.setdefault(node, (kinds[node], {}))[1][name] = None
    begins = [call.sequence for call in trace.calls]
    made = []
    for node, (kind, names) in found.items():
        index = bisect.bisect_right(begins, graph.nodes[node].sequence) - 1
        if index >= 0:
            one_class = kind == ALONE and trace.calls[index].name.endswith(CRITERIA)
            made.append(ZeroGradient(ONE_CLASS if one_class else kind, trace.calls[index], tuple(names)))
    return tuple(sorted(made, key=lambda one: one.call.index))


def faint(norms: Mapping[str, float | None]) -> frozenset[str]:
    """The names of those gradients that are next to nothing beside the largest of them, and not zero.

    Example:
        >>> sorted(faint({"a": 1.0, "b": 1e-9, "c": 0.0, "d": None}))
        ['b']
    """
    sizes = {name: norm for name, norm in norms.items() if norm and math.isfinite(norm)}
    largest = max(sizes.values(), default=0.0)
    return frozenset(name for name, norm in sizes.items() if norm <= NOISE * largest)


def _kinds(graph: AutogradGraph) -> dict[int, str]:
    """The kind of every node that hands on zeros whatever it is handed."""
    kinds = {i: kind for i, node in enumerate(graph.nodes) if not node.leaf and (kind := _kind(node))}
    return {**kinds, **dict.fromkeys(single_elements.normalised(graph), ALONE)}


def open_to_question(graph: AutogradGraph) -> bool:
    """Whether the graph holds an operation that may have handed on zeros because of the numbers of this run."""
    return any(node.label.startswith(("Softmax", "LogSoftmax", "MulBackward")) for node in graph.nodes)


def _kind(node: AutogradNode) -> str:
    known = _OF_ONE_INPUT if node.flat else _KINDS
    return next((kind for kind, pattern in known if pattern.match(node.label)), "")


def _passed(graph: AutogradGraph, kinds: dict[int, str]) -> dict[int, frozenset[int]]:
    """For every node, those of ``kinds`` on its ways to the loss that pass fewest of them."""
    nodes = graph.nodes
    waiting = [0] * len(nodes)
    for node in nodes:
        for parent in node.parents:
            waiting[parent] += 1
    ready = [i for i, left in enumerate(waiting) if not left]
    fewest: dict[int, int] = dict.fromkeys(ready, 0)
    passed: dict[int, frozenset[int]] = {i: frozenset() for i in ready}
    while ready:
        i = ready.pop()
        for parent in nodes[i].parents:
            more, by = fewest[i], passed[i]
            if i in kinds and (not nodes[i].flat or parent in nodes[i].flat):
                more, by = more + 1, by | {i}
            if parent not in fewest or more < fewest[parent]:
                fewest[parent], passed[parent] = more, by
            elif more == fewest[parent]:
                passed[parent] |= by
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    return passed


def zeroed_at(loss: torch.Tensor, preserved: Preserved) -> tuple[tuple[str, int], ...]:
    """Run a backward and find the nodes that were handed a gradient and handed on exactly zero, of certain kinds.

    Returns:
        The kind and autograd's sequence number of each.

    Example:
        >>> model = torch.nn.Linear(2, 3)
        >>> with Preserved(model) as preserved:
        ...     logits, labels = model(torch.ones(4, 2)), torch.full((4,), -100)
        ...     [kind for kind, _ in zeroed_at(torch.nn.functional.cross_entropy(logits, labels), preserved)]
        ['ignored']
    """
    found: dict[int, str] = {}

    def watch(node: Any, handed_on: Any, handed: Any) -> None:
        if _nonzero(handed) and not _nonzero(handed_on) and (kind := _why(node, handed_on, handed)):
            found[node._sequence_nr()] = kind

    with backward.watched(loss, watch):
        backward.backward(loss, preserved)
    return tuple((kind, sequence) for sequence, kind in sorted(found.items()))


def _nonzero(grads: Any) -> bool:
    return any(bool((g != 0).any()) for g in grads if backward.is_strided(g))


def _why(node: Any, handed_on: Any, handed: Any) -> str:
    name, grads = node.name(), [g for g in handed_on if g is not None]
    if name.startswith("NllLoss"):
        return IGNORED
    if grads and not any(g.numel() for g in grads):
        return EMPTY
    if name.startswith(("Softmax", "LogSoftmax")):
        shape, dim = handed[0].shape, node._saved_dim  # noqa: SLF001  as autograd shows it
        return ONE_CLASS if shape and shape[dim - 2**64 if dim >= 2**63 else dim] == 1 else ""
    return TIMES_ZERO if name.startswith("MulBackward") and grads else ""


@dataclass(frozen=True)
class GradientFaults:
    """What further runs showed.

    Attributes:
        spoilers: indices of the calls whose derivative is nan or inf, in the order of the backward; several where each
            would be by itself.
        dropped: custom Functions that let a gradient end.
        swallowed: calls that were handed a gradient and handed on zeros, each with the kind that ``ZeroGradient`` has.
        runs: how many times the step was run.
    """

    spoilers: tuple[int, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    swallowed: tuple[tuple[str, Call], ...] = ()
    runs: int = 0


def gradient_faults(
    session: Session, *, not_finite: Sequence[str] = (), lost: Sequence[str] = (), zero: bool = False
) -> GradientFaults:
    """Run the step as often as there are open questions.

    Args:
        not_finite: parameters whose gradient holds nan or inf.
        lost: parameters that are part of the graph behind the loss and still get no gradient.
        zero: ask where the gradient becomes exactly zero.
    """
    preserved, answers = session.preserved, GradientFaults(runs=bool(not_finite) + bool(lost) + zero)
    if not_finite:
        watching = WatchNan()
        spoilers = session.ask(lambda tracer, loss: _spoilers(tracer, loss, preserved, watching), watching)
        answers = replace(answers, spoilers=spoilers)
    if lost:
        dropping = Dropping()
        dropped = session.ask(lambda tracer, loss: dropping.of(tracer, loss, preserved), dropping)
        answers = replace(answers, dropped=dropped)
    if zero:
        swallowed = session.ask(lambda tracer, loss: _swallowed(tracer, loss, preserved))
        answers = replace(answers, swallowed=swallowed)
    return answers


def _is_tensor(loss: Any) -> bool:
    """Whether there is a loss to go back from: a step that makes its own backward may return anything."""
    return isinstance(loss, torch.Tensor)


def _spoilers(tracer: Tracer, loss: Any, preserved: Preserved, watching: WatchNan) -> tuple[int, ...]:
    """The calls that make nan or inf of finite gradients; of a loss that is not finite itself, the first alone."""
    sequences = backward.not_finite_at(loss, preserved) if _is_tensor(loss) else ()
    finite, trace = bool(sequences) and bool(torch.isfinite(loss).all()), tracer.trace(loss)
    made = (watching.origin(tracer.index_at(one), trace) for one in (sequences if finite else sequences[:1]))
    found = list[int]()
    for index in dict.fromkeys(made):
        if not found or (index >= 0 and not any(watching.inherits(one, index, trace) for one in found)):
            found.append(index)
    return tuple(found)


def _swallowed(tracer: Tracer, loss: Any, preserved: Preserved) -> tuple[tuple[str, Call], ...]:
    if not _is_tensor(loss):
        return ()
    found = [(kind, tracer.index_at(sequence)) for kind, sequence in zeroed_at(loss, preserved)]
    calls = tracer.trace(loss).calls
    return tuple((kind, calls[index]) for kind, index in found if index >= 0)


class WatchNan(Intervention):
    """Notes which calls made nan of what was none: a derivative there is nan too, wherever it is taken later."""

    def __init__(self) -> None:
        self._beyond: set[int] = set()
        self._poisoned: set[int] = set()
        self._poisoned_at: set[int] = set()

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Look at the result and hand it on as it is."""
        if _holds_inf(result):
            self._beyond.add(moment.index)
        if _holds_nan(result):
            self._poisoned.add(moment.index)
            if not any(map(_holds_nan, given)):
                self._poisoned_at.add(moment.index)
        return result

    def inherits(self, spoiler: int, other: int, trace: Trace) -> bool:
        """Whether a call may be at fault for no more than what another, before it in the forward pass, handed to it.

        So it may be where its own result is nan or inf, as after a division by a root of 0.
        """
        if spoiler not in self._beyond and spoiler not in self._poisoned:
            return False
        return any(call.index == other for call in trace.behind(trace.calls[spoiler].inputs))

    def origin(self, spoiler: int, trace: Trace) -> int:
        """Where the nan came from that a call was handed in the forward pass; the call itself if it was handed none."""
        if not 0 <= spoiler < len(trace.calls) or not self._poisoned_at:
            return spoiler
        given = trace.calls[spoiler].inputs
        behind = {call.index for call in trace.behind(given)}
        handed = {trace.values[number].maker for number in given} & self._poisoned
        return min(behind & self._poisoned_at, default=spoiler) if handed else spoiler


def _holds_inf(value: Any) -> bool:
    plain = backward.is_strided(value) and value.is_floating_point()
    return plain and not has_no_numbers(value) and bool(value.isinf().any())


def _holds_nan(value: Any) -> bool:
    plain = backward.is_strided(value) and value.is_floating_point()
    return plain and not has_no_numbers(value) and bool(value.isnan().any())
