"""Normalisations of a single element: a softmax over one, one expert's weight divided by the sum of it.

What comes out does not depend on what goes in, so that its gradient is zero; computed in floats, it may be some 1e-9
of rounding instead. It is the program's doing where the one element is: the one output of a layer, the one that topk
was asked for, a parameter. Where the batch may have brought it, as one key of an attention, another may bring more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradkit.tracing.autograd_graph import AutogradGraph, AutogradNode

_NORMALISED = ("SoftmaxBackward", "LogSoftmaxBackward", "NativeLayerNormBackward")
_REDUCED = {
    "DivBackward0": ("SumBackward", "LinalgVectorNormBackward", "NormBackward", "MaxBackward", "AmaxBackward",
                     "MeanBackward"),
    "SubBackward0": ("LogsumexpBackward", "MaxBackward", "AmaxBackward", "MinBackward", "AminBackward", "MeanBackward"),
}  # fmt: skip
_SPREAD = ("ExpandBackward", "ClampBackward", "ClampMinBackward", "AddBackward", "UnsqueezeBackward", "ViewBackward")
_PICKED = ("TopkBackward", "GatherBackward", "MaxBackward")
_PRODUCTS = ("AddmmBackward", "MmBackward")
_RESHAPED = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward")
_DEEPEST = 12


def normalised(graph: AutogradGraph) -> frozenset[int]:
    """The indices of the nodes that normalise a single element, where the program alone makes it a single one.

    Example:
        >>> import torch
        >>> from gradkit.tracing.autograd_graph import graph_behind
        >>> scores = torch.nn.Linear(2, 3)(torch.ones(4, 2)).softmax(-1)
        >>> for k in (1, 2):
        ...     best = scores.topk(k).values
        ...     graph = graph_behind([(best / best.sum(-1, keepdim=True)).square().sum()], {})
        ...     print([graph.nodes[i].label for i in normalised(graph)])
        ['DivBackward0']
        []
    """
    given = ((i, _given(graph, i)) for i, node in enumerate(graph.nodes) if not node.leaf)
    return frozenset(i for i, inner in given if inner is not None and _is_of_program(graph, inner))


def _given(graph: AutogradGraph, i: int) -> int | None:
    """What a node normalises, if it is a single element each time."""
    node = graph.nodes[i]
    if node.label.startswith(_NORMALISED):
        return node.flat[0] if node.flat else None
    if node.label not in _REDUCED or len(node.parents) != 2:
        return None
    whole, reduced = node.parents
    for _ in range(_DEEPEST):
        inner = graph.nodes[reduced]
        if inner.label.startswith(_REDUCED[node.label]) and whole in inner.parents:
            return whole if _size(inner) == _size(graph.nodes[whole]) else None
        if not inner.label.startswith(_SPREAD) or len(inner.parents) != 1:
            return None
        reduced = inner.parents[0]
    return None


def _size(node: AutogradNode) -> float:
    return math.nan if node.shape is None else math.prod(node.shape)


def _is_of_program(graph: AutogradGraph, i: int) -> bool:
    """Whether it is a layer, a parameter or a choice of one that makes a value have single elements."""
    shape = graph.nodes[i].shape
    if shape is None or (shape.count(1) != 1 and not graph.nodes[i].leaf):
        return False
    waiting, seen = [i], set[int]()
    while waiting and len(seen) < _DEEPEST:
        i = waiting.pop()
        if i not in seen:
            seen.add(i)
            if _makes_one(graph, i):
                return True
            waiting += _alike(graph, i)
    return False


def _makes_one(graph: AutogradGraph, i: int) -> bool:
    node, parents = graph.nodes[i], [graph.nodes[parent] for parent in graph.nodes[i].parents]
    if node.leaf or not node.shape or 1 not in node.shape:
        return node.leaf and bool(node.label)
    axis = node.shape.index(1)
    if node.label.startswith(_PICKED):
        whole = parents[0].shape if parents else None
        return whole is not None and len(whole) == len(node.shape) and whole[axis] > 1
    weights = list(_weights(graph, i))
    if node.label.startswith("ConvolutionBackward"):
        return axis == 1 and any(len(one) > 2 and one[0] == 1 for one in weights)
    return node.label.startswith(_PRODUCTS) and axis == 1 and any(len(one) == 2 and 1 in one for one in weights)


def _weights(graph: AutogradGraph, i: int) -> Iterator[tuple[int, ...]]:
    """The shapes of the parameters that a layer's node is handed, as they are or transposed."""
    for parent in graph.nodes[i].parents:
        node = graph.nodes[parent]
        if node.label == "TBackward0" and node.parents:
            node = graph.nodes[node.parents[0]]
        if node.leaf and node.label and node.shape is not None:
            yield node.shape


def _alike(graph: AutogradGraph, i: int) -> Iterator[int]:
    """What a node computed element by element from: of the same shape, or with the same last dimension of one."""
    node = graph.nodes[i]
    for parent in node.parents:
        shape = graph.nodes[parent].shape
        ends = bool(shape and node.shape) and shape[-1:] == node.shape[-1:] == (1,)  # type: ignore[index]
        if shape == node.shape or (ends and node.label.startswith(_RESHAPED)):
            yield parent
