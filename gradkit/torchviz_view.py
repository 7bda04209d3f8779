"""The autograd graph as torchviz draws it: both halves, the one that backward walks and the one that was cut off.

``torchviz.make_dot`` wants live tensors, and when a report is shown none of the run is alive any more. It is handed
stand-ins that answer what it asks of a tensor and of a node, made of the records that were kept.
Source: https://github.com/szagoruyko/pytorchviz
"""

from __future__ import annotations

import bisect
import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import graphviz
import torch

from gradkit import i18n, looks, printable
from gradkit.autograd import AutogradGraph, AutogradNode
from gradkit.errors import GradkitError
from gradkit.replay import Rerun
from gradkit.traces import Trace

MOST = 300
"""The largest graph that is drawn: torchviz walks it by recursion, and nobody can read a larger one."""


@dataclass(frozen=True)
class Kept:
    """What is kept of the graphs of a run, as records.

    Attributes:
        nodes: those behind the loss, then those that it misses: a rerun with the cuts undone had them.
        loss: the shape of the loss; None if there is none.
        count: how many nodes there are, also where they are too many to be kept.
        live: how many of them lie behind the loss of the run itself.
    """

    nodes: tuple[AutogradNode, ...] = ()
    loss: tuple[int, ...] | None = None
    count: int = 0
    live: int = 0


def keep(trace: Trace, graph: AutogradGraph, rerun: Rerun) -> Kept:
    """What ``dot`` is going to need."""
    loss = tuple(trace.values[trace.loss].shape) if trace.loss >= 0 else None
    count = max(len(one.nodes) + one.left_out for one in (graph, rerun.graph))
    if count > MOST:
        return Kept(loss=loss, count=count)
    nodes = (*graph.nodes, *_cut_off(trace, graph, rerun))
    return Kept(nodes if len(nodes) <= MOST else (), loss, len(nodes), len(graph.nodes))


def _cut_off(trace: Trace, graph: AutogradGraph, rerun: Rerun) -> list[AutogradNode]:
    """The nodes of the rerun that the first run had as well, and lost; their parents are counted from its first node.

    Where parameters were lost without any history (in a ``no_grad`` block), also those that only the rerun has.
    """
    if rerun.trace is None:
        return []
    again = {node.label for node in rerun.graph.nodes if node.leaf}
    found = _missed(trace, graph, rerun.trace, rerun.graph, lost=True)
    if again <= {node.label for node in (*graph.nodes, *found) if node.leaf}:
        return found
    return _missed(trace, graph, rerun.trace, rerun.graph, lost=False)


def _missed(
    trace: Trace, graph: AutogradGraph, later: Trace, again: AutogradGraph, *, lost: bool
) -> list[AutogradNode]:
    """The nodes of the rerun whose calls have none in the first run; only those that had a history if ``lost``.

    A parameter that both halves use is one node, and so is what the cut-off half shares with the live one.
    """
    places = {place: index for index, place in enumerate(_places(trace, graph))}
    begun = {place[0] for place in places if isinstance(place[0], int)}
    missed: list[AutogradNode] = []
    at: dict[int, int] = {}
    for index, (node, place) in enumerate(zip(again.nodes, _places(later, again), strict=True)):
        if place in places:
            at[index] = places[place]
        elif node.leaf or (place[0] not in begun and (not lost or _had_history(trace, place[0]))):
            at[index] = len(graph.nodes) + len(missed)
            missed.append(node)
    moved = [replace(node, parents=tuple(at[one] for one in node.parents if one in at)) for node in missed]
    return _without_strays(moved, len(graph.nodes))


def _without_strays(nodes: list[AutogradNode], first: int) -> list[AutogradNode]:
    """The nodes but for leaves that none of them leads to, which come last among those that follow ``first``."""
    used = {parent for node in nodes for parent in node.parents}
    kept = [index for index, node in enumerate(nodes) if not node.leaf or first + index in used]
    moved = {first + index: first + place for place, index in enumerate(kept)}
    return [replace(nodes[i], parents=tuple(moved.get(one, one) for one in nodes[i].parents)) for i in kept]


def _places(trace: Trace, graph: AutogradGraph) -> Iterator[tuple[Any, ...]]:
    """What each node has in common with itself in a rerun: a leaf its name, others the call that made them, and which.

    What has no place in the run's calls, or no name, is like nothing else.
    """
    begins = [call.sequence for call in trace.calls]
    for node in graph.nodes:
        number = -1 if node.leaf else bisect.bisect_right(begins, node.sequence) - 1
        if node.leaf and node.label:
            yield "leaf", node.label
        elif number >= 0:
            yield number, node.sequence - begins[number], node.label
        else:
            yield None, id(node)


def _had_history(trace: Trace, number: Any) -> bool:
    calls = trace.calls
    return number in range(len(calls)) and any(trace.values[one].requires_grad for one in calls[number].outputs)


def dot(kept: Kept, starved: Collection[str], language: str | None = None) -> graphviz.Digraph:
    """The drawing: torchviz's own boxes and colours, and starved parameters and what was cut off framed in red.

    Saved tensors of custom Functions, which torchviz shows beside their nodes, are left out: none is alive.

    Raises:
        GradkitError: there is no graph (``torchviz_nothing``), or one of more than ``MOST`` nodes
            (``torchviz_too_large``).

    Example:
        >>> leaf, node = AutogradNode("w", -1, True, (2,), ()), AutogradNode("SumBackward0", 3, False, (), (1,))
        >>> print("".join(dot(Kept((node, leaf), (), 2, 2), ()).body[1:3]).replace(chr(9), ""), end="")
        n1 [label=SumBackward0]
        n2 -> n1
    """
    if kept.count > MOST:
        raise GradkitError("torchviz_too_large", n=kept.count, most=MOST)
    if not kept.nodes and kept.loss is None:
        raise GradkitError("torchviz_nothing")
    functions, leaves = _stand_ins(kept.nodes)
    parents = {one for node in kept.nodes for one in node.parents}
    ends = [index for index, node in enumerate(kept.nodes) if index not in parents and not node.leaf]
    live = [_Output(functions[i], kept.nodes[i].shape) for i in ends if i < kept.live] or [_Output(None, kept.loss)]
    cut = [_Output(functions[i], kept.nodes[i].shape) for i in ends if i >= kept.live]
    drawing: graphviz.Digraph = _make_dot()((*live, *cut), params=leaves)
    numbers = _numbered(drawing)
    said = {numbers[id(one)]: "loss" for one in live} | {numbers[id(one)]: "shaded" for one in cut}
    for index, line in enumerate(drawing.body):
        # A line without a letter makes the Graphviz of some wheels crash.
        key = said.get(line.partition(" ")[0].strip())
        name = i18n.words(f"picture.{key}", language) if key else _BLANK
        drawing.body[index] = line.replace('label="\n', f'label="{name}\n')
    for name in sorted(_shown(one) for one in starved):
        if name in leaves:
            drawing.node(numbers[id(leaves[name])], peripheries="2", **_RED)
    for one in cut:
        drawing.node(numbers[id(one)], **_RED)
    return drawing


_BLANK = "\N{NO-BREAK SPACE}"
_RED = {"fillcolor": looks.BOXES["starved"]["fillcolor"], "color": looks.RED, "fontcolor": looks.DARK_RED}


class _Function:
    """Stands for a node of autograd's; its class has that one's name."""

    next_functions: tuple[tuple[_Function, int], ...] = ()
    variable: torch.Tensor


class _Output:
    """Stands for a tensor that a graph ends in."""

    def __init__(self, grad_fn: _Function | None, shape: tuple[int, ...] | None) -> None:
        self.grad_fn, self._shape = grad_fn, shape or ()

    def size(self) -> tuple[int, ...]:
        return self._shape

    def _is_view(self) -> bool:
        return False


def _stand_ins(nodes: tuple[AutogradNode, ...]) -> tuple[list[_Function], dict[str, torch.Tensor]]:
    """Something for each node, and tensors without memory for the leaves that have a name."""
    functions: list[_Function] = []
    leaves: dict[str, torch.Tensor] = {}
    for node in nodes:
        name = "AccumulateGrad" if node.leaf else _shown(node.label)
        functions.append(type(name, (_Function,), {})())
        if node.leaf:
            functions[-1].variable = torch.empty(node.shape or (), device="meta")
            if node.label:
                leaves[_shown(node.label)] = functions[-1].variable
    for function, node in zip(functions, nodes, strict=True):
        function.next_functions = tuple((functions[parent], 0) for parent in node.parents)
    return functions, leaves


def _shown(name: str) -> str:
    return str(graphviz.escape(printable.escaped(name)))


def _numbered(drawing: graphviz.Digraph) -> dict[int, str]:
    """Name the nodes by their order instead of their addresses, which are others each time."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"n{len(names)}")

    for index, line in enumerate(drawing.body):
        head, bracket, rest = line.partition(" [")
        drawing.body[index] = re.sub(r"\d+", named, head) + bracket + rest
    return {int(address): name for address, name in names.items()}


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
