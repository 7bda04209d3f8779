"""The boxes, arrows and links of a drawing, still without words, colours or shapes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradkit.core.records import Node, Picture
from gradkit.report.picture.outline import Part


@dataclass(frozen=True)
class Box:
    """One box of a drawing.

    Attributes:
        number: the smallest number of its members; for a plate that hangs beside the flow, a number above all nodes.
        kind: ``"module"``, ``"operations"``, ``"parameters"``, ``"node"`` (in the graph view),
            ``"more"`` (nodes that are not shown one by one), ``"input"``, ``"loss"``, ``"output"`` (what a half that
            is cut off ends in), ``"cut"`` (a plate in the flow), ``"plate"`` (a plate beside it) or ``"fixed"`` (a
            plate where a gradient flows again, in the flow or beside it).
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


Key = tuple[str | int, ...]
"""Names a future box; its first entry is the box's kind."""

_STRENGTH = {"dead": 0, "cut": 1, "live": 2}


class Links:
    """A directed graph of keys. Every link carries the status of the edges that it stands for.

    Example:
        >>> wires = Links([(("a",), ("b",), "live"), (("b",), ("c",), "dead")])
        >>> wires.bridge(("b",))
        >>> wires.links()
        [(('a',), ('c',), 'dead')]
    """

    def __init__(self, links: Iterable[tuple[Key, Key, str]]) -> None:
        self._after: dict[Key, dict[Key, str]] = {}
        self._before: dict[Key, dict[Key, str]] = {}
        for tail, head, status in links:
            self._link(tail, head, status)

    def links(self) -> list[tuple[Key, Key, str]]:
        """All links as (tail, head, status)."""
        return [(tail, head, status) for tail, heads in self._after.items() for head, status in heads.items()]

    def feeds(self, key: Key) -> set[Key]:
        """The keys that ``key`` takes its data from."""
        return set(self._before.get(key, ()))

    def fed(self, key: Key) -> set[Key]:
        """The keys that take data from ``key``."""
        return set(self._after.get(key, ()))

    def feeds_only(self, tail: Key, head: Key) -> bool:
        """Whether ``head`` is all that takes data from ``tail``."""
        after = self._after.get(tail, {})
        return len(after) == 1 and head in after

    def upstream(self, keys: Iterable[Key]) -> set[Key]:
        """All keys from which data flows into one of ``keys``, over any number of links."""
        seen: set[Key] = set()
        queue = deque(keys)
        while queue:
            for feed in self._before.get(queue.popleft(), ()):
                if feed not in seen:
                    seen.add(feed)
                    queue.append(feed)
        return seen

    def ranks(self) -> dict[Key, int]:
        """A number for every key that grows along the links; keys on one ring share theirs.

        Example:
            >>> ranks = Links([(("a",), ("b",), "live"), (("b",), ("a",), "dead"), (("b",), ("c",), "live")]).ranks()
            >>> ranks[("a",)] == ranks[("b",)] < ranks[("c",)]
            True
        """
        left: list[Key] = []
        seen: set[Key] = set()
        for start in [*self._after, *self._before]:
            left += _leaving(start, self._after, seen)
        rank: dict[Key, int] = {}
        ranked: set[Key] = set()
        for number, start in enumerate(reversed(left)):
            rank.update(dict.fromkeys(_leaving(start, self._before, ranked), number))
        return rank

    def come_into(self, keys: Iterable[Key], key: Key, ranks: Mapping[Key, int]) -> bool:
        """Whether data flows from each of ``keys`` into ``key``, over any number of links.

        Args:
            ranks: as ``ranks`` gave them; what has been taken out since does not matter. Nothing below is searched.
        """
        missing = set(keys) - self._before.get(key, {}).keys()
        least = min((ranks[one] for one in missing), default=0)
        seen, todo = {key}, [key]
        while todo and missing:
            new = [one for one in self._before.get(todo.pop(), ()) if ranks[one] >= least and one not in seen]
            seen.update(new)
            missing.difference_update(new)
            todo += new
        return not missing

    def bridge(self, key: Key) -> None:
        """Take a key out and link what fed it with what it fed."""
        before, after = self._before.pop(key, {}), self._after.pop(key, {})
        for tail in before:
            self._after[tail].pop(key)
        for head in after:
            self._before[head].pop(key)
        for tail, first in before.items():
            for head, second in after.items():
                self._link(tail, head, min(first, second, key=_strength_of_a_way))

    def join(self, key: Key, into: Key) -> None:
        """Let ``into`` take over all links of ``key``."""
        before, after = self._before.pop(key, {}), self._after.pop(key, {})
        for tail, status in before.items():
            self._after[tail].pop(key)
            self._link(tail, into, status)
        for head, status in after.items():
            self._before[head].pop(key)
            self._link(into, head, status)

    def thin(self) -> None:
        """Drop every link that only repeats a longer way: of live links for a live one, of any for a dead one."""
        for tail, head, status in self.links():
            if status != "cut" and self._another_way(tail, head, live=status == "live"):
                self.drop(tail, head)

    def drop(self, tail: Key, head: Key) -> None:
        """Remove one link."""
        self._after[tail].pop(head)
        self._before[head].pop(tail)

    def _link(self, tail: Key, head: Key, status: str) -> None:
        if tail == head:
            return
        present = self._after.setdefault(tail, {}).get(head, status)
        best = status if present == status else max(present, status, key=_STRENGTH.__getitem__)
        self._after[tail][head] = best
        self._before.setdefault(head, {})[tail] = best

    def _another_way(self, tail: Key, head: Key, *, live: bool) -> bool:
        def steps(key: Key) -> list[Key]:
            return [to for to, status in self._after.get(key, {}).items() if status == "live" or not live]

        queue = deque(key for key in steps(tail) if key != head)
        seen = {tail, *queue}
        while queue:
            for key in steps(queue.popleft()):
                if key == head:
                    return True
                if key not in seen:
                    seen.add(key)
                    queue.append(key)
        return False


def _leaving(start: Key, links: Mapping[Key, Mapping[Key, str]], seen: set[Key]) -> list[Key]:
    """The keys that a walk in depth reaches first, in the order in which it leaves them for good."""
    if start in seen:
        return []
    seen.add(start)
    left, path = [], [(start, iter(links.get(start, ())))]
    while path:
        key, ahead = path[-1]
        new = next((one for one in ahead if one not in seen), None)
        if new is None:
            left.append(key)
            path.pop()
        else:
            seen.add(new)
            path.append((new, iter(links.get(new, ()))))
    return left


def _strength_of_a_way(status: str) -> int:
    return {"cut": 0, "dead": 1, "live": 2}[status]


def above(picture: Picture, numbers: Iterable[int]) -> list[frozenset[int]]:
    """For each node, the numbers of all nodes that its value was made from.

    Example:
        >>> from gradkit.core.records import Edge
        >>> edges = Edge(1, 2, "live"), Edge(2, 3, "live"), Edge(4, 5, "live")
        >>> [sorted(found) for found in above(Picture((), edges, (), ()), [3, 5])]
        [[1, 2], [4]]
    """
    feeds: dict[int, list[int]] = {}
    for edge in picture.edges:
        feeds.setdefault(edge.target, []).append(edge.source)
    return [frozenset(_upstream(number, feeds)) for number in numbers]


def _upstream(number: int, feeds: Mapping[int, Iterable[int]]) -> set[int]:
    seen: set[int] = set()
    queue = [number]
    while queue:
        new = [feed for feed in feeds.get(queue.pop(), ()) if feed not in seen]
        seen.update(new)
        queue += new
    return seen
