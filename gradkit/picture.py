"""Join the autograd graph, the trace and the findings into one picture: both halves, and the cuts between them.

Live nodes are autograd's own. The half before a cut is taken from the rerun with the cut undone (without a rerun: from
the trace); calls after a cut that left no history are shown as calls.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from gradkit import gaps
from gradkit.autograd import AutogradGraph
from gradkit.canvas import Canvas
from gradkit.cuts import Verdict
from gradkit.records import Edge, Finding, ModuleInfo, Node, Parameter, Picture
from gradkit.replay import Rerun
from gradkit.traces import Trace

MOST_INPUTS = 8
MOST_NODES = 8000
"""How many of autograd's nodes are drawn one by one; of those further from the loss only the calls are."""


def make(  # noqa: PLR0913  it joins what all stages found
    trace: Trace, verdict: Verdict, graph: AutogradGraph, rerun: Rerun, findings: tuple[Finding, ...],
    rows: Sequence[Parameter], modules: tuple[ModuleInfo, ...], loss: str, backward: bool,
) -> Picture:  # fmt: skip
    """The picture of one diagnosis."""
    canvas = Canvas(trace)
    starved = {row.name for row in rows if row.should_train and not row.reached}
    left_out = graph.left_out + max(0, len(graph.nodes) - MOST_NODES)
    _autograd(canvas, trace, graph, starved, "live", frozenset())
    if rerun.trace is not None:
        live = frozenset(canvas.of_call)
        _autograd(canvas, rerun.trace, rerun.graph, starved, "dead", live)
    _parameters(canvas, starved, "starved")
    if left_out:
        _parameters(canvas, {row.name for row in rows if row.should_train and row.reached}, "live")
    _calls(canvas, verdict, _flowing(trace) if left_out else frozenset())
    _inputs(canvas)
    _loss(canvas, backward)
    gaps.enter(canvas, verdict, findings)
    nodes, edges = _numbered(canvas)
    return Picture(nodes, edges, modules, findings, loss, backward, left_out, max(0, len(canvas.inputs) - MOST_INPUTS))


def _autograd(
    canvas: Canvas, trace: Trace, graph: AutogradGraph, starved: set[str], status: str, taken: frozenset[int]
) -> None:
    """Enter autograd's nodes; those of the rerun only where the first run had a history there and lost it later."""
    begins = [call.sequence for call in trace.calls]
    keys: dict[int, object] = {}
    for index, node in enumerate(graph.nodes[:MOST_NODES]):
        if node.leaf:
            keys[index] = ("leaf", node.label or f"{index}{status}")
            if node.label and (status == "live" or node.label in starved):
                kind = "starved" if node.label in starved else "live"
                canvas.node(
                    keys[index], (-1, index), label=node.label, kind="parameter", status=kind,
                    module=node.label.rpartition(".")[0], shape=node.shape,
                )  # fmt: skip
            continue
        number = bisect.bisect_right(begins, node.sequence) - 1 if node.sequence >= 0 else -1
        if number < 0 or node.label == "AccumulateGrad":
            continue
        if status == "dead" and (number in taken or not _was_live(canvas.trace, number)):
            continue
        keys[index] = (status, index)
        facts = canvas.call_facts(canvas.trace.calls[number]) | {"shape": node.shape}
        canvas.node(keys[index], (number, node.sequence), label=node.label, kind="autograd", status=status, **facts)
        canvas.of_call.setdefault(number, []).append(keys[index])
    _autograd_edges(canvas, graph, keys, status)


def _was_live(trace: Trace, number: int) -> bool:
    return number < len(trace.calls) and any(trace.values[o].requires_grad for o in trace.calls[number].outputs)


def _autograd_edges(canvas: Canvas, graph: AutogradGraph, keys: dict[int, object], status: str) -> None:
    for index, node in enumerate(graph.nodes[:MOST_NODES]):
        for parent in node.parents:
            below = graph.nodes[parent]
            for source in below.parents if below.label == "AccumulateGrad" else (parent,):
                if index in keys and source in keys:
                    canvas.edge(keys[source], keys[index], status)


def _calls(canvas: Canvas, verdict: Verdict, flowing: frozenset[int]) -> None:
    """Enter the calls on the way to the loss that left no node, and join them to what they used.

    Left out is what no parameter takes part in (masks, positions, indices): the batch leads past it.

    Args:
        flowing: values that a gradient comes to. Their calls stand for the nodes of a graph that is too large.
    """
    learned = _learned(canvas.trace)
    for call in canvas.trace.calls:
        if call.index in canvas.of_call or not verdict.reaching.intersection(call.outputs):
            continue
        if call.index in learned or not learned:
            key = ("call", call.index)
            kind, status = ("autograd", "live") if flowing.intersection(call.outputs) else ("call", "dead")
            canvas.node(key, (call.index, 0), label=call.name, kind=kind, status=status, **canvas.call_facts(call))
            canvas.of_call[call.index] = [key]
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index)
        if mine is None:
            continue
        for number in call.inputs:
            source = canvas.key_of(number)
            if source is not None and not _is_told(canvas, source, mine):
                live = number in flowing and canvas.is_live(source) and canvas.is_live(mine[0])
                canvas.edge(source, mine[0], "live" if live else "dead")


def _flowing(trace: Trace) -> frozenset[int]:
    """The values that the loss's gradient comes to, as far as the trace tells."""
    found = {trace.loss} if trace.loss >= 0 and trace.values[trace.loss].requires_grad else set()
    for call in reversed(trace.calls):
        if found.intersection(call.outputs):
            found.update(number for number in call.inputs if trace.values[number].requires_grad)
    return frozenset(found)


def _is_told(canvas: Canvas, source: object, mine: Sequence[object]) -> bool:
    """Whether autograd's own edges already lead from a node to those of a call."""
    kinds = {key[0] for key in (source, *mine) if isinstance(key, tuple)}
    return (len(kinds) == 1 and kinds <= {"live", "dead"}) or any((source, key) in canvas.edges for key in mine)


def _learned(trace: Trace) -> set[int]:
    """The calls that a parameter, trained or frozen, flows into."""
    flowing = {number for number, value in enumerate(trace.values) if value.parameter}
    found = set()
    for call in trace.calls:
        if flowing.intersection(call.inputs):
            flowing.update(call.outputs)
            found.add(call.index)
    return found


def _batch(trace: Trace) -> dict[int, frozenset[int]]:
    """For every value that no parameter flowed into, the tensors of the batch that it was computed from."""
    learned = _learned(trace)
    found = {
        number: frozenset((number,))
        for number, value in enumerate(trace.values)
        if value.maker < 0 and not value.parameter and not value.buffer and not value.attribute
    }
    for call in trace.calls:
        if call.index not in learned:
            behind = frozenset().union(*(found.get(number, frozenset()) for number in call.inputs))
            found.update(dict.fromkeys(call.outputs, behind))
    return found


def _parameters(canvas: Canvas, names: Iterable[str], status: str) -> None:
    for order, name in enumerate(sorted(names)):
        shape = canvas.trace.values[canvas.trace.parameters[name]].shape
        facts: dict[str, object] = {"module": name.rpartition(".")[0], "shape": shape}
        canvas.node(("leaf", name), (-1, order), label=name, kind="parameter", status=status, **facts)


def _inputs(canvas: Canvas) -> None:
    """The tensors of the batch: what existed before the step and is neither parameter nor buffer."""
    behind = _batch(canvas.trace)
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index, [])
        for number in {source for used in call.inputs for source in behind.get(used, ())} if mine else ():
            canvas.inputs.add(number)
            if ("input", number) not in canvas.nodes and len(canvas.inputs) > MOST_INPUTS:
                continue
            shape, name = canvas.trace.values[number].shape, canvas.trace.values[number].name
            canvas.node(("input", number), (-2, number), label=name, kind="input", status="dead", shape=shape)
            canvas.edge(("input", number), mine[0], "dead")


def _loss(canvas: Canvas, backward: bool) -> None:
    canvas.node("loss", (len(canvas.trace.calls), 0), label="loss", kind="loss", status="live" if backward else "dead")
    source = canvas.key_of(canvas.trace.loss) if canvas.trace.loss >= 0 else None
    if source is not None:
        canvas.edge(source, "loss", "live" if canvas.is_live(source) and backward else "dead")


def _numbered(canvas: Canvas) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    ordered = sorted(canvas.nodes, key=lambda k: canvas.nodes[k][0])
    numbers = {key: i + 1 for i, key in enumerate(ordered)}
    entered = ((numbers[key], *canvas.nodes[key]) for key in ordered)
    nodes = tuple(Node(number, order=order, **facts) for number, order, facts in entered)  # type: ignore[arg-type]
    return nodes, tuple(Edge(numbers[a], numbers[b], status) for (a, b), status in canvas.edges.items())
