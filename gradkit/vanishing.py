"""Find the operations that hand on a gradient of exactly zero, whatever they are handed.

The graph behind the loss is whole there, and nothing learns. What is looked for has a derivative that is zero
everywhere (``round``, ``sign``, ``bernoulli``): then a parameter all of whose ways to the loss lead through such
operations gets zeros for certain. A gradient that merely happens to be zero, as behind a gate that starts at zero, is
never asked about here.
Source: https://github.com/pytorch/pytorch/blob/main/tools/autograd/derivatives.yaml
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from gradkit import reach
from gradkit.autograd import AutogradGraph
from gradkit.preserve import Preserved
from gradkit.traces import Call, Trace

ROUNDED, SAMPLED, OVERWRITTEN = "rounded", "sampled", "overwritten"
IGNORED, EMPTY, ONE_CLASS, TIMES_ZERO = "ignored", "empty", "one_class", "times_zero"

_KINDS = (
    (ROUNDED, re.compile(r"(Round|Sign|Sgn|Floor|Ceil|Trunc)Backward\d+$|DivBackward2$")),
    (
        SAMPLED,
        re.compile(r"(Bernoulli|Poisson|Normal|Uniform|Exponential|Geometric|Cauchy|LogNormal|Random)Backward\d+$"),
    ),
    (OVERWRITTEN, re.compile(r"(Zero|Fill)Backward\d+$")),
)


@dataclass(frozen=True)
class Vanishing:
    """A call that hands on zeros.

    Attributes:
        kind: ``"rounded"``, ``"sampled"``, ``"overwritten"``: the derivative is zero everywhere; ``"ignored"``
            (no label counts), ``"empty"`` (a mean of no elements), ``"one_class"`` (a softmax over a single element),
            ``"times_zero"`` (by a number that is zero): it is zero in this run.
        call: the call.
        parameters: names of the parameters that get nothing but zeros because of it.
    """

    kind: str
    call: Call
    parameters: tuple[str, ...]


def find(graph: AutogradGraph, trace: Trace, zero: Iterable[str]) -> tuple[Vanishing, ...]:
    """The operations that must be replaced for the parameters ``zero`` to get more than zeros, in the order of the run.

    They are those on the ways to the loss that pass fewest of them; one behind the other, all are named. Nothing is
    said of a parameter that has a way which passes none.

    Args:
        zero: names of parameters whose gradient is exactly zero.

    Example:
        >>> import torch
        >>> from gradkit import autograd
        >>> w = torch.ones(2, requires_grad=True)
        >>> graph = autograd.graph([(w * 2).round().sum()], {"w": w})
        >>> call = Call(0, "round", (0,), (1,), True, (), -1, (), 0)
        >>> find(graph, Trace((call,), (), (), (), 1, {}), ["w"])[0].parameters
        ('w',)
    """
    kinds = {i: kind for i, node in enumerate(graph.nodes) if not node.leaf and (kind := _kind(node.label))}
    wanted = set(zero)
    leaves = {i: node.label for i, node in enumerate(graph.nodes) if node.leaf and node.label in wanted}
    if not kinds or not leaves or graph.truncated:
        return ()
    passed = _passed(graph, kinds)
    found: dict[int, tuple[str, dict[str, None]]] = {}
    for leaf, name in leaves.items():
        for node in passed.get(leaf, ()):
            found.setdefault(node, (kinds[node], {}))[1][name] = None
    begins = [call.sequence for call in trace.calls]
    made = []
    for node, (kind, names) in found.items():
        index = bisect.bisect_right(begins, graph.nodes[node].sequence) - 1
        if index >= 0:
            made.append(Vanishing(kind, trace.calls[index], tuple(names)))
    return tuple(sorted(made, key=lambda one: one.call.index))


def open_to_question(graph: AutogradGraph) -> bool:
    """Whether the graph holds an operation that may have handed on zeros because of the numbers of this run."""
    return any(node.label.startswith(("Softmax", "LogSoftmax", "MulBackward")) for node in graph.nodes)


def _kind(label: str) -> str:
    return next((kind for kind, pattern in _KINDS if pattern.match(label)), "")


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
        if i in kinds:
            fewest[i], passed[i] = fewest[i] + 1, passed[i] | {i}
        for parent in nodes[i].parents:
            if parent not in fewest or fewest[i] < fewest[parent]:
                fewest[parent], passed[parent] = fewest[i], passed[i]
            elif fewest[i] == fewest[parent]:
                passed[parent] |= passed[i]
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    return passed


def swallowed(loss: torch.Tensor, preserved: Preserved) -> tuple[tuple[str, int], ...]:
    """Run a backward and find the nodes that were handed a gradient and handed on exactly zero, of certain kinds.

    Returns:
        The kind and autograd's sequence number of each.

    Example:
        >>> model = torch.nn.Linear(2, 3)
        >>> with Preserved(model) as preserved:
        ...     logits, labels = model(torch.ones(4, 2)), torch.full((4,), -100)
        ...     [kind for kind, _ in swallowed(torch.nn.functional.cross_entropy(logits, labels), preserved)]
        ['ignored']
    """
    found: dict[int, str] = {}

    def watch(node: Any, handed_on: Any, handed: Any) -> None:
        if _nonzero(handed) and not _nonzero(handed_on) and (kind := _why(node, handed_on, handed)):
            found[node._sequence_nr()] = kind

    with reach.watched(loss, watch):
        reach.backward(loss, preserved)
    return tuple((kind, sequence) for sequence, kind in sorted(found.items()))


def _nonzero(grads: Any) -> bool:
    return any(bool((g != 0).any()) for g in grads if reach.is_strided(g))


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
