"""The autograd graph behind a tensor, as records: nodes are named by their type, as ``torchviz`` names them.

It is walked here without recursion, and without a look at the tensors that the nodes have saved: a custom Function may
have saved None, or what a hook of the user's packed away.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gradkit.core.tensors import shape_of

LARGEST = 20_000
_COUNTED = 100_000
_NEAREST = 1  # the number of this mode: torch/nn/functional.py, grid_sample


@dataclass(frozen=True)
class AutogradNode:
    """One node: a backward function, or the leaf tensor that it accumulates into.

    Attributes:
        label: ``"AddmmBackward0"``; of a leaf its name, ``""`` if it has none.
        sequence: autograd's sequence number, -1 for a leaf and its AccumulateGrad.
        leaf: a tensor whose ``.grad`` would be filled.
        shape: the shape of the leaf, or of what the node made in the forward pass; None if torch does not tell.
        parents: indices of the nodes that the gradient flows on to.
        flat: those of them that it hands on zeros to whatever it is handed: of ``grid_sample(mode="nearest")`` what
            made the grid, of ``copysign`` what gave the sign, of a softmax over one element what that is.
    """

    label: str
    sequence: int
    leaf: bool
    shape: tuple[int, ...] | None
    parents: tuple[int, ...]
    flat: tuple[int, ...] = ()


@dataclass(frozen=True)
class AutogradGraph:
    """The nodes behind some tensors, those nearest to them first; at most ``LARGEST``, and ``left_out`` more there are.

    Where there are very many, ``left_out`` is the least that it can be. ``error`` tells why it could not be read.
    """

    nodes: tuple[AutogradNode, ...] = ()
    left_out: int = 0
    error: str = ""

    @property
    def truncated(self) -> bool:
        """Whether there are more nodes than these."""
        return self.left_out > 0

    @property
    def leaves(self) -> frozenset[str]:
        """The names of the leaves among them: parameters of the model, as a rule."""
        return frozenset(node.label for node in self.nodes if node.leaf)


def graph_behind(tensors: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor]) -> AutogradGraph:
    """The graph behind ``tensors``; call it before a backward frees what the nodes have saved.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> [node.label for node in graph_behind([model(torch.ones(1, 2)).sum()], dict(model.named_parameters())).nodes]
        ['SumBackward0', 'AddmmBackward0', 'bias', 'TBackward0', 'weight']
    """
    names = {id(p): name for name, p in reversed(list(parameters.items()))}
    starts = [t.grad_fn for t in tensors if t.grad_fn is not None]
    functions, left_out = walk_graph(starts, LARGEST)
    index = {id(fn): i for i, fn in enumerate(functions)}
    nodes = tuple(_node(fn, index, names) for fn in functions)
    return AutogradGraph(nodes, left_out)


def leaf_of(node: Any) -> torch.Tensor | None:
    """The leaf tensor that a node accumulates a gradient into, None of any other.

    Asked of its type: what a custom Function keeps on its ``ctx`` are attributes of its node, under any name.

    Example:
        >>> weight = torch.ones(1, requires_grad=True)
        >>> node = (weight * 2).grad_fn.next_functions[0][0]
        >>> leaf_of(node) is weight
        True
    """
    return node.variable if type(node).__name__ == "AccumulateGrad" else None


def _node(fn: Any, index: dict[int, int], names: dict[int, str]) -> AutogradNode:
    variable = leaf_of(fn)
    if variable is not None:
        return AutogradNode(names.get(id(variable), ""), -1, True, tuple(shape_of(variable)), ())
    parents = tuple(index[id(parent)] for parent, _ in fn.next_functions if parent is not None and id(parent) in index)
    return AutogradNode(type(fn).__name__, fn._sequence_nr(), False, _made(fn), parents, _flat(fn, index))


def _flat(fn: Any, index: dict[int, int]) -> tuple[int, ...]:
    """The parents that a node hands on zeros to by construction: an input, if it has no slope there."""
    name = type(fn).__name__
    sampled = name.startswith("GridSampler") and getattr(fn, "_saved_interpolation_mode", None) == _NEAREST
    place = 0 if _is_of_single_elements(fn, name) else 1 if sampled or name.startswith("CopysignBackward") else None
    if place is None:
        return ()
    ways = [id(parent) for parent, _ in fn.next_functions]
    return tuple(index[key] for key in ways[place : place + 1] if key in index and ways.count(key) == 1)


def _is_of_single_elements(fn: Any, name: str) -> bool:
    """Whether a node normalises over one element: a softmax, or a LayerNorm."""
    if name.startswith("NativeLayerNorm"):
        return math.prod(getattr(fn, "_saved_normalized_shape", ())) == 1 and name.endswith("Backward0")
    shape, dim = _made(fn), getattr(fn, "_saved_dim", None)
    if not name.startswith(("SoftmaxBackward", "LogSoftmaxBackward")) or not shape or not isinstance(dim, int):
        return False
    return shape[dim - 2**64 if dim >= 2**63 else dim] == 1


def _made(fn: Any) -> tuple[int, ...] | None:
    """The shape of a node's first output in the forward pass: what its gradient is checked against."""
    try:
        return tuple(int(size) for size in fn._input_metadata[0].shape)  # noqa: SLF001  no public name tells it
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None


def walk_graph(starts: Sequence[Any], most: int | None = None) -> tuple[list[Any], int]:
    """Every node behind some, the nearest first, found without recursion; and how many beyond ``most`` are left out."""
    found: list[Any] = []
    seen = {id(node) for node in starts}
    todo = deque({id(node): node for node in starts}.values())
    while todo and (most is None or len(found) < most + _COUNTED):
        node = todo.popleft()
        found.append(node)
        for parent, _ in node.next_functions:
            if parent is not None and id(parent) not in seen:
                seen.add(id(parent))
                todo.append(parent)
    left = 0 if most is None else max(0, len(found) + len(todo) - most)
    return found[:most], left
