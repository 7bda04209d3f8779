"""The autograd graph behind a tensor, as records.

``torchviz.make_dot`` draws it, and its drawing is read back into records, because it names nodes by ``id()``, which
means nothing once the tensors are gone. It is recursive and fails on deep graphs, so those are walked here, in the same
terms.
Source: https://github.com/szagoruyko/pytorchviz
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

DEEPEST_FOR_TORCHVIZ = 500
LARGEST = 20_000
_COUNTED = 100_000


@dataclass(frozen=True)
class AutogradNode:
    """One node: a backward function, or the leaf tensor that it accumulates into.

    Attributes:
        label: ``"AddmmBackward0"``; of a leaf its name, ``""`` if it has none.
        sequence: autograd's sequence number, -1 for a leaf and its AccumulateGrad.
        leaf: a tensor whose ``.grad`` would be filled.
        shape: the shape of the leaf, or of what the node made in the forward pass; None if torch does not tell.
        parents: indices of the nodes that the gradient flows on to.
    """

    label: str
    sequence: int
    leaf: bool
    shape: tuple[int, ...] | None
    parents: tuple[int, ...]


@dataclass(frozen=True)
class AutogradGraph:
    """The nodes behind some tensors, those nearest to them first; at most ``LARGEST``, and ``left_out`` more there are.

    Where there are very many, ``left_out`` is the least that it can be.
    """

    nodes: tuple[AutogradNode, ...] = ()
    left_out: int = 0

    @property
    def truncated(self) -> bool:
        """Whether there are more nodes than these."""
        return self.left_out > 0


def graph(tensors: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor]) -> AutogradGraph:
    """The graph behind ``tensors``; call it before a backward frees what the nodes have saved.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> [node.label for node in graph([model(torch.ones(1, 2)).sum()], dict(model.named_parameters())).nodes]
        ['SumBackward0', 'AddmmBackward0', 'bias', 'TBackward0', 'weight']
    """
    names = {id(p): name for name, p in reversed(list(parameters.items()))}
    starts = [t.grad_fn for t in tensors if t.grad_fn is not None]
    functions, left_out = walk(starts, LARGEST)
    index = {id(fn): i for i, fn in enumerate(functions)}
    labels = {id(fn): type(fn).__name__ for fn in functions}
    if starts and len(functions) <= DEEPEST_FOR_TORCHVIZ:
        labels.update(_torchviz(tuple(t for t in tensors if t.grad_fn is not None), dict(parameters)))
    nodes = tuple(_node(fn, index, labels, names) for fn in functions)
    return AutogradGraph(nodes, left_out)


def _node(fn: Any, index: dict[int, int], labels: dict[int, str], names: dict[int, str]) -> AutogradNode:
    variable = getattr(fn, "variable", None)
    if variable is not None:
        return AutogradNode(names.get(id(variable), ""), -1, True, tuple(variable.shape), ())
    parents = tuple(index[id(parent)] for parent, _ in fn.next_functions if parent is not None and id(parent) in index)
    return AutogradNode(labels[id(fn)], fn._sequence_nr(), False, _made(fn), parents)


def _made(fn: Any) -> tuple[int, ...] | None:
    """The shape of a node's first output in the forward pass: what its gradient is checked against."""
    try:
        return tuple(int(size) for size in fn._input_metadata[0].shape)  # noqa: SLF001  no public name tells it
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None


def walk(starts: Sequence[Any], most: int | None = None) -> tuple[list[Any], int]:
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


def _make_dot() -> Callable[..., Any]:
    """``torchviz.make_dot``; where it is imported here, with the little that it asks of distutils.

    Python has no distutils any more. Setuptools' has a folder of its own on ``sys.path``, and warns.
    """
    if "torchviz" not in sys.modules:
        package, version = ModuleType("distutils"), ModuleType("distutils.version")
        version.LooseVersion = _Release  # type: ignore[attr-defined]
        standins = {"distutils": package, "distutils.version": version}
        own = {name: sys.modules.get(name) for name in standins}
        sys.modules.update(standins)
        try:
            importlib.import_module("torchviz")
        finally:
            for name, module in own.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module
    found: Callable[..., Any] = sys.modules["torchviz"].make_dot
    return found


class _Release(tuple[int, ...]):
    """A version, as far as it tells releases of torch apart.

    Example:
        >>> _Release("2.10.0+cu126") < _Release("1.9")
        False
    """

    def __new__(cls, text: str) -> _Release:
        return super().__new__(cls, (int(part) for part in re.findall(r"\d+", text)[:3]))


def _torchviz(tensors: tuple[torch.Tensor, ...], parameters: dict[str, torch.Tensor]) -> Iterator[tuple[int, str]]:
    drawing = _make_dot()(tensors, params=parameters)
    for line in drawing.body:
        match = re.match(r"\s*(\d+) \[label=\"?(\w+)\"?\s*\]", line)
        if match:
            yield int(match[1]), match[2]
