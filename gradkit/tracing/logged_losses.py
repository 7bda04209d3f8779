"""Losses that a step went backward of, added up for the log: ``total += loss`` after ``loss.backward()``.

What such a step returns has a history, which leads to graphs that are freed. Nobody goes backward of that: the step
has trained already. A value that uses more of a freed graph than the losses at its end is another matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch

from gradkit.tracing.autograd_graph import leaf_of

_WEIGHED = frozenset(
    "AddBackward0 SubBackward0 RsubBackward1 MulBackward0 DivBackward0 NegBackward0 StackBackward0 SqueezeBackward0 "
    "SqueezeBackward1 UnsqueezeBackward0 ViewBackward0 ToCopyBackward0 CloneBackward0".split()
)
_OF_MANY = frozenset("MeanBackward0 SumBackward0 MeanBackward1 SumBackward1".split())


def of(losses: Iterable[torch.Tensor]) -> frozenset[int]:
    """The sequence numbers of the nodes that made some losses, and the terms of those that are weighted sums.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> one, other = w.exp().sum(), w.square().mean()
        >>> found = of([(one + 0.1 * other) / 2])
        >>> {one.grad_fn._sequence_nr(), other.grad_fn._sequence_nr()} < found, len(found)
        (True, 5)
    """
    waiting = [one.grad_fn for one in losses if one.grad_fn is not None and one.numel() == 1]
    found = dict[int, None]()
    while waiting:
        node = waiting.pop()
        if leaf_of(node) is None and node._sequence_nr() not in found:
            found[node._sequence_nr()] = None
            waiting += _terms(node)
    return frozenset(found)


def are_all(loss: torch.Tensor, walked: Collection[int], is_past: Callable[[int], bool]) -> bool:
    """Whether all that a value was computed from, as far as it has a history, are losses.

    Args:
        walked: the sequence numbers of their nodes.
        is_past: whether a node was made before the step: a mean that runs on from step to step leads there.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> one, other, never = w.exp().sum(), w.square().mean(), lambda sequence: False
        >>> [are_all(one + other.log(), of(losses), never) for losses in ([one, other], [one])]
        [True, False]
    """
    seen, waiting, met = set[int](), [loss.grad_fn], False
    while waiting:
        node: Any = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if leaf_of(node) is not None:
            return False
        if node._sequence_nr() in walked:
            met = True
        elif not is_past(node._sequence_nr()):
            waiting += _parents(node)
    return met


def _terms(node: Any) -> list[Any]:
    parents = list(_parents(node))
    stacked = len(parents) == 1 and type(parents[0]).__name__ == "StackBackward0"
    return parents if type(node).__name__ in _WEIGHED or (type(node).__name__ in _OF_MANY and stacked) else []


def _parents(node: Any) -> Iterator[Any]:
    return (parent for parent, _ in node.next_functions if parent is not None)
