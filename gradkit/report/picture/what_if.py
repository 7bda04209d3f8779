"""What would flow if a cut were undone, in the drawing as it is: no box moves, and no code is touched.

It is what the rerun showed that proves the finding: which parameters got a gradient in it, and which calls then stood
in autograd's graph. Of a finding that no rerun has proven, nothing is said.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gradkit.core.records import PROVEN, Node, Picture
from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.style import place_name
from gradkit.report.picture.words import Phrases, Wires


@dataclass(frozen=True)
class Undone:
    """What a rerun undid, and what came of it.

    Attributes:
        findings: indices of the findings whose cuts were undone.
        parameters: names of the parameters that got a gradient.
        said: names the sentence that tells of it, ``picture.undone.<said>``.
    """

    findings: frozenset[int]
    parameters: frozenset[str]
    said: str


def undone(picture: Picture, index: int) -> Undone | None:
    """What the rerun of a finding undid: its cut alone or, where that gives nothing, the cuts of all; None if none did.

    Example:
        >>> from gradkit.core.records import Finding
        >>> cut = Finding("detach", None, proof=PROVEN, parameters=("a",), revived=("a",))
        >>> undone(Picture((), (), (), (cut,)), 0)
        Undone(findings=frozenset({0}), parameters=frozenset({'a'}), said='alone')
    """
    one = picture.findings[index]
    if one.proof != PROVEN or not one.revived:
        return None
    if one.alone is None and not one.facts.get("together"):
        return Undone(frozenset((index,)), frozenset(one.revived), "alone")
    if one.alone:
        return Undone(frozenset((index,)), frozenset(one.alone), "alone")
    every = [at for at, other in enumerate(picture.findings) if other.proof == PROVEN and other.revived]
    names = frozenset(name for at in every for name in picture.findings[at].revived)
    frozen = one.facts.get("together", "") not in ("", "1")
    return Undone(frozenset(every), names, "frozen" if frozen else "together")


class Flows:
    """What would flow without the cuts of one picture: the same in all its drawings, so it is worked out only once.

    Example:
        >>> Flows(Picture((), (), (), ())).picture.findings
        ()
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._known: dict[Undone, _Flow] = {}

    @functools.cached_property
    def wires(self) -> Wires:
        """Which nodes feed which: the same in all drawings, too."""
        return Wires(self.picture)

    def of(self, made: Undone) -> _Flow:
        """That of what a rerun undid."""
        if made not in self._known:
            self._known[made] = _Flow(self.picture, made)
        return self._known[made]


def shown(flows: Flows, chart: Chart, words: Phrases, index: int) -> dict[str, Any] | None:
    """What changes in a drawing, as plain JSON; None where nothing is known of it.

    ``said`` is a sentence; ``boxes`` are triples of number, status, and pairs of a text that stands in the box and the
    one that comes in its place; ``arrows`` are the ends of those that would carry a gradient.

    Args:
        flows: of the picture that is drawn.
        chart: the boxes of the drawing.
        words: those of the language in use.
        index: of the finding to undo.
    """
    made = undone(flows.picture, index)
    if made is None:
        return None
    flow = flows.of(made)
    if not flow.nodes:
        return None
    place = flows.picture.findings[index].location
    said = words.say(
        f"undone.{made.said}", place=place_name(place) if place else words.say("unplaced"), n=len(made.parameters)
    )
    boxes = [[box.number, status, _texts(box, words, flow.words, status)] for box, status in flow.changed(chart)]
    return {"said": said, "boxes": boxes, "arrows": flow.arrows(chart)}


def _texts(box: Box, words: Phrases, after: Phrases, status: str) -> list[list[str]]:
    """What stands in a box, and what would."""
    if box.kind == "loss":
        return [[words.loss_line(), after.loss_line()]]
    if box.kind in ("cut", "plate"):
        finding = words.picture.findings[box.finding] if box.finding is not None else None
        head = words.heading(finding, box.kind == "cut", len(box.members)) if finding else ""
        return [[head, words.say("undone.plate")]] if head else []
    said = words.say("status.would") if status == "live" else after.state(replace(box, status=status))
    return [[words.state(box), said]] if words.state(box) else []


class _Flow:
    """The nodes that a gradient would come to, and did not."""

    def __init__(self, picture: Picture, made: Undone) -> None:
        self._made = made
        self._node = {node.number: node for node in picture.nodes}
        self._after: dict[int, list[int]] = {}
        self._before: dict[int, list[int]] = {}
        for edge in picture.edges:
            self._after.setdefault(edge.source, []).append(edge.target)
            self._before.setdefault(edge.target, []).append(edge.source)
        self._joined = self._until_it_is_joined()
        starts = [node.number for node in picture.nodes if self._comes_back(node)]
        ends = [node.number for node in picture.nodes if node.kind == "loss"]
        self.nodes = self._reached(starts, self._after) & self._reached(ends, self._before)
        nodes = tuple(replace(node, status="live") if self._comes_back(node) else node for node in picture.nodes)
        self.words = Phrases(replace(picture, nodes=nodes, backward=picture.backward or bool(self.nodes)))

    def _comes_back(self, node: Node) -> bool:
        return node.kind == "parameter" and node.status == "starved" and node.label in self._made.parameters

    def _lets_through(self, node: Node) -> bool:
        if node.kind == "cut":
            return node.finding in self._made.findings
        flows = node.kind == "loss" or node.status == "live" or node.revived or node.number in self._joined
        return flows or self._comes_back(node)

    def _until_it_is_joined(self) -> set[int]:
        """Calls behind an undone cut that have no history in the rerun either: what is lost is joined on after them."""
        found: set[int] = set()
        todo = [node.number for node in self._node.values() if node.kind == "cut" and self._lets_through(node)]
        while todo:
            for number in self._after.get(todo.pop(), ()):
                node = self._node[number]
                if node.kind == "call" and not node.revived and number not in found:
                    found.add(number)
                    todo.append(number)
        return found

    def _reached(self, starts: Iterable[int], links: dict[int, list[int]]) -> set[int]:
        """The nodes that let a gradient through, on ways that begin at some."""
        found = set(starts)
        todo = list(found)
        while todo:
            for number in links.get(todo.pop(), ()):
                if number not in found and self._lets_through(self._node[number]):
                    found.add(number)
                    todo.append(number)
        return found

    def changed(self, chart: Chart) -> list[tuple[Box, str]]:
        """The boxes that would look different, with the status that they would have."""
        return [(box, status) for box in chart.boxes if (status := self._status(box))]

    def _status(self, box: Box) -> str:
        """The status that a box would have; ``""`` where it would stay as it is."""
        if box.kind in ("cut", "plate"):
            return "live" if box.finding in self._made.findings else ""
        if box.kind == "loss":
            return "live"
        starved = [node for node in box.members if node.kind == "parameter" and node.status == "starved"]
        back = [node for node in starved if self._comes_back(node)]
        if back:
            return "partly" if len(back) < len(starved) else "live"
        flows = any(node.number in self.nodes for node in box.members)
        return "live" if flows and box.status == "dead" else ""

    def arrows(self, chart: Chart) -> list[list[int]]:
        """The ends of the arrows by which the gradient would come back."""
        home = {node.number: box.number for box in chart.boxes for node in box.members}
        tails: dict[int, list[int]] = {}
        for number in self.nodes:
            tails.setdefault(home.get(number, 0), []).append(number)
        next_to = {box: {home.get(n) for n in self._ways(mine, home)} for box, mine in tails.items()}
        return [
            [arrow.tail, arrow.head]
            for arrow in chart.arrows
            if arrow.status != "live" and arrow.head in next_to.get(arrow.tail, ())
        ]

    def _ways(self, tails: list[int], home: dict[int, int]) -> set[int]:
        """The nodes in other boxes that are next behind some, past those that no box shows."""
        found, todo = set(), list(tails)
        while todo:
            for number in self._after.get(todo.pop(), ()):
                if number in self.nodes and number not in found:
                    found.add(number)
                    todo += [] if number in home else [number]
        return found
