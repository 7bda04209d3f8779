"""The drawings that a page holds, so that it needs no kernel: every view, in every language, folded and unfolded.

A page lays nothing out. What a person may unfold in it is drawn beforehand, one part at a time and what lies in it; of
a large model, as much as there is room for, the parts nearest to a cut first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.records import Picture
from gradkit.report.picture import render, viewer
from gradkit.report.picture.cards import unfolds
from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.nearby import MARK
from gradkit.report.picture.nested import nested
from gradkit.report.picture.outline import FOLDED
from gradkit.report.picture.torchviz_kept import Kept
from gradkit.report.picture.viewer import Shown
from gradkit.report.picture.what_if import Flows


@dataclass(frozen=True)
class Room:
    """How much there is room for.

    Attributes:
        unfolded: the most unfolded drawings, in each language.
        size: bytes of all drawings, gzipped, from which on none is added.
        torchviz: the most nodes of torchviz's drawing, which shows every one of them.
    """

    unfolded: int
    size: int
    torchviz: int


FILE = Room(unfolded=12, size=400_000, torchviz=1_000)
CELL = Room(unfolded=4, size=100_000, torchviz=40)
"""A notebook has many cells, and each of them is saved with what it shows."""

_MOST_BOXES = 150


@dataclass(frozen=True)
class Held:
    """One drawing that a page holds, or why it holds none.

    Attributes:
        language: of its words.
        view: ``"map"``, ``"graph"`` or ``"torchviz"``.
        opened: what is unfolded in it.
        shown: the drawing; None if there is none.
        message: why there is none.
    """

    language: str
    view: str
    opened: tuple[str, ...]
    shown: Shown | None
    message: str = ""

    @property
    def size(self) -> int:
        """Bytes that it takes, gzipped."""
        return len(self.shown.packed()) if self.shown is not None else 0


def held(picture: Picture, autograd: Kept, room: Room) -> tuple[Held, ...]:
    """All drawings for a page: the three views folded, then what there is room for.

    In the cards of what a page holds, ``open`` says only what can be unfolded in it.

    Args:
        picture: what to show.
        autograd: what torchviz's drawing is made from.
        room: how much there is room for.

    Example:
        >>> from gradkit.core.records import Node
        >>> one = held(Picture((Node(1, "loss", "loss", "live"),), (), (), ()), Kept(), CELL)
        >>> [(each.language, each.view) for each in one if each.shown is not None]
        [('en', 'map'), ('zh', 'map'), ('en', 'graph'), ('zh', 'graph')]
    """
    drafts = _Drafts(picture, autograd, room)
    kept = _laid_out([one for view in viewer.VIEWS for one in drafts.in_each_language(view, ())])
    can = {one.view for one in kept if one.shown is not None}
    asked = [*drafts.foldings(), *drafts.unfoldings()] if viewer.MAP in can else []
    more = [draft for one in asked if one[0] in can for draft in drafts.in_each_language(*one)]
    size = sum(one.size for one in kept)
    for one in _laid_out(more):
        size += one.size
        if one.shown is None or size > room.size:
            break
        kept.append(one)
    both = Counter((one.view, one.opened) for one in kept)
    kept = [one for one in kept if both[one.view, one.opened] == len(i18n.LANGUAGES)]
    ends = {(one.view, one.opened[-1]) for one in kept if one.opened}
    return tuple(_closed(one, {path for view, path in ends if view == one.view}) for one in kept)


def _laid_out(drafts: list[Held]) -> list[Held]:
    """The same with their drawings, all in one go; where that fails, one by one, and what fails says why."""
    ready = [one for one in drafts if one.shown is not None]
    try:
        made = iter(render.svgs([dot for one in ready if one.shown is not None for dot in one.shown.sources]))
    except GradkitError:
        failed: dict[tuple[str, tuple[str, ...]], GradkitError] = {}
        return [_alone(one, failed) for one in drafts]
    return [replace(one, shown=one.shown.laid_out(made)) if one.shown else one for one in drafts]


def _alone(one: Held, failed: dict[tuple[str, tuple[str, ...]], GradkitError]) -> Held:
    """One draft with its drawing. What cannot be laid out in one language is not tried in the other."""
    key = (one.view, one.opened)
    if one.shown is None:
        return one
    try:
        if key not in failed:
            return replace(one, shown=one.shown.laid_out(iter(render.svgs(one.shown.sources))))
    except GradkitError as error:
        failed[key] = error
    return replace(one, shown=None, message=failed[key].text(one.language))


class _Drafts:
    """The drawings of one picture, before they are laid out. A chart has no words: one does for all languages."""

    def __init__(self, picture: Picture, autograd: Kept, room: Room) -> None:
        self._picture, self._autograd, self._room = picture, autograd, room
        self._charts: dict[tuple[str, tuple[str, ...]], Chart] = {}
        self._flows = Flows(picture)

    def _chart(self, view: str, opened: tuple[str, ...]) -> Chart:
        if (view, opened) not in self._charts:
            self._charts[view, opened] = viewer.chart_of(self._picture, self._autograd, view, opened)
        return self._charts[view, opened]

    def in_each_language(self, view: str, opened: tuple[str, ...]) -> Iterator[Held]:
        """One of them in every language."""
        yield from i18n.in_each(partial(self._draft, view, opened)).values()

    def _draft(self, view: str, opened: tuple[str, ...]) -> Held:
        """One of them in the language in use; without a drawing, but with the reason, where there cannot be one."""
        one = Held(i18n.language(), view, opened, None)
        try:
            chart = self._chart(view, opened)
            if view == viewer.TORCHVIZ and len(chart.boxes) > self._room.torchviz:
                return replace(one, message=words("page.no_torchviz", n=len(chart.boxes)))
            return replace(one, shown=viewer.drafted(self._picture, self._autograd, view, chart, self._flows))
        except GradkitError as error:
            return replace(one, message=error.text())

    def foldings(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The frames of the first map that can be folded, outer ones first."""
        frames = [frame for frame, _ in nested(self._chart(viewer.MAP, ())).below() if frame.folds]
        for frame in frames[: self._room.unfolded // 2]:
            yield viewer.MAP, (f"{FOLDED}{frame.folds}",)

    def unfoldings(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What can be unfolded, what lies near a cut first, and a part before what lies in it; of the graph, a quarter
        as many as of the map. What unfolds into very many boxes is not for a page."""
        most = self._room.unfolded
        for view, most_of_it in ((viewer.MAP, most), (viewer.GRAPH, most // 4)):
            left = most_of_it
            todo: list[tuple[int, tuple[str, ...]]] = [(0, ())]
            while todo and left > 0:
                cost, opened = heapq.heappop(todo)
                if len(self._chart(view, opened).boxes) > _MOST_BOXES:
                    continue
                if opened:
                    left -= 1
                    yield view, opened
                for far, path in enumerate(self._to_unfold(view, opened), 1):
                    heapq.heappush(todo, (cost + far, (*opened, path)))

    def _to_unfold(self, view: str, opened: tuple[str, ...]) -> list[str]:
        """What can be unfolded in a drawing and lies in what was unfolded last, the nearest to a cut first."""
        boxes = self._chart(view, opened).boxes
        cuts = [box.number for box in boxes if box.kind == "cut"]
        near = sorted(boxes, key=lambda box: min((abs(_begins(box) - cut) for cut in cuts), default=_begins(box)))
        paths = dict.fromkeys(path for box in near if (path := unfolds(self._picture, box)) and path not in opened)
        inside = f"{opened[-1]}." if opened and not opened[-1].startswith(MARK) else ""
        return [path for path in paths if path.startswith(inside)]


def _begins(box: Box) -> int:
    """Where a box stands in the run: parameters stand before it."""
    return min((node.number for node in box.members if node.kind != "parameter"), default=box.number)


def _closed(one: Held, can: set[str]) -> Held:
    """The same, whose cards offer to unfold what the page holds, and say so of what it does not hold."""
    if one.shown is None:
        return one
    with speaking(one.language):
        left = {"open": "", "note": words("page.not_unfolded")}
    known = {"", *can, *(path.removeprefix(FOLDED) for path in one.opened)}
    info = {number: card if card["open"] in known else {**card, **left} for number, card in one.shown.info.items()}
    return replace(one, shown=replace(one.shown, info=info))
