"""From a picture to the boxes and arrows of a drawing: every node, those near the cuts, or folded by module."""

from __future__ import annotations

from collections.abc import Iterable

from gradkit.charts import Arrow, Box, Chart
from gradkit.errors import GradkitError
from gradkit.modulemap import fold_by_module
from gradkit.nearby import near
from gradkit.outline import MOST, MOST_PLATES, lineage
from gradkit.records import Finding, Picture

FIRST_GRAPH = 24
"""The largest number of nodes that is first shown in full."""

_FAN, _DENSE = 4, 60
Link = tuple[int, int, str]


def chart(picture: Picture, view: str = "auto", opened: Iterable[str] = ()) -> Chart:
    """Choose the boxes: every node (``"graph"``), those near the cuts (``"near"``), or folded by module (``"map"``).

    Args:
        picture: what was found.
        view: ``"graph"``, ``"near"``, ``"map"``, or ``"auto"``: the graph up to 24 nodes, else the map.
        opened: dotted paths of modules that the map shows unfolded; parts that ``"near"`` shows more of.

    Raises:
        GradkitError: another view (``unknown_view``).

    Example:
        >>> from gradkit.records import Edge, Node
        >>> picture = Picture(nodes=(Node(1, "SumBackward0", "autograd", "live"), Node(2, "loss", "loss", "live")),
        ...                   edges=(Edge(1, 2, "live"),), modules=(), findings=())
        >>> [(box.kind, box.number) for box in chart(picture).boxes]
        [('node', 1), ('loss', 2)]
    """
    view = choose(picture, view)
    if view == "near" and len(picture.nodes) > MOST:
        made = near(picture, opened)
    else:
        made = fold_by_module(picture, opened) if view == "map" else _graph(picture)
    plates = plates_for(picture, made.boxes)
    return Chart(made.view, (*made.boxes, *plates), made.arrows, made.shaded)


def choose(picture: Picture, view: str) -> str:
    """``"map"``, ``"graph"`` or ``"near"``: the view asked for, or the one that ``"auto"`` means for this picture.

    Raises:
        GradkitError: another view (``unknown_view``).

    Example:
        >>> choose(Picture((), (), (), ()), "auto")
        'graph'
    """
    if view == "auto":
        return "graph" if len(picture.nodes) <= FIRST_GRAPH else "map"
    if view not in ("graph", "map", "near"):
        raise GradkitError("unknown_view", view=view)
    return view


def _graph(picture: Picture) -> Chart:
    kinds = {"input": "input", "loss": "loss", "cut": "cut"}
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
