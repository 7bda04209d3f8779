"""Join the autograd graph, the trace and the findings into one picture: both halves, and the cuts between them.

Live nodes are autograd's own. The half before a cut is taken from the rerun with the cut undone (without a rerun: from
the trace); calls after a cut that left no history are shown as calls.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gradkit import frames
from gradkit.autograd import AutogradGraph
from gradkit.cuts import REGION, Verdict
from gradkit.records import Edge, Finding, ModuleInfo, Node, Parameter, Picture
from gradkit.replay import Rerun
from gradkit.traces import Call, Trace

MOST_INPUTS = 8


@dataclass
class _Canvas:
    """Nodes under construction, by a key; numbered at the end in the order of the run."""

    trace: Trace
    nodes: dict[object, tuple[tuple[int, int], dict[str, object]]] = field(default_factory=dict)
    edges: dict[tuple[object, object], str] = field(default_factory=dict)
    of_call: dict[int, list[object]] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)

    def node(self, key: object, order: tuple[int, int], **facts: object) -> None:
        self.nodes.setdefault(key, (order, facts))

    def edge(self, source: object, target: object, status: str) -> None:
        if source != target and source in self.nodes and target in self.nodes:
            if self.edges.get((source, target)) != "cut":
                self.edges[(source, target)] = status

    def call_facts(self, call: Call) -> dict[str, object]:
        shape = self.trace.values[call.outputs[0]].shape if call.outputs else None
        module = self.trace.modules[call.module] if call.module >= 0 else ""
        return {"module": module, "shape": shape, "location": frames.innermost(call.chain)}


def make(  # noqa: PLR0913  it joins what all stages found
    trace: Trace, verdict: Verdict, graph: AutogradGraph, rerun: Rerun, findings: tuple[Finding, ...],
    rows: Sequence[Parameter], modules: tuple[ModuleInfo, ...], loss: str, backward: bool,
) -> Picture:  # fmt: skip
    """The picture of one diagnosis."""
    canvas = _Canvas(trace)
    starved = {row.name for row in rows if row.should_train and not row.reached}
    _autograd(canvas, trace, graph, starved, "live", frozenset())
    if rerun.trace is not None:
        live = frozenset(canvas.of_call)
        _autograd(canvas, rerun.trace, rerun.graph, starved, "dead", live)
    _calls(canvas, verdict)
    _parameters(canvas, starved)
    _inputs(canvas)
    _loss(canvas, backward)
    _cuts(canvas, verdict, findings)
    return _numbered(canvas, modules, findings, loss, backward)


def _autograd(
    canvas: _Canvas, trace: Trace, graph: AutogradGraph, starved: set[str], status: str, taken: frozenset[int]
) -> None:
    """Enter autograd's nodes; those of the rerun only where the first run had a history there and lost it later."""
    begins = [call.sequence for call in trace.calls]
    keys: dict[int, object] = {}
    for index, node in enumerate(graph.nodes):
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
        facts = canvas.call_facts(canvas.trace.calls[number])
        canvas.node(keys[index], (number, node.sequence), label=node.label, kind="autograd", status=status, **facts)
        canvas.of_call.setdefault(number, []).append(keys[index])
    _autograd_edges(canvas, graph, keys, status)


def _was_live(trace: Trace, number: int) -> bool:
    return number < len(trace.calls) and any(trace.values[o].requires_grad for o in trace.calls[number].outputs)


def _autograd_edges(canvas: _Canvas, graph: AutogradGraph, keys: dict[int, object], status: str) -> None:
    for index, node in enumerate(graph.nodes):
        for parent in node.parents:
            below = graph.nodes[parent]
            for source in below.parents if below.label == "AccumulateGrad" else (parent,):
                if index in keys and source in keys:
                    canvas.edge(keys[source], keys[index], status)


def _calls(canvas: _Canvas, verdict: Verdict) -> None:
    """Enter the calls on the way to the loss that left no node, and join them to what they used.

    Left out is what no parameter takes part in (masks, positions, indices): the batch leads past it.
    """
    learned = _learned(canvas.trace)
    for call in canvas.trace.calls:
        if call.index in canvas.of_call or not verdict.reaching.intersection(call.outputs):
            continue
        if call.index in learned or not learned:
            key = ("call", call.index)
            canvas.node(key, (call.index, 0), label=call.name, kind="call", status="dead", **canvas.call_facts(call))
            canvas.of_call[call.index] = [key]
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index)
        if mine is None:
            continue
        for number in call.inputs:
            source = _key_of(canvas, number)
            if source is not None and not _is_told(canvas, source, mine):
                canvas.edge(source, mine[0], "dead")


def _is_told(canvas: _Canvas, source: object, mine: Sequence[object]) -> bool:
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


def _is_live(canvas: _Canvas, key: object) -> bool:
    return canvas.nodes[key][1]["status"] == "live" if key in canvas.nodes else False


def _key_of(canvas: _Canvas, number: int) -> object | None:
    """The node that stands for a value: the last node of the call that made it, or the parameter's own."""
    value = canvas.trace.values[number]
    if value.parameter:
        return ("leaf", value.parameter)
    made = canvas.of_call.get(value.maker)
    return max(made, key=lambda k: canvas.nodes[k][0]) if made else None


def _parameters(canvas: _Canvas, starved: Iterable[str]) -> None:
    for order, name in enumerate(sorted(starved)):
        shape = canvas.trace.values[canvas.trace.parameters[name]].shape
        facts: dict[str, object] = {"module": name.rpartition(".")[0], "shape": shape}
        canvas.node(("leaf", name), (-1, order), label=name, kind="parameter", status="starved", **facts)
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index)
        for number in call.inputs if mine else ():
            name = canvas.trace.values[number].parameter
            if name in starved and mine and not _is_told(canvas, ("leaf", name), mine):
                canvas.edge(("leaf", name), mine[0], "dead")


def _inputs(canvas: _Canvas) -> None:
    """The tensors of the batch: what existed before the step and is neither parameter nor buffer."""
    behind = _batch(canvas.trace)
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index, [])
        for number in {source for used in call.inputs for source in behind.get(used, ())} if mine else ():
            if len(canvas.inputs | {number}) > MOST_INPUTS:
                continue
            canvas.inputs.add(number)
            shape = canvas.trace.values[number].shape
            canvas.node(("input", number), (-2, number), label="", kind="input", status="dead", shape=shape)
            canvas.edge(("input", number), mine[0], "dead")


def _loss(canvas: _Canvas, backward: bool) -> None:
    canvas.node("loss", (len(canvas.trace.calls), 0), label="loss", kind="loss", status="live" if backward else "dead")
    source = _key_of(canvas, canvas.trace.loss) if canvas.trace.loss >= 0 else None
    if source is not None:
        canvas.edge(source, "loss", "live" if _is_live(canvas, source) and backward else "dead")


def _cuts(canvas: _Canvas, verdict: Verdict, findings: Sequence[Finding]) -> None:
    for cut in verdict.cuts:
        index = _finding_of(cut.calls, canvas, findings, cut.parameters)
        if index is None or not cut.calls:
            continue
        key = ("cut", index)
        finding = findings[index]
        canvas.node(
            key, (cut.calls[0], -1), label=finding.cause, kind="cut", status="cut", module=finding.module,
            location=finding.location, finding=index,
        )  # fmt: skip
        inside = set(cut.calls) if cut.kind == REGION else set()
        for number in cut.calls:
            _sever(canvas, key, canvas.trace.calls[number], inside)
            if cut.kind != REGION:
                _replace(canvas, key, number)


def _sever(canvas: _Canvas, key: object, call: Call, inside: set[int]) -> None:
    """Lead what flows into a call from outside of the cut over the cut's plate."""
    mine = canvas.of_call.get(call.index)
    if not mine:
        return
    for number in call.inputs:
        value = canvas.trace.values[number]
        if value.maker in inside or not value.floating:
            continue
        source = _key_of(canvas, number)
        if source is None or source not in canvas.nodes or canvas.nodes[source][1]["kind"] == "input":
            continue
        if value.requires_grad or value.parameter:
            canvas.edges.pop((source, mine[0]), None)
            canvas.edge(source, key, "cut")
            canvas.edge(key, mine[0], "cut")


def _replace(canvas: _Canvas, key: object, number: int) -> None:
    """The plate stands for the call that cuts: what used its result hangs on the plate."""
    for mine in [k for k in canvas.of_call.get(number, []) if k == ("call", number)]:
        for (source, target), _ in list(canvas.edges.items()):
            if source == mine:
                canvas.edge(key, target, "cut")
            if mine in (source, target):
                canvas.edges.pop((source, target), None)
        del canvas.nodes[mine]
        canvas.of_call[number] = [key]


def _finding_of(
    calls: Sequence[int], canvas: _Canvas, findings: Sequence[Finding], parameters: Sequence[str]
) -> int | None:
    for index, finding in enumerate(findings):
        if set(parameters) <= set(finding.parameters) and finding.cause not in ("frozen_all", "adapter_inference_mode"):
            spots = {(finding.location.file, finding.location.line)} if finding.location else set()
            spots |= {(spot.file, spot.line) for spot in finding.also}
            for number in calls:
                chain = canvas.trace.calls[number].chain
                if any((code.co_filename, frames.line_of((code, at))) in spots for code, at in chain):
                    return index
    return None


def _numbered(
    canvas: _Canvas, modules: tuple[ModuleInfo, ...], findings: tuple[Finding, ...], loss: str, backward: bool
) -> Picture:
    ordered = sorted(canvas.nodes, key=lambda k: canvas.nodes[k][0])
    numbers = {key: i + 1 for i, key in enumerate(ordered)}
    nodes = tuple(Node(numbers[key], **canvas.nodes[key][1]) for key in ordered)  # type: ignore[arg-type]
    edges = tuple(Edge(numbers[a], numbers[b], status) for (a, b), status in canvas.edges.items())
    return Picture(nodes, edges, modules, findings, loss, backward)
