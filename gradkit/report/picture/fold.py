"""From a picture to the boxes of a drawing: every node, those near the cuts, or folded by module.

Folded by module, a deep model reads at a glance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gradkit.core.errors import GradkitError
from gradkit.core.records import Finding, Node, Picture
from gradkit.report.picture import fixed
from gradkit.report.picture.chart import Arrow, Box, Chart, Key, Links, above
from gradkit.report.picture.nearby import near_cuts
from gradkit.report.picture.outline import MOST, MOST_PLATES, Outline, lineage
from gradkit.report.picture.style import operation_words

_FEW = 16
_LAYOUT = frozenset(
    {
        *("accumulate_grad", "view", "unsafe_view", "reshape", "transpose", "t", "permute", "clone", "contiguous"),
        *("expand", "unsqueeze", "squeeze", "slice", "select", "getitem", "split", "chunk", "unbind", "as_strided"),
        *("flatten", "unflatten", "to", "to_copy", "alias", "lift_fresh"),
    }
)


def fold_by_module(picture: Picture, opened: Iterable[str] = ()) -> Chart:
    """One box a module or a run of like modules; operations between them only where branches meet or a cut is near.

    Args:
        picture: what was found.
        opened: dotted paths of modules to unfold.

    Example:
        >>> nodes = Node(1, "fc.weight", "parameter", "live", "fc"), Node(2, "loss", "loss", "live")
        >>> [box.kind for box in fold_by_module(Picture(nodes, (), (), ())).boxes]
        ['module', 'loss']
    """
    return _Map(picture, opened).chart()


class _Map:
    """The folding of one picture by module."""

    def __init__(self, picture: Picture, opened: Iterable[str]) -> None:
        self.picture = picture
        self.outline = Outline(picture)
        self.parts = self.outline.parts(opened)
        self.home = {path: index for index, part in enumerate(self.parts) for path in part.paths}
        cuts_in: dict[int | None, list[int]] = {}
        for node in picture.nodes:
            if node.kind == "cut":
                cuts_in.setdefault(self._part_of(node.module), []).append(node.number)
        alone = {part: cuts[0] for part, cuts in cuts_in.items() if part is not None and len(cuts) == 1}
        self.before = dict(zip(alone, above(picture, alone.values()), strict=True))
        self.key = {node.number: self._key_of(node) for node in picture.nodes}
        self.node = {node.number: node for node in picture.nodes}
        self.wires = Links(
            (self.key[edge.source], self.key[edge.target], edge.status)
            for edge in picture.edges
            if edge.source in self.key and edge.target in self.key
        )
        self.members: dict[Key, list[Node]] = {}
        for node in picture.nodes:
            self.members.setdefault(self.key[node.number], []).append(node)

    def chart(self) -> Chart:
        self._join_operations()
        self._join_cuts(lambda key: frozenset(self.wires.feeds(key)))
        self._join_cuts(lambda key: frozenset(self.wires.fed(key)))
        self._leave_out()
        self._join_twins()
        self.wires.thin()
        for plate in [key for key in self.members if key[0] in ("cut", fixed.KIND)]:
            for both in self.wires.feeds(plate) & self.wires.fed(plate):
                self.wires.drop(plate, both)
            if plate[0] == fixed.KIND and not (self.wires.feeds(plate) and self.wires.fed(plate)):
                self._drop(plate)
        boxes = {key: self._box(key, tuple(nodes)) for key, nodes in self.members.items()}
        arrows = [Arrow(boxes[tail].number, boxes[head].number, status) for tail, head, status in self.wires.links()]
        return Chart(
            "map",
            tuple(sorted(boxes.values(), key=lambda box: box.number)),
            tuple(sorted(arrows, key=lambda arrow: (arrow.tail, arrow.head))),
            self._shaded(boxes),
        )

    def _part_of(self, path: str) -> int | None:
        return next((self.home[above] for above in reversed(lineage(path)) if above in self.home), None)

    def _key_of(self, node: Node) -> Key:
        if node.kind in ("input", "loss"):
            return (node.kind,)
        if node.kind in ("cut", fixed.KIND):
            return (node.kind, node.number)
        part = self._part_of(node.module)
        if part is not None:
            halved = part in self.before and len(self.parts[part].paths) == 1
            return ("module", part, "" if not halved else "before" if node.number in self.before[part] else "after")
        if node.kind == "parameter":
            return ("parameters", node.module, node.status)
        return ("operations", node.number)

    def _join_operations(self) -> None:
        """Operations of a module that is itself unfolded: those that follow each other share a box."""
        ranks = self.wires.ranks()
        for number, key in sorted(self.key.items()):
            if key[0] != "operations":
                continue
            if operation_words(self.node[number].label) in _LAYOUT:
                self._drop(key)
                continue
            into = self._last_feed(key, ranks)
            if into is not None:
                self._join(key, into)

    def _last_feed(self, key: Key, ranks: Mapping[Key, int]) -> Key | None:
        """The operations of its family that a box can be joined with: all else that feeds it must lie before them.

        To join them changes nothing in which of the other boxes come before which: the ranks hold to the end.
        """
        feeds = {feed for feed in self.wires.feeds(key) if feed[0] != "parameters"}
        last = max((ranks[feed] for feed in feeds), default=0)
        for feed in sorted(feed for feed in feeds if feed[0] == "operations" and ranks[feed] == last):
            others = feeds - {feed}
            if last < ranks[key] and any(self.wires.feeds_only(other, key) for other in others):
                continue  # no way of theirs leads there but by the box itself
            if self._family(feed[1]) == self._family(key[1]) and self.wires.come_into(others, feed, ranks):
                return feed
        return None

    def _join_twins(self) -> None:
        """Operations of the same names with the same feeds and the same users, as a loop makes them, share a box."""
        first: dict[object, Key] = {}
        for key in [key for key in self.members if key[0] == "operations"]:
            names = tuple(dict.fromkeys(node.label for node in self.members[key]))
            around = frozenset(self.wires.feeds(key)), frozenset(self.wires.fed(key))
            into = first.setdefault((names, around, self._family(key[1])), key)
            if into != key:
                self._join(key, into)

    def _join_cuts(self, place: Callable[[Key], object]) -> None:
        """Cuts of one finding that lie at the same place share a plate."""
        first: dict[object, Key] = {}
        for key in [key for key in self.members if key[0] == "cut"]:
            finding = self.members[key][0].finding
            into = first.setdefault((finding, place(key)), key)
            if into != key and finding is not None:
                self._join(key, into)

    def _join(self, key: Key, into: Key) -> None:
        self.wires.join(key, into)
        for node in self.members[key]:
            self.key[node.number] = into
        self.members[into] += self.members.pop(key)

    def _family(self, number: str | int) -> tuple[str, str]:
        node = self.node[int(number)]
        return node.module, node.status

    def _leave_out(self) -> None:
        """Drop the boxes that tell nothing about the gradient."""
        for key in [key for key in self.members if key[0] in ("operations", "module")]:
            if not self._telling(key):
                self._drop(key)
        room = MOST - min(len(self.picture.findings), MOST_PLATES)
        if len(self.members) > room:
            self._join_cuts(lambda key: key[0])
            self._leave_out_plates()
        for key in [key for key in self.members if key[0] == "operations"]:
            if len(self.members) > room:
                self._drop(key)

    def _leave_out_plates(self) -> None:
        """Of too many findings only the first have their plates; the links that the others cut stay cut."""
        cuts = [key for key in self.members if key[0] == "cut"]
        told = sorted({finding for key in cuts if (finding := self.members[key][0].finding) is not None})
        rest = frozenset(told[MOST_PLATES:])
        for key in cuts:
            if self.members[key][0].finding in rest:
                self._drop(key)

    def _telling(self, key: Key) -> bool:
        feeds, fed = self.wires.feeds(key), self.wires.fed(key)
        if any(near[0] == "cut" for near in feeds | fed):
            return True
        aside = feeds <= {("input",)}
        if key[0] == "operations":
            weighed = any(feed[0] == "parameters" for feed in feeds)
            return weighed or (len(feeds) > 1 and not aside and fed != {("loss",)})
        nodes = self.members[key]
        if any(node.kind == "parameter" for node in nodes) or self._elements(key):
            return True
        flows = any(node.status == "live" for node in nodes)
        return (flows or not aside) and (len(self.members) <= _FEW or len(feeds) > 1)

    def _elements(self, key: Key) -> int:
        info = self.outline.info
        return sum(info[path].numel for path in self.parts[int(key[1])].paths if path in info)

    def _drop(self, key: Key) -> None:
        self.wires.bridge(key)
        self.members.pop(key)

    def _box(self, key: Key, nodes: tuple[Node, ...]) -> Box:
        number = min(node.number for node in nodes)
        kind = str(key[0])
        if kind != "module":
            status = "live" if any(node.status == "live" for node in nodes) else nodes[0].status
            return Box(number, kind, status, nodes, finding=nodes[0].finding)
        part = self.parts[int(key[1])]
        alone = sum(other[:2] == key[:2] for other in self.members) == 1
        half = "" if alone else str(key[2])
        return Box(number, kind, self._status(key, nodes), nodes, part, half)

    def _status(self, key: Key, nodes: tuple[Node, ...]) -> str:
        of_parameters = {node.status for node in nodes if node.kind == "parameter"}
        if "starved" in of_parameters:
            return "partly" if "live" in of_parameters else "starved"
        if "live" in of_parameters:
            return "live"
        infos = [self.outline.info[path] for path in self.parts[int(key[1])].paths if path in self.outline.info]
        if of_parameters or any(info.numel > 0 == info.trainable for info in infos):
            return "frozen"
        return "live" if any(node.status == "live" for node in nodes) else "dead"

    def _shaded(self, boxes: dict[Key, Box]) -> frozenset[int]:
        upstream = self.wires.upstream(key for key in boxes if key[0] == "cut")
        return frozenset(
            boxes[key].number
            for key in upstream
            if key != ("input",) and not boxes[key].flows and boxes[key].status not in ("live", "partly")
        )


FIRST_GRAPH = 24
"""The largest number of nodes that is first shown in full."""

_FAN, _DENSE = 4, 60
Link = tuple[int, int, str]


def chart_of(picture: Picture, view: str = "auto", opened: Iterable[str] = ()) -> Chart:
    """Choose the boxes: every node (``"graph"``), those near the cuts (``"near"``), or folded by module (``"map"``).

    Args:
        picture: what was found.
        view: ``"graph"``, ``"near"``, ``"map"``, or ``"auto"``: the graph up to 24 nodes, else the map.
        opened: dotted paths of modules that the map shows unfolded; parts that ``"near"`` shows more of.

    Raises:
        GradkitError: another view (``unknown_view``).

    Example:
        >>> from gradkit.core.records import Edge, Node
        >>> picture = Picture(nodes=(Node(1, "SumBackward0", "autograd", "live"), Node(2, "loss", "loss", "live")),
        ...                   edges=(Edge(1, 2, "live"),), modules=(), findings=())
        >>> [(box.kind, box.number) for box in chart_of(picture).boxes]
        [('node', 1), ('loss', 2)]
    """
    view = choose_boxes(picture, view)
    if view == "near" and len(picture.nodes) > MOST:
        made = near_cuts(picture, opened)
    else:
        made = fold_by_module(picture, opened) if view == "map" else _graph(picture)
    boxes = (*made.boxes, *plates_for(picture, made.boxes))
    return Chart(made.view, (*boxes, *fixed.beside(picture, boxes)), made.arrows, made.shaded)


def choose_boxes(picture: Picture, view: str) -> str:
    """``"map"``, ``"graph"`` or ``"near"``: the view asked for, or the one that ``"auto"`` means for this picture.

    Raises:
        GradkitError: another view (``unknown_view``).

    Example:
        >>> choose_boxes(Picture((), (), (), ()), "auto")
        'graph'
    """
    if view == "auto":
        return "graph" if len(picture.nodes) <= FIRST_GRAPH else "map"
    if view not in ("graph", "map", "near"):
        raise GradkitError("unknown_view", view=view)
    return view


def _graph(picture: Picture) -> Chart:
    kinds = {"input": "input", "loss": "loss", "cut": "cut", fixed.KIND: fixed.KIND}
    known = {node.number for node in picture.nodes}
    links = [
        link
        for link in dict.fromkeys((edge.source, edge.target, edge.status) for edge in picture.edges)
        if {link[0], link[1]} <= known
    ]
    unsaid = _fans(picture, links) if len(picture.nodes) > _DENSE else {}
    boxes = tuple(
        Box(
            node.number,
            kinds.get(node.kind, "node"),
            node.status,
            (node,),
            finding=node.finding,
            more_uses=len(unsaid.get(node.number, ())),
        )
        for node in sorted(picture.nodes, key=lambda node: node.number)
    )
    arrows = tuple(Arrow(*link) for link in links if link not in unsaid.get(link[0], ()))
    return Chart("graph", boxes, arrows)


def _fans(picture: Picture, links: list[Link]) -> dict[int, list[Link]]:
    """Links that are counted instead of drawn, by the node that they leave.

    A mask feeds every layer, a recurrent weight every step: a layout with all of those long links takes minutes. One
    link of each status stays. What lies between parameters and the loss keeps every link.
    """
    leaving: dict[int, list[Link]] = {}
    for link in links:
        leaving.setdefault(link[0], []).append(link)
    parameters = {node.number for node in picture.nodes if node.kind == "parameter"}
    between: set[int] = set()
    ahead = [link[1] for number in parameters for link in leaving.get(number, ())]
    while ahead:
        number = ahead.pop()
        if number not in between:
            between.add(number)
            ahead += [target for _, target, _ in leaving.get(number, ())]
    unsaid: dict[int, list[Link]] = {}
    for number, fan in leaving.items():
        if number not in between and len(fan) > _FAN:
            first = {status: link for link in sorted(fan, reverse=True) for status in (link[2],)}
            unsaid[number] = [link for link in fan if link not in first.values()]
    return unsaid


def plates_for(picture: Picture, boxes: tuple[Box, ...]) -> list[Box]:
    """A plate for every finding that has no place in the flow of the data, as long as there are not too many."""
    placed = {box.finding for box in boxes if box.finding is not None}
    left = [index for index in range(len(picture.findings)) if index not in placed]
    above = max((node.number for node in picture.nodes), default=0) + 1
    return [
        Box(above + index, "plate", "cut", finding=index, beside=_concerned(picture.findings[index], boxes))
        for index in left[: max(0, MOST_PLATES - len(placed))]
    ]


def _concerned(finding: Finding, boxes: tuple[Box, ...]) -> tuple[int, ...]:
    """The boxes that a finding without a cut speaks of: at most three."""
    starved = set(finding.parameters)
    groups = (
        [box for box in boxes if any(node.kind == "parameter" and node.label in starved for node in box.members)],
        [box for box in boxes if finding.module and any(finding.module in lineage(n.module) for n in box.members)],
        [box for box in boxes if box.status in ("frozen", "starved")],
        [box for box in boxes if box.kind == "loss"],
    )
    return tuple(box.number for box in next((group for group in groups if group), [])[:3])
