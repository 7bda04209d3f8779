"""What is kept of a run's autograd graphs for torchviz's drawing: the half behind the loss, and the one cut off."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gradkit.core.records import Picture
from gradkit.core.trace import Trace
from gradkit.diagnosis.experiments.undo_cuts import Rerun
from gradkit.tracing.autograd_graph import AutogradGraph, AutogradNode

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
        numbers: for each node its number in the picture, 0 for one that is not there.
    """

    nodes: tuple[AutogradNode, ...] = ()
    loss: tuple[int, ...] | None = None
    count: int = 0
    live: int = 0
    numbers: tuple[int, ...] = ()


def keep(trace: Trace, graph: AutogradGraph, rerun: Rerun, picture: Picture) -> Kept:
    """What ``torchviz_view.dot`` is going to need."""
    loss = tuple(trace.values[trace.loss].shape) if trace.loss >= 0 else None
    count = max(len(one.nodes) + one.left_out for one in (graph, rerun.graph))
    if count > MOST:
        return Kept(loss=loss, count=count)
    nodes = (*graph.nodes, *_cut_off(trace, graph, rerun))
    if len(nodes) > MOST:
        return Kept(loss=loss, count=len(nodes))
    live = len(graph.nodes)
    numbers = (*_numbers(trace, nodes[:live], picture, "live"), *_numbers(rerun.trace, nodes[live:], picture, "dead"))
    return Kept(nodes, loss, len(nodes), live, numbers)


def _numbers(trace: Trace | None, nodes: tuple[AutogradNode, ...], picture: Picture, status: str) -> Iterator[int]:
    """The picture's numbers of nodes of one run; a call that left no node in the first run stands for all of its."""
    leaves = {node.label: node.number for node in picture.nodes if node.kind == "parameter"}
    found = {(node.kind, node.status, node.order): node.number for node in picture.nodes}
    begins = [call.sequence for call in trace.calls] if trace is not None else []
    for node in nodes:
        call = bisect.bisect_right(begins, node.sequence) - 1
        own, shared = ("autograd", status, (call, node.sequence)), ("call", "dead", (call, 0))
        yield leaves.get(node.label, 0) if node.leaf else found.get(own) or found.get(shared, 0)


def _cut_off(trace: Trace, graph: AutogradGraph, rerun: Rerun) -> list[AutogradNode]:
    """The nodes of the rerun that the first run had as well, and lost; their parents are counted from its first node.

    Where parameters were lost without any history (in a ``no_grad`` block), also those that only the rerun has.
    """
    if rerun.trace is None:
        return []
    again = rerun.graph.leaves
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
