"""The region of a large graph around its cuts: node by node there, and a box for every part that lies beyond."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gradkit.core.records import Node, Picture
from gradkit.report.picture.chart import Arrow, Box, Chart

MARK = "@"
"""Begins the name of a box for what lies beyond, among the things that a person opened."""

_NEAR, _MORE, _BEYOND, _FAN = 34, 24, 12, 4
_KINDS = {"input": "input", "loss": "loss", "cut": "cut", "fixed": "fixed"}
_RANK = {"dead": 0, "live": 1, "cut": 2}


def near_cuts(picture: Picture, opened: Iterable[str] = ()) -> Chart:
    """The nodes around the cuts (without one: around what starves, or the loss), the loss, and boxes for the rest.

    Args:
        picture: what was found.
        opened: ``"@7"`` shows more nodes, beginning with number 7 and those around it.

    Example:
        >>> from gradkit.core.records import Edge
        >>> nodes = tuple(Node(n, f"op{n}", "autograd", "live") for n in range(1, 101))
        >>> chain = Picture(nodes, tuple(Edge(n, n + 1, "live") for n in range(1, 100)), (), ())
        >>> [(box.number, len(box.members)) for box in near_cuts(chain).boxes if box.kind == "more"]
        [(1, 66)]
    """
    return _Near(picture, opened).chart()


class _Near:
    def __init__(self, picture: Picture, opened: Iterable[str]) -> None:
        self.node = {node.number: node for node in picture.nodes}
        self.edges = [edge for edge in picture.edges if edge.source in self.node and edge.target in self.node]
        self.beside: dict[int, list[int]] = {number: [] for number in self.node}
        self.feeds: dict[int, list[int]] = {number: [] for number in self.node}
        for edge in self.edges:
            self.beside[edge.source].append(edge.target)
            self.beside[edge.target].append(edge.source)
            self.feeds[edge.target].append(edge.source)
        self.middle = _middle(picture)
        self.kept = {node.number for node in picture.nodes if node.kind == "loss"}
        self._keep(self.middle, _NEAR)
        for name in opened:
            if name.startswith(MARK) and int(name[1:]) in self.node:
                self._keep([int(name[1:])], _MORE)

    def chart(self) -> Chart:
        home = self._homes()
        hidden: dict[int, list[Node]] = {}
        for number, group in home.items():
            hidden.setdefault(group, []).append(self.node[number])
        boxes = [_box(self.node[number]) for number in self.kept] + [_beyond(nodes) for nodes in hidden.values()]
        first = {group: min(node.number for node in nodes) for group, nodes in hidden.items()}
        arrows: dict[tuple[int, int], str] = {}
        for edge in self.edges:
            tail, head = (first[home[n]] if n in home else n for n in (edge.source, edge.target))
            if tail != head:
                arrows[tail, head] = max(arrows.get((tail, head), edge.status), edge.status, key=_RANK.__getitem__)
        unsaid = self._unsaid(arrows)
        boxes = [replace(box, more_uses=unsaid.count(box.number)) for box in boxes]
        return Chart(
            "graph",
            tuple(sorted(boxes, key=lambda box: box.number)),
            tuple(Arrow(*ends, status) for ends, status in sorted(arrows.items())),
        )

    def _unsaid(self, arrows: dict[tuple[int, int], str]) -> list[int]:
        """Of a parameter that many boxes use, draw the first and the last use; the tails of the arrows taken out."""
        found: list[int] = []
        for number in self.kept:
            uses = sorted(ends for ends in arrows if ends[0] == number) if self.node[number].kind == "parameter" else []
            for ends in uses[1:-1] if len(uses) > _FAN else ():
                del arrows[ends]
                found.append(number)
        return found

    def _keep(self, starts: Iterable[int], most: int) -> None:
        """Keep the nodes nearest to some, ``most`` more than there are; of a fan only the first few."""
        queue, seen, room = deque(starts), set(starts), most
        while queue and room > 0:
            number = queue.popleft()
            room -= number not in self.kept
            self.kept.add(number)
            for other in self.beside[number][:_FAN]:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)

    def _homes(self) -> dict[int, int]:
        """For every hidden node, the part that it lies in: hidden nodes linked on one side of the middle go together,
        and parts that hang on the same nodes do; if those are many, all of one side."""
        before = self._upstream(self.middle)
        home: dict[int, int] = {}
        borders: dict[int, set[int]] = {}
        for number in self.node:
            if number not in self.kept and number not in home:
                borders[number] = self._flood(number, before, home)
        same: dict[object, int] = {}
        join = {part: same.setdefault((part in before, frozenset(edge)), part) for part, edge in borders.items()}
        if len(set(join.values())) > _BEYOND:
            join = {part: same.setdefault(part in before, part) for part in borders}
        return {number: join[part] for number, part in home.items()}

    def _flood(self, start: int, before: set[int], home: dict[int, int]) -> set[int]:
        """Give all hidden nodes linked with one, on its side, a home; the kept nodes around them."""
        border: set[int] = set()
        todo, home[start] = [start], start
        while todo:
            for other in self.beside[todo.pop()]:
                if other in self.kept:
                    border.add(other)
                elif other not in home and (other in before) == (start in before):
                    home[other] = start
                    todo.append(other)
        return border

    def _upstream(self, starts: Iterable[int]) -> set[int]:
        found = set(starts)
        todo = list(found)
        while todo:
            for feed in self.feeds[todo.pop()]:
                if feed not in found:
                    found.add(feed)
                    todo.append(feed)
        return found


def _middle(picture: Picture) -> list[int]:
    """The nodes that there is most to see around."""
    for wanted in ("cut", "starved", "fixed", "loss"):
        found = [node.number for node in picture.nodes if wanted in (node.kind, node.status)]
        if found:
            return found[:3]
    return [node.number for node in picture.nodes[-1:]]


def _box(node: Node) -> Box:
    return Box(node.number, _KINDS.get(node.kind, "node"), node.status, (node,), finding=node.finding)


def _beyond(nodes: list[Node]) -> Box:
    """The box of a part beyond: it starves if anything in it does."""
    found = {node.status for node in nodes}
    status = next((one for one in ("starved", "live", "frozen") if one in found), "dead")
    if status == "starved" and any(node.kind == "parameter" and node.status == "live" for node in nodes):
        status = "partly"
    return Box(min(_numbers(nodes)), "more", status, tuple(nodes))


def _numbers(nodes: Iterable[Node]) -> Iterator[int]:
    return (node.number for node in nodes)
