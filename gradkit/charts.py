"""The boxes and arrows of a drawing, still without words, colours or shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradkit.outline import Part
from gradkit.records import Node


@dataclass(frozen=True)
class Box:
    """One box of a drawing.

    Attributes:
        number: the smallest number of its members; for a plate that hangs beside the flow, a number above all nodes.
        kind: ``"module"``, ``"operations"``, ``"parameters"``, ``"node"`` (in the graph view),
            ``"more"`` (nodes that are not shown one by one), ``"input"``, ``"loss"``, ``"output"`` (what a half that
            is cut off ends in), ``"cut"`` (a plate in the flow) or ``"plate"`` (a plate beside it).
        status: ``"live"``, ``"dead"``, ``"starved"``, ``"partly"`` (some of its parameters starve), ``"frozen"``
            or ``"cut"``.
        members: the nodes that it stands for.
        part: the modules that it stands for, if it does.
        half: ``"before"`` or ``"after"`` if a cut runs through the module and the box is one side of it.
        finding: index of the finding on the plate.
        beside: for a plate, the numbers of the boxes that it speaks of.
        more_uses: how many further boxes take its data without an arrow that says so.
    """

    number: int
    kind: str
    status: str
    members: tuple[Node, ...] = ()
    part: Part | None = None
    half: str = ""
    finding: int | None = None
    beside: tuple[int, ...] = ()
    more_uses: int = 0

    @property
    def trained(self) -> int:
        """How many elements those of its parameters have that get a gradient."""
        live = (node for node in self.members if (node.kind, node.status) == ("parameter", "live"))
        return sum(math.prod(node.shape or ()) for node in live)

    @property
    def flows(self) -> bool:
        """Whether a gradient passes through its operations."""
        return any(node.kind == "autograd" and node.status == "live" for node in self.members)


@dataclass(frozen=True)
class Arrow:
    """Data flows from box ``tail`` to box ``head``; ``status`` as in ``records.Edge``."""

    tail: int
    head: int
    status: str


LARGEST_WEIGHED = 240
"""Of charts with more arrows, all weigh the same."""


@dataclass(frozen=True)
class Chart:
    """What a drawing shows, in forward order. ``shaded``: numbers of boxes before a cut that get no gradient."""

    view: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    shaded: frozenset[int] = frozenset()

    def reach(self) -> dict[tuple[int, int], int]:
        """How many elements of parameters the gradient on each live arrow comes to, by the arrow's ends."""
        live = [arrow for arrow in self.arrows if arrow.status == "live"]
        if len(live) > LARGEST_WEIGHED:
            return {}
        feeds: dict[int, list[int]] = {}
        for arrow in live:
            feeds.setdefault(arrow.head, []).append(arrow.tail)
        size = {box.number: box.trained for box in self.boxes}
        return {(arrow.tail, arrow.head): sum(size[n] for n in _behind(arrow.tail, feeds)) for arrow in live}

    def regions(self) -> list[list[Box]]:
        """The shaded boxes, those together that are linked with each other; a box on its own makes no region."""
        home = {number: {number} for number in self.shaded}
        for arrow in self.arrows:
            if arrow.tail in home and arrow.head in home:
                together = home[arrow.tail] | home[arrow.head]
                home.update(dict.fromkeys(together, together))
        groups = sorted({min(group): group for group in home.values() if len(group) > 1}.items())
        return [[box for box in self.boxes if box.number in group] for _, group in groups]


def _behind(number: int, feeds: dict[int, list[int]]) -> set[int]:
    found, todo = {number}, [number]
    while todo:
        new = [feed for feed in feeds.get(todo.pop(), ()) if feed not in found]
        found.update(new)
        todo += new
    return found
