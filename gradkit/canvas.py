"""A picture under construction: nodes and edges by key, before they are numbered."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradkit import frames
from gradkit.records import Location
from gradkit.traces import Call, Point, Trace


@dataclass
class Canvas:
    """Nodes under construction, by a key; numbered at the end in the order of the run.

    Attributes:
        nodes: by key, where each stands in the run, and its facts.
        edges: the status of each link, by the keys at its ends.
        of_call: the keys of the nodes that stand for a call, by its index.
        inputs: numbers of the values that are tensors of the batch, drawn or not.
        places: lines that were looked up already.
        touching: the ends of all links that begin or end at a key, in the order in which they were made.
    """

    trace: Trace
    nodes: dict[object, tuple[tuple[int, int], dict[str, object]]] = field(default_factory=dict)
    edges: dict[tuple[object, object], str] = field(default_factory=dict)
    of_call: dict[int, list[object]] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)
    places: dict[tuple[int, int], Location] = field(default_factory=dict)
    touching: dict[object, dict[tuple[object, object], None]] = field(default_factory=dict)

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
            self.places[id(code), at] = frames.locate(point)
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
