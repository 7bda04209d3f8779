"""Where a gradient flows again: in the picture of a run after a change, the place that was cut in the one before it.

The place is found by what lay on both sides of the cut, or by the lines that were changed. Only an arrow that carries a
gradient is marked in the flow; a change that has no place there is told beside the boxes that it brought to life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gradkit.core.records import Edge, Fixed, Node, Picture
from gradkit.report.picture.chart import Box
from gradkit.report.picture.style import operation_words

KIND = "fixed"
_MOST_BESIDE = 3

Ends = set[tuple[int, int]]


def marked(before: Picture, after: Picture, changes: Mapping[int, Fixed]) -> Picture:
    """The second picture, with a node wherever a gradient flows again that the first one lost.

    Args:
        before: the picture of the run before the change.
        after: that of the run after it.
        changes: what became of findings that are gone, by their index in the first picture.

    Example:
        >>> from gradkit.core.records import Finding, Location
        >>> a, b = Node(1, "fc.weight", "parameter", "starved", "fc"), Node(3, "loss", "loss", "live")
        >>> cut = Node(2, "detach", "cut", "cut", finding=0)
        >>> then = Picture((a, cut, b), (Edge(1, 2, "cut"), Edge(2, 3, "cut")), (), (Finding("detach", None),))
        >>> now = Picture((replace(a, status="live"), replace(b, number=2)), (Edge(1, 2, "live"),), (), ())
        >>> there = Location("train.py", 7, text="y = x")
        >>> marked(then, now, {0: Fixed("detach", there, (("+", 7, "y = x"),), ("fc.weight",))}).edges
        (Edge(source=1, target=3, status='live'), Edge(source=3, target=2, status='live'))
    """
    nodes, edges = list(after.nodes), list(after.edges)
    told: list[Fixed] = []
    for index, change in changes.items():
        ways = _ways(before, after, index, change)
        number = max((node.number for node in nodes), default=0) + 1
        if ways:
            nodes.append(Node(number, str(len(told)), KIND, "live", location=change.location))
            edges = [edge for edge in edges if (edge.source, edge.target) not in ways]
            edges += [Edge(source, number, "live") for source in sorted({source for source, _ in ways})]
            edges += [Edge(number, target, "live") for target in sorted({target for _, target in ways})]
        if ways or change.lines:
            told.append(change)
    return replace(after, nodes=tuple(nodes), edges=tuple(edges), fixed=tuple(told))


def _ways(before: Picture, after: Picture, index: int, change: Fixed) -> Ends:
    """The ends of the live arrows that lead over the place of a cut."""
    cuts = {node.number for node in before.nodes if node.kind == "cut" and node.finding == index}
    of_before = {node.number: node for node in before.nodes}
    feeds = [of_before[edge.source] for edge in before.edges if edge.target in cuts and edge.source in of_before]
    fed = [of_before[edge.target] for edge in before.edges if edge.source in cuts and edge.target in of_before]
    node = {node.number: node for node in after.nodes}
    live = [edge for edge in after.edges if edge.status == "live" and edge.source in node and edge.target in node]
    lines = {line for sign, line, _ in change.lines if sign == "+"}

    def by(name: Callable[[Node], object]) -> Ends:
        sources, targets = {name(one) for one in feeds}, {name(one) for one in fed}
        found = (edge for edge in live if name(node[edge.source]) in sources and name(node[edge.target]) in targets)
        return {(edge.source, edge.target) for edge in found}

    def is_on_the_lines(one: Node) -> bool:
        place, there = one.location, change.location
        return there is not None and place is not None and place.file == there.file and place.line in lines

    def by_lines() -> Ends:
        found = (edge for edge in live if is_on_the_lines(node[edge.source]) > is_on_the_lines(node[edge.target]))
        return {(edge.source, edge.target) for edge in found} if cuts else set()

    between = {ends for ends in by(lambda one: one.module) if node[ends[0]].module != node[ends[1]].module}
    named = {ends for ends in between if all(node[end].module for end in ends)}
    return by(lambda one: (one.module, operation_words(one.label))) or named or by_lines() or between


def beside(picture: Picture, boxes: tuple[Box, ...]) -> list[Box]:
    """A plate for everything fixed that has no place in the flow of these boxes.

    Args:
        picture: what is drawn.
        boxes: those of the drawing so far.
    """
    placed = {box.members[0].label for box in boxes if box.kind == KIND}
    above = max((box.number for box in boxes), default=0) + len(picture.findings) + len(picture.nodes) + 1
    made = []
    for index, change in enumerate(picture.fixed):
        where = () if str(index) in placed else _concerned(picture, boxes, index, change)
        if where:
            node = Node(above + index, str(index), KIND, "live", location=change.location)
            made.append(Box(node.number, KIND, "live", (node,), beside=where))
    return made


def _concerned(picture: Picture, boxes: tuple[Box, ...], index: int, change: Fixed) -> tuple[int, ...]:
    """The boxes on both sides of the place, else some of those that hold the parameters that came back."""
    mine = {node.number for node in picture.nodes if node.kind == KIND and node.label == str(index)}
    near = {end for edge in picture.edges for end in (edge.source, edge.target) if {edge.source, edge.target} & mine}
    revived = set(change.parameters)
    groups = (
        [box for box in boxes if any(node.number in near for node in box.members)],
        [box for box in boxes if any(node.kind == "parameter" and node.label in revived for node in box.members)],
    )
    return tuple(box.number for box in next((group for group in groups if group), [])[:_MOST_BESIDE])
