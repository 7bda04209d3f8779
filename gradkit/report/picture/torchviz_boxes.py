"""The boxes of torchviz's drawing by the numbers of the picture: so that cards, search and paths know them, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gradkit.core.records import Node, Picture
from gradkit.report.picture.chart import Arrow, Box, Chart
from gradkit.report.picture.fold import plates_for
from gradkit.report.picture.torchviz_kept import Kept


@dataclass
class Boxes:
    """Which box stands for what. A box that the picture does not have gets a number above all of the picture's.

    Attributes:
        functions: the number of each node's box; of a leaf, that of its AccumulateGrad.
        tensors: the number of each leaf's own box, by its index.
        outputs: the numbers of the tensors that the drawing ends in, by the index of the node that made each; -1 for a
            loss without any history.
        boxes: all boxes but those of plates beside the flow.
        arrows: all arrows, also those to and from the cuts.
    """

    functions: list[int] = field(default_factory=list)
    tensors: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def chart(self, picture: Picture) -> Chart:
        """The boxes and arrows, and the plates of findings that have no place in the flow."""
        boxes = tuple(self.boxes)
        shaded = frozenset(box.number for box in boxes if box.status == "dead" and box.kind != "loss")
        return Chart("torchviz", (*boxes, *plates_for(picture, boxes)), tuple(self.arrows), shaded)


def boxes(kept: Kept, picture: Picture) -> Boxes:
    """Number the boxes of what was kept.

    Example:
        >>> from gradkit.tracing.autograd_graph import AutogradNode
        >>> leaf, node = AutogradNode("w", -1, True, (2,), ()), AutogradNode("SumBackward0", 3, False, (), (1,))
        >>> known = Node(1, "w", "parameter", "live"), Node(2, "SumBackward0", "autograd", "live")
        >>> made = boxes(Kept((node, leaf), (), 2, 2, (2, 1)), Picture(known, (), (), ()))
        >>> made.functions, made.tensors, made.outputs
        ([2, 3], {1: 1}, {0: 4})
    """
    return _Making(kept, picture).made


class _Making:
    def __init__(self, kept: Kept, picture: Picture) -> None:
        self.kept, self.picture, self.made = kept, picture, Boxes()
        self.known = {node.number: node for node in picture.nodes}
        self.taken: set[int] = set()
        self.last = max(self.known, default=0) + len(picture.findings)
        for index in range(len(kept.nodes)):
            self._node(index)
        for index, node in enumerate(kept.nodes):
            ends = ((self.made.functions[parent], self.made.functions[index]) for parent in node.parents)
            self.made.arrows += [Arrow(*each, self._status(index)) for each in ends]
        self._outputs()
        self._cuts()

    def _status(self, index: int) -> str:
        return "live" if index < self.kept.live else "dead"

    def _box(self, number: int, kind: str, node: Node) -> int:
        """Enter a box; its number is the picture's unless another box has that one already."""
        if not number or number in self.taken:
            self.last += 1
            number = self.last
        self.taken.add(number)
        self.made.boxes.append(Box(number, kind, node.status, (replace(node, number=number),), finding=node.finding))
        return number

    def _node(self, index: int) -> None:
        """The box of a node; a leaf has two, as torchviz draws it."""
        node, status = self.kept.nodes[index], self._status(index)
        number = self.kept.numbers[index] if self.kept.numbers else 0
        known = self.known.get(number)
        if not node.leaf:
            facts = known or Node(number, "", "autograd", status, shape=node.shape)
            facts = replace(facts, label=node.label, kind="autograd", status=status)
            self.made.functions.append(self._box(number, "node", facts))
            return
        facts = known or Node(number, node.label, "input", status, shape=node.shape)
        tensor = self.made.tensors[index] = self._box(number, "node", facts)
        function = self._box(0, "node", Node(0, "AccumulateGrad", "autograd", status, shape=node.shape))
        self.made.functions.append(function)
        self.made.arrows.append(Arrow(tensor, function, status))

    def _outputs(self) -> None:
        """What torchviz is handed: the loss, and the ends of the half that is cut off."""
        nodes = self.kept.nodes
        parents = {parent for node in nodes for parent in node.parents}
        ends = [index for index, node in enumerate(nodes) if index not in parents and not node.leaf]
        loss = next((node for node in self.picture.nodes if node.kind == "loss"), None)
        status = "live" if self.picture.backward else "dead"
        for index in [one for one in ends if one < self.kept.live] or [-1]:
            shown = loss or Node(0, "loss", "loss", status, shape=self.kept.loss)
            self.made.outputs[index] = self._box(shown.number, "loss", shown)
        for index in (one for one in ends if one >= self.kept.live):
            function = next(box.members[0] for box in self.made.boxes if box.number == self.made.functions[index])
            self.made.outputs[index] = self._box(0, "output", replace(function, number=0))
        for index, number in self.made.outputs.items():
            if index >= 0:
                self.made.arrows.append(Arrow(self.made.functions[index], number, self._status(index)))

    def _cuts(self) -> None:
        """The plates in the flow, between what torchviz draws before and behind them."""
        ends = {self.made.functions[index]: number for index, number in self.made.outputs.items() if index >= 0}
        cuts = [node for node in self.picture.nodes if node.kind == "cut"]
        for cut in cuts:
            self._box(cut.number, "cut", cut)
        ahead = _links((edge.source, edge.target) for edge in self.picture.edges)
        back = _links((edge.target, edge.source) for edge in self.picture.edges)
        arrows: dict[tuple[int, int], None] = {}
        for cut in cuts:
            arrows |= dict.fromkeys((ends.get(tail, tail), cut.number) for tail in self._drawn(cut.number, back))
            arrows |= dict.fromkeys((cut.number, head) for head in self._drawn(cut.number, ahead))
        self.made.arrows += [Arrow(*each, "cut") for each in arrows]

    def _drawn(self, start: int, links: dict[int, list[int]]) -> Iterator[int]:
        """The nearest boxes along some links: torchviz knows no calls without history, and no batch."""
        seen, todo = {start}, [start]
        while todo:
            for number in links.get(todo.pop(), ()):
                if number in seen:
                    continue
                seen.add(number)
                if number in self.taken:
                    yield number
                else:
                    todo.append(number)


def _links(ends: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for start, end in ends:
        found.setdefault(start, []).append(end)
    return found
