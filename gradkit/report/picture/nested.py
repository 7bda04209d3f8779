"""The frames of a map, one in another: around boxes whose names begin alike, and around what no gradient reaches.

A name that many boxes begin with is said once, on the frame. A frame holds what lies together in the flow of the data:
where it leaves a module and comes back to it through another, there is no frame, and names are said in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.outline import lineage


@dataclass(frozen=True)
class Frame:
    """A frame of a drawing.

    Attributes:
        path: what the names of the modules in it begin with; ``""`` for one that tells only of the gradient.
        shaded: no gradient reaches what is in it.
        boxes: numbers of the boxes in it and in no frame inside it.
        frames: the frames right inside it.
        folds: the module to fold, so that the frame becomes one box; ``""`` for none.
    """

    path: str
    shaded: bool = False
    boxes: tuple[int, ...] = ()
    frames: tuple[Frame, ...] = ()
    folds: str = ""

    @property
    def all_boxes(self) -> frozenset[int]:
        """Numbers of the boxes in it, however deep."""
        return frozenset(self.boxes).union(*(frame.all_boxes for frame in self.frames))

    def below(self, around: str = "") -> list[tuple[Frame, str]]:
        """Every frame in it, outer ones first, each with the path of the frame around it.

        Args:
            around: the path of the frame that it lies in itself, which is said where it has none.

        Example:
            >>> root = Frame("", frames=(Frame("a", frames=(Frame("a.b"),)),))
            >>> [(frame.path, around) for frame, around in root.below()]
            [('a', ''), ('a.b', 'a')]
        """
        here = self.path or around
        return [each for frame in self.frames for each in ((frame, here), *frame.below(here))]


def nested(chart: Chart) -> Frame:
    """The drawing itself, as the frame around all frames; in the views of single nodes there are none.

    Args:
        chart: the boxes to frame.

    Example:
        >>> from gradkit.report.picture.outline import Part
        >>> boxes = tuple(Box(n, "module", "live", part=Part((f"net.{n}",), "Linear")) for n in (1, 2))
        >>> nested(Chart("map", boxes, ())).frames[0].path
        'net'
    """
    everything = frozenset(box.number for box in chart.boxes)
    sets = _by_module(chart) if chart.view == "map" else {}
    root = _built("", everything, sets)
    for region in chart.regions():
        root = _shaded(root, frozenset(box.number for box in region))
    return root


def _containers(box: Box) -> tuple[str, ...]:
    """The modules that hold a box, the outermost first, without the model itself."""
    if box.part is not None:
        return lineage(box.part.paths[0])[1:-1]
    if box.kind in ("operations", "parameters", "cut", "fixed") and box.members:
        return lineage(box.members[0].module)[1:]
    return ()


def _by_module(chart: Chart) -> dict[str, frozenset[int]]:
    """The boxes of every frame, by its path; of several paths with the same boxes the innermost."""
    inside: dict[str, set[int]] = {}
    for box in chart.boxes:
        for path in _containers(box):
            inside.setdefault(path, set()).add(box.number)
    flow = _Flow(chart)
    named = {box.number for box in chart.boxes if box.part is not None or box.kind == "parameters"}
    found: dict[str, frozenset[int]] = {}
    for path in sorted(inside, key=lambda path: (path.count("."), path)):
        whole = flow.around(path, inside[path])
        if len(inside[path]) < 2 or not named & inside[path] or not whole or _crosses(whole, found.values()):
            continue
        for same in [other for other, boxes in found.items() if boxes == whole and path.startswith(f"{other}.")]:
            del found[same]
        found[path] = whole
    return found


def _crosses(one: frozenset[int], others: Iterable[frozenset[int]]) -> bool:
    return any(one & other and not (one <= other or other <= one) for other in others)


class _Flow:
    """What lies between boxes in the flow of the data."""

    def __init__(self, chart: Chart) -> None:
        self._box = {box.number: box for box in chart.boxes}
        self._after: dict[int, list[int]] = {}
        self._before: dict[int, list[int]] = {}
        for arrow in chart.arrows:
            self._after.setdefault(arrow.tail, []).append(arrow.head)
            self._before.setdefault(arrow.head, []).append(arrow.tail)

    def around(self, path: str, boxes: set[int]) -> frozenset[int]:
        """The boxes of a module, and operations of its callers that lie between them; none if others lie there, too."""
        between = (_reached(boxes, self._after) & _reached(boxes, self._before)) - boxes
        own = all(self._is_of_a_caller(self._box[number], path) for number in between)
        return frozenset(boxes | between) if own else frozenset()

    def _is_of_a_caller(self, box: Box, path: str) -> bool:
        plain = box.part is None and box.kind in ("operations", "cut", "fixed")
        return plain and all(node.module in lineage(path) for node in box.members)


def _reached(starts: set[int], links: dict[int, list[int]]) -> set[int]:
    found, todo = set(), list(starts)
    while todo:
        new = [number for number in links.get(todo.pop(), ()) if number not in found]
        found.update(new)
        todo += new
    return found


def _built(path: str, boxes: frozenset[int], sets: dict[str, frozenset[int]]) -> Frame:
    """The frame of a path, with the frames in it."""
    mine = {other: those for other, those in sets.items() if those <= boxes and other != path}
    outer = [
        other for other, those in mine.items()
        if not any(those < more or (those == more and each < other) for each, more in mine.items())
    ]  # fmt: skip
    frames = tuple(_built(other, mine[other], mine) for other in outer)
    left = boxes.difference(*(frame.all_boxes for frame in frames))
    return Frame(path, boxes=tuple(sorted(left)), frames=tuple(_foldable(frame, path) for frame in frames))


def _foldable(frame: Frame, around: str) -> Frame:
    """The same, that knows which module to fold: the outermost of those that it stands for."""
    first = frame.path[len(around) + 1 if around else 0 :].split(".")[0]
    return replace(frame, folds=f"{around}.{first}" if around else first)


def _shaded(frame: Frame, region: frozenset[int]) -> Frame:
    """The same, in which what lies in a region has a frame, or a frame that lies in it says so."""
    boxes = tuple(number for number in frame.boxes if number in region)
    frames = tuple(inner for inner in frame.frames if inner.all_boxes <= region)
    rest = tuple(_shaded(inner, region) for inner in frame.frames if inner not in frames)
    left = tuple(number for number in frame.boxes if number not in boxes)
    if len(frames) == 1 and not boxes:
        rest = (*rest, replace(frames[0], shaded=True))
    elif frames or len(boxes) > 1:
        rest = (*rest, Frame("", shaded=True, boxes=boxes, frames=frames))
    else:
        left = frame.boxes
    return replace(frame, boxes=left, frames=rest)


def name_in(path: str, around: str) -> str:
    """What a module is called inside a frame: without what the frame says, but never a mere number.

    Example:
        >>> name_in("llm.model.layers", "llm.model"), name_in("llm.layers.3", "llm.layers"), name_in("proj", "")
        ('layers', 'layers.3', 'proj')
    """
    if not around or not path.startswith(f"{around}."):
        return path
    short = path[len(around) + 1 :]
    return f"{around.rpartition('.')[2]}.{short}" if short.split(".")[0].isdigit() else short


def prefixes(root: Frame) -> dict[int, str]:
    """For every box, the path of the innermost frame that names what is in it.

    Example:
        >>> prefixes(Frame("", boxes=(1,), frames=(Frame("net", boxes=(2,)),)))
        {1: '', 2: 'net'}
    """
    frames = [(root, ""), *root.below()]
    return {number: frame.path or around for frame, around in frames for number in frame.boxes}
