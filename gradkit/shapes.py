"""What goes into the boxes of a drawing and what comes out: the shapes, and of the batch the names."""

from __future__ import annotations

from collections.abc import Iterable

from gradkit.charts import Box
from gradkit.lettering import clean
from gradkit.phrases import Phrases
from gradkit.records import Node, Picture

_MOST = 6


class Shapes:
    """The values that flow between the boxes of one picture.

    Example:
        >>> from gradkit.records import Edge
        >>> nodes = Node(1, "x", "input", "dead", shape=(2, 3)), Node(2, "SumBackward0", "autograd", "live", shape=())
        >>> picture = Picture(nodes, (Edge(1, 2, "dead"),), (), ())
        >>> shapes = Shapes(picture, Phrases(picture, "en"))
        >>> shapes.taken(Box(2, "node", "live", nodes[1:])), shapes.given(Box(1, "input", "dead", nodes[:1]))
        ('x (2, 3)', 'x (2, 3)')
    """

    def __init__(self, picture: Picture, words: Phrases) -> None:
        self._words = words
        self._node = {node.number: node for node in picture.nodes}
        self._feeds: dict[int, list[int]] = {}
        self._fed: dict[int, list[int]] = {}
        for edge in picture.edges:
            self._feeds.setdefault(edge.target, []).append(edge.source)
            self._fed.setdefault(edge.source, []).append(edge.target)

    def taken(self, box: Box) -> str:
        """What flows in from other boxes, parameters aside; one value a line."""
        inside = {node.number for node in box.members}
        feeds = dict.fromkeys(n for node in box.members for n in self._feeds.get(node.number, ()) if n not in inside)
        return self._listed(self._node[n] for n in feeds if n in self._node and self._node[n].kind != "parameter")

    def given(self, box: Box) -> str:
        """What other boxes take from it."""
        inside = {node.number for node in box.members}
        return self._listed(
            node
            for node in box.members
            if node.kind != "parameter" and any(n not in inside for n in self._fed.get(node.number, ()))
        )

    def _listed(self, nodes: Iterable[Node]) -> str:
        known = list(dict.fromkeys(filter(None, map(self._value, nodes))))
        more = [self._words.say("more", n=len(known) - _MOST)] if len(known) > _MOST else []
        return "\n".join([*known[:_MOST], *more])

    def _value(self, node: Node) -> str:
        """The shape; before it the name of a tensor of the batch. A plate has none: it passes on what flows into it."""
        while node.shape is None and node.kind == "cut" and self._feeds.get(node.number):
            node = self._node[self._feeds[node.number][0]]
        name = clean(node.label) if node.kind == "input" else ""
        return f"{name} {self._words.shape(node.shape)}".strip()
