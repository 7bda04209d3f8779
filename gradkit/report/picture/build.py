"""Join the autograd graph, the trace and the findings into one picture: both halves, and the cuts between them.

Live nodes are autograd's own. The half before a cut is taken from the rerun with the cut undone (without a rerun: from
the trace); calls after a cut that left no history are shown as calls. A plate stands on every way from what starves to
the loss, where it is lost.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType

from gradkit.core import causes
from gradkit.core.operations import MADE_TENSOR
from gradkit.core.records import Edge, Finding, Location, ModuleInfo, Node, Parameter, Picture
from gradkit.core.trace import Call, Point, Trace
from gradkit.diagnosis.experiments.undo_cuts import Rerun
from gradkit.diagnosis.facts.cuts import REGION, Cut, Verdict
from gradkit.source import locations
from gradkit.tracing import no_loss
from gradkit.tracing.autograd_graph import AutogradGraph, AutogradNode


@dataclass
class Draft:
    """Nodes under construction, by a key; numbered at the end in the order of the run.

    Attributes:
        nodes: by key, where each stands in the run, and its facts.
        edges: the status of each link, by the keys at its ends.
        of_call: the keys of the nodes that stand for a call, by its index.
        inputs: numbers of the values that are tensors of the batch, drawn or not.
        places: lines that were looked up already.
        touching: the ends of all links that begin or end at a key, in the order in which they were made.
        from_before: the loss was computed before the step.
        leads_nowhere: there is no loss that anything of the model flows into: all that it computed is drawn.
        revived: calls that left a node in the rerun in which the cuts were undone, by their indices.
    """

    trace: Trace
    nodes: dict[object, tuple[tuple[int, int], dict[str, object]]] = field(default_factory=dict)
    edges: dict[tuple[object, object], str] = field(default_factory=dict)
    of_call: dict[int, list[object]] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)
    places: dict[tuple[int, int], Location] = field(default_factory=dict)
    touching: dict[object, dict[tuple[object, object], None]] = field(default_factory=dict)
    from_before: bool = False
    leads_nowhere: bool = False
    revived: frozenset[int] = frozenset()

    def node(self, key: object, order: tuple[int, int], **facts: object) -> None:
        """Enter a node, unless it is there."""
        self.nodes.setdefault(key, (order, facts))

    def edge(self, source: object, target: object, status: str) -> None:
        """Link two nodes that are there; a link that is cut stays cut."""
        if source != target and source in self.nodes and target in self.nodes:
            if self.edges.get((source, target)) != "cut":
                self.edges[(source, target)] = status
                for end in (source, target):
                    self.touching.setdefault(end, {})[source, target] = None

    def unlink(self, source: object, target: object) -> None:
        """Take the link between two nodes out, if there is one."""
        if self.edges.pop((source, target), None) is not None:
            for end in (source, target):
                del self.touching[end][source, target]

    def call_facts(self, call: Call) -> dict[str, object]:
        """Module, shape and line of what a call made."""
        shape = self.trace.values[call.outputs[0]].shape if call.outputs else None
        module = self.trace.modules[call.module] if call.module >= 0 else ""
        return {"module": module, "shape": shape, "location": self._located(call.chain[0]) if call.chain else None}

    def _located(self, point: Point) -> Location:
        code, at = point
        if (id(code), at) not in self.places:  # to hash the code of a long function takes long itself
            self.places[id(code), at] = locations.locate(point)
        return self.places[id(code), at]

    def is_live(self, key: object) -> bool:
        """Whether gradient flows through the node."""
        return self.nodes[key][1]["status"] == "live" if key in self.nodes else False

    def key_of(self, number: int) -> object | None:
        """The node that stands for a value: the last node of the call that made it, or the parameter's own."""
        value = self.trace.values[number]
        if value.parameter:
            return ("leaf", value.parameter)
        made = self.of_call.get(value.maker)
        return max(made, key=lambda k: self.nodes[k][0]) if made else None


def add_cuts(canvas: Draft, verdict: Verdict, findings: Sequence[Finding]) -> None:
    """Put the plate of every cut that has a finding into the flow.

    A call that cuts is replaced by its plate. What a stretch without recording computed hangs on the plate where it
    comes out of that stretch; if nothing that is drawn uses it, the plate stands where the gradient went in.
    """
    told = _Told(canvas, findings)
    for cut in verdict.cuts:
        index = told.of(cut.calls, cut.parameters)
        if index is None or not cut.calls:
            continue
        exits = _exits(canvas, cut) if cut.kind == REGION else []
        key, finding = ("cut", index), findings[index]
        order = (min((target for _, target in exits), default=cut.calls[0]), -1)
        canvas.node(
            key, order, label=finding.cause, kind="cut", status="cut", location=finding.location, finding=index,
            module=_shared(canvas, exits) if exits else finding.module,
        )  # fmt: skip
        for source, target in exits:
            _lead_over(canvas, key, source, target)
        for number in () if exits else cut.calls:
            _sever(canvas, key, canvas.trace.calls[number], set(cut.calls) if cut.kind == REGION else set())
            if cut.kind != REGION:
                _replace(canvas, key, number)


def _exits(canvas: Draft, cut: Cut) -> list[tuple[int, int]]:
    """Where values that starve come out of a stretch without recording: pairs of a value's number and the call that
    uses it, one more than the last call for the loss."""
    trace = canvas.trace
    keys = {trace.regions[region].key for region in (cut.region,) if region >= 0}
    inside = {c.index for c in trace.calls if any(trace.regions[r].key in keys for r in c.regions)}
    flowing = {trace.parameters[name] for name in cut.parameters if name in trace.parameters}
    found = []
    for call in trace.calls:
        used = flowing.intersection(call.inputs)
        if used:
            flowing.update(call.outputs)
        if call.index not in inside and call.index in canvas.of_call:
            found += [(number, call.index) for number in sorted(used) if _comes_from(canvas, number, inside)]
    if trace.loss in flowing and _comes_from(canvas, trace.loss, inside):
        found.append((trace.loss, len(trace.calls)))
    return found


def _comes_from(canvas: Draft, number: int, inside: set[int]) -> bool:
    value = canvas.trace.values[number]
    return value.maker in inside and (value.floating or value.python) and value.maker in canvas.of_call


def _shared(canvas: Draft, exits: Iterable[tuple[int, int]]) -> str:
    """The innermost module that holds both sides of all these exits."""
    trace, sides = canvas.trace, []
    for source, target in exits:
        for number in (trace.values[source].maker, target):
            running = trace.calls[number].module if number < len(trace.calls) else -1
            sides.append(trace.modules[running].split(".") if running >= 0 else [])
    same = []
    for names in zip(*sides, strict=False):
        if len(set(names)) > 1:
            break
        same.append(names[0])
    return ".".join(same)


def _lead_over(canvas: Draft, key: object, source: int, target: int) -> None:
    """Lead a link over a plate."""
    tail = canvas.key_of(source)
    heads: list[object] = canvas.of_call.get(target, ["loss"])
    kept = [head for head in heads if (tail, head) in canvas.edges] or heads[:1]
    for head in kept:
        canvas.unlink(tail, head)
        canvas.edge(key, head, "cut")
    canvas.edge(tail, key, "cut")


def _sever(canvas: Draft, key: object, call: Call, inside: set[int]) -> None:
    """Lead what flows into a call from outside of the cut over the cut's plate."""
    mine = canvas.of_call.get(call.index)
    if not mine:
        return
    for number in call.inputs:
        value = canvas.trace.values[number]
        if value.maker in inside or not value.floating:
            continue
        source = canvas.key_of(number)
        if source is None or source not in canvas.nodes or canvas.nodes[source][1]["kind"] == "input":
            continue
        if value.requires_grad or value.parameter:
            canvas.unlink(source, mine[0])
            canvas.edge(source, key, "cut")
            canvas.edge(key, mine[0], "cut")


def _replace(canvas: Draft, key: object, number: int) -> None:
    """The plate stands for the call that cuts: what used its result hangs on the plate."""
    for mine in [k for k in canvas.of_call.get(number, []) if k == ("call", number)]:
        for source, target in list(canvas.touching.get(mine, ())):
            if source == mine:
                canvas.edge(key, target, "cut")
            canvas.unlink(source, target)
        del canvas.nodes[mine]
        canvas.of_call[number] = [key]


class _Told:
    """The findings by the lines that they name."""

    def __init__(self, canvas: Draft, findings: Sequence[Finding]) -> None:
        self._canvas = canvas
        self._starved = [frozenset(finding.parameters) for finding in findings]
        self._own = [(own.file, own.line) if (own := finding.location) else None for finding in findings]
        self._at: dict[tuple[str, int], list[int]] = {}
        self._lines: dict[int, tuple[list[int], list[int]]] = {}
        for index, finding in enumerate(findings):
            if causes.cause(finding.cause).drawn:
                spots = (finding.location, *finding.also) if finding.location else finding.also
                for place in dict.fromkeys((spot.file, spot.line) for spot in spots):
                    self._at.setdefault(place, []).append(index)

    def of(self, calls: Iterable[int], parameters: Iterable[str]) -> int | None:
        """The first finding that names a line of one of the calls and starves all these parameters.

        One that names it as its own comes first: a line that calls all the cuts is told beside each of them.
        """
        points = {(id(code), at): (code, at) for number in calls for code, at in self._canvas.trace.calls[number].chain}
        places = {(code.co_filename, self._line(code, at)) for code, at in points.values()}
        found = {index for place in places for index in self._at.get(place, ())}
        starved = frozenset(parameters)
        fits = [index for index in found if starved <= self._starved[index]]
        return min(fits, key=lambda index: (self._own[index] not in places, index), default=None)

    def _line(self, code: CodeType, at: int) -> int:
        """As ``locations.line_of``, with the table of a long function read once."""
        if id(code) not in self._lines:
            known = [(start, line or code.co_firstlineno) for start, _, line in code.co_lines()]
            self._lines[id(code)] = [start for start, _ in known], [line for _, line in known]
        starts, lines = self._lines[id(code)]
        row = bisect.bisect_right(starts, at) - 1
        return lines[row] if row >= 0 else code.co_firstlineno


MOST_INPUTS = 8
MOST_NODES = 8000
"""How many of autograd's nodes are drawn one by one; of those further from the loss only the calls are."""


def make_picture(  # noqa: PLR0913  it joins what all stages found
    trace: Trace, verdict: Verdict, graph: AutogradGraph, rerun: Rerun, findings: tuple[Finding, ...],
    rows: Sequence[Parameter], modules: tuple[ModuleInfo, ...], loss: str, backward: bool,
) -> Picture:  # fmt: skip
    """The picture of one diagnosis."""
    canvas = Draft(trace)
    starved = {row.name for row in rows if row.should_train and not row.reached}
    left_out = graph.left_out + max(0, len(graph.nodes) - MOST_NODES)
    _enter_loss(canvas, backward)
    _autograd(canvas, trace, graph, starved, "live", frozenset())
    if rerun.trace is not None:
        live = frozenset(canvas.of_call)
        _autograd(canvas, rerun.trace, rerun.graph, starved, "dead", live)
        canvas.revived = _with_a_node(rerun.trace, rerun.graph)
    _parameters(canvas, starved, "starved")
    if left_out:
        _parameters(canvas, {row.name for row in rows if row.should_train and row.reached}, "live")
    _calls(canvas, verdict, _flowing(trace) if left_out else frozenset())
    _inputs(canvas)
    _loss(canvas, backward)
    add_cuts(canvas, verdict, findings)
    _put_plates_before_the_loss(canvas, findings)
    nodes, edges = _numbered(canvas)
    return Picture(nodes, edges, modules, findings, loss, backward, left_out, max(0, len(canvas.inputs) - MOST_INPUTS))


def _autograd(
    canvas: Draft, trace: Trace, graph: AutogradGraph, starved: set[str], status: str, taken: frozenset[int]
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
        if node.label == "AccumulateGrad":
            continue
        if number < 0:
            if canvas.from_before and status == "live":
                keys[index] = _before_the_step(canvas, index, node)
            continue
        if status == "dead" and (number in taken or not _was_live(canvas.trace, number)):
            continue
        keys[index] = (status, index)
        facts = canvas.call_facts(canvas.trace.calls[number]) | {"shape": node.shape}
        canvas.node(keys[index], (number, node.sequence), label=node.label, kind="autograd", status=status, **facts)
        canvas.of_call.setdefault(number, []).append(keys[index])
    _autograd_edges(canvas, graph, keys, status)


def _with_a_node(trace: Trace, graph: AutogradGraph) -> frozenset[int]:
    """The calls that left a node in a graph, by their indices."""
    begins = [call.sequence for call in trace.calls]
    numbers = (node.sequence for node in graph.nodes if not node.leaf and node.sequence >= 0)
    return frozenset(bisect.bisect_right(begins, number) - 1 for number in numbers)


def _before_the_step(canvas: Draft, index: int, node: AutogradNode) -> object:
    """Enter a node of a loss that was computed before the step: no call is known to have made it."""
    key, trace = ("live", index), canvas.trace
    canvas.node(key, (-1, node.sequence), label=node.label, kind="autograd", status="live", shape=node.shape)
    if index == 0 and trace.values[trace.loss].past:
        canvas.of_call[trace.values[trace.loss].maker] = [key]
    return key


def _was_live(trace: Trace, number: int) -> bool:
    return number < len(trace.calls) and any(trace.values[o].requires_grad for o in trace.calls[number].outputs)


def _autograd_edges(canvas: Draft, graph: AutogradGraph, keys: dict[int, object], status: str) -> None:
    for index, node in enumerate(graph.nodes[:MOST_NODES]):
        for parent in node.parents:
            below = graph.nodes[parent]
            for source in below.parents if below.label == "AccumulateGrad" else (parent,):
                if index in keys and source in keys:
                    canvas.edge(keys[source], keys[index], status)


def _calls(canvas: Draft, verdict: Verdict, flowing: frozenset[int]) -> None:
    """Enter the calls on the way to the loss that left no node, and join them to what they used.

    Left out is what no parameter takes part in (masks, positions, indices): the batch leads past it.

    Args:
        flowing: values that a gradient comes to. Their calls stand for the nodes of a graph that is too large.
    """
    learned = _learned(canvas.trace)
    for call in canvas.trace.calls:
        if call.index in canvas.of_call or not (canvas.leads_nowhere or verdict.reaching.intersection(call.outputs)):
            continue
        if _was_before(canvas, call):
            continue
        if call.index in learned or not learned:
            key = ("call", call.index)
            kind, status = ("autograd", "live") if flowing.intersection(call.outputs) else ("call", "dead")
            canvas.node(key, (call.index, 0), label=call.name, kind=kind, status=status, **canvas.call_facts(call))
            canvas.of_call[call.index] = [key]
    for call in canvas.trace.calls:
        mine = canvas.of_call.get(call.index)
        if mine is None or _was_before(canvas, call):
            continue
        for number in call.inputs:
            source = canvas.key_of(number)
            if source is not None and not _is_told(canvas, source, mine):
                live = number in flowing and canvas.is_live(source) and canvas.is_live(mine[0])
                canvas.edge(source, mine[0], "live" if live else "dead")


def _was_before(canvas: Draft, call: Call) -> bool:
    """Whether a call stands for all that made a loss before the step; autograd's nodes of that are drawn instead."""
    return canvas.from_before and any(canvas.trace.values[number].past for number in call.outputs)


def _flowing(trace: Trace) -> frozenset[int]:
    """The values that the loss's gradient comes to, as far as the trace tells."""
    begun = [trace.loss] if trace.loss >= 0 and trace.values[trace.loss].requires_grad else []
    return frozenset(trace.sources(begun, through=lambda number: trace.values[number].requires_grad))


def _is_told(canvas: Draft, source: object, mine: Sequence[object]) -> bool:
    """Whether autograd's own edges already lead from a node to those of a call."""
    kinds = {key[0] for key in (source, *mine) if isinstance(key, tuple)}
    return (len(kinds) == 1 and kinds <= {"live", "dead"}) or any((source, key) in canvas.edges for key in mine)


def _learned(trace: Trace) -> set[int]:
    """The calls that a parameter, trained or frozen, flows into."""
    return {call.index for call in trace.ahead(number for number, value in enumerate(trace.values) if value.parameter)}


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


def _parameters(canvas: Draft, names: Iterable[str], status: str) -> None:
    for order, name in enumerate(sorted(names)):
        shape = canvas.trace.values[canvas.trace.parameters[name]].shape
        facts: dict[str, object] = {"module": name.rpartition(".")[0], "shape": shape}
        canvas.node(("leaf", name), (-1, order), label=name, kind="parameter", status=status, **facts)


def _inputs(canvas: Draft) -> None:
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


def _enter_loss(canvas: Draft, backward: bool) -> None:
    """The node of the loss; it stands for the call by which a number in its place was made a tensor."""
    trace = canvas.trace
    canvas.node("loss", (len(trace.calls), 0), label="loss", kind="loss", status="live" if backward else "dead")
    canvas.from_before = no_loss.is_from_before(trace)
    maker = trace.values[trace.loss].maker if trace.loss >= 0 else -1
    number = maker >= 0 and trace.calls[maker].name == MADE_TENSOR and not trace.calls[maker].chain
    if number:
        canvas.of_call[maker] = ["loss"]
    canvas.leads_nowhere = trace.loss < 0 or (number and maker not in _learned(trace))


def _put_plates_before_the_loss(canvas: Draft, findings: Sequence[Finding]) -> None:
    """Where there is no loss, or one from before the step, no call is cut: what starves ends at the plate in front."""
    for index, finding in enumerate(findings):
        told = canvas.leads_nowhere or (canvas.from_before and finding.parameters)
        if not told or ("cut", index) in canvas.nodes or not causes.cause(finding.cause).drawn:
            continue
        ends = _ends(canvas, [("leaf", name) for name in finding.parameters])
        canvas.node(
            ("cut", index), (len(canvas.trace.calls), -1), label=finding.cause, kind="cut", status="cut",
            location=finding.location, finding=index, module=finding.module,
        )  # fmt: skip
        for end in ends:
            canvas.edge(end, ("cut", index), "cut")
        canvas.edge(("cut", index), "loss", "cut")


def _ends(canvas: Draft, starts: Iterable[object]) -> list[object]:
    """The nodes at which what flows from some others goes no further."""
    todo, seen, found = list(starts), set[object](), []
    while todo:
        key = todo.pop()
        if key in seen or key not in canvas.nodes:
            continue
        seen.add(key)
        after = [target for source, target in canvas.touching.get(key, ()) if source == key]
        todo += after
        found += [] if after else [key]
    return found


def _loss(canvas: Draft, backward: bool) -> None:
    source = canvas.key_of(canvas.trace.loss) if canvas.trace.loss >= 0 else None
    if source is not None:
        canvas.edge(source, "loss", "live" if canvas.is_live(source) and backward else "dead")


def _numbered(canvas: Draft) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    ordered = sorted(canvas.nodes, key=lambda k: canvas.nodes[k][0])
    numbers = {key: i + 1 for i, key in enumerate(ordered)}
    again = {key for index in canvas.revived for key in canvas.of_call.get(index, ()) if not canvas.is_live(key)}
    entered = ((numbers[key], *canvas.nodes[key], key in again) for key in ordered)
    nodes = tuple(
        Node(number, order=order, revived=back, **facts)  # type: ignore[arg-type]
        for number, order, facts, back in entered
    )
    return nodes, tuple(Edge(numbers[a], numbers[b], status) for (a, b), status in canvas.edges.items())
