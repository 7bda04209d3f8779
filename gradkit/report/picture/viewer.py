"""What the viewer shows of a picture: a drawing, the cards of its boxes, its arrows and its source; and its own words.

The viewer is one script, ``report/static/graph_view.js``. In a notebook a widget hands it these parcels, in a saved
page the page does.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gradkit.core import i18n, package
from gradkit.core.records import Picture
from gradkit.report.picture import cards, dot, fold, nearby, render, torchviz_boxes, torchviz_view, words
from gradkit.report.picture.chart import Chart
from gradkit.report.picture.nested import name_in, nested
from gradkit.report.picture.torchviz_kept import Kept
from gradkit.report.picture.what_if import Flows

SCRIPT = package.FOLDER / "report" / "static" / "graph_view.js"
STYLE = package.FOLDER / "report" / "static" / "graph_view.css"
LARGEST_SIDEWAYS = 30
"""Of drawings with more boxes there is none from left to right."""

DOWN, ACROSS = "rankdir=TB", "rankdir=LR"
VIEWS = MAP, GRAPH, TORCHVIZ = "map", "graph", "torchviz"
LABELS = (
    *("label", "help", "zoom_in", "zoom_out", "fit", "actual", "cut", "search", "hits", "no_hits"),
    *("close", "open", "fold", "no_fold", "map", "graph", "torchviz", "torchviz_hint", "views", "card", "loading"),
    *("hit", "next", "previous", "found_here"),
    *("path", "path_clear", "path_cut", "path_live", "path_both", "path_dead", "path_none"),
    *("save", "save_svg", "save_png", "save_dot", "saved", "save_failed"),
    *("full", "legend_live", "legend_cut", "legend_dead", "keys"),
    *("unfold_one", "fold_one", "fold_frame", "sideways", "undo", "undo_off", "away_one", "away_many"),
)


def labels() -> dict[str, str]:
    """The words of the viewer's own controls, in the language in use.

    Example:
        >>> with i18n.speaking("zh"):
        ...     labels()["search"]
        '搜索'
    """
    catalogue = i18n.catalogue(i18n.language())
    return {name: catalogue[f"viewer.{name}"] for name in LABELS}


@dataclass(frozen=True)
class Shown:
    """One drawing, with all that is said about it.

    Attributes:
        svg: the drawing.
        info: cards by the number of a box, as ``cards.cards`` makes them.
        arrows: ends and status of every arrow.
        dot: the drawing's source.
        limit: what is left out of the drawing, in words.
        name: what a saved file is called, without its ending.
        sideways: the same drawing from left to right; ``""`` for a large one, which is drawn from top to bottom only.
        frames: of every frame of the drawing its name, the module that folds it, and what it says of the gradient.

    Example:
        >>> unpacked = json.loads(gzip.decompress(Shown("<svg/>").packed()))
        >>> unpacked["svg"], unpacked["info"]
        ('<svg/>', {})
    """

    svg: str
    info: dict[int, dict[str, Any]] = field(default_factory=dict)
    arrows: list[list[Any]] = field(default_factory=list)
    dot: str = ""
    limit: str = ""
    name: str = "gradkit"
    sideways: str = ""
    frames: list[list[str]] = field(default_factory=list)

    @property
    def sources(self) -> list[str]:
        """The DOT of all that is to be laid out for it.

        Example:
            >>> Shown("", dot="digraph { graph [rankdir=TB] }").sources[1]
            'digraph { graph [rankdir=LR] }'
        """
        if len(self.info) > LARGEST_SIDEWAYS or DOWN not in self.dot:
            return [self.dot]
        return [self.dot, self.dot.replace(DOWN, ACROSS, 1)]

    def laid_out(self, drawings: Iterator[str]) -> Shown:
        """The same with its drawings, the next ones of those that its ``sources`` gave."""
        svg = next(drawings)
        return replace(self, svg=svg, sideways=next(drawings) if len(self.sources) > 1 else "")

    def packed(self) -> bytes:
        """As one gzipped parcel, which the viewer unpacks; ``b""`` without a drawing."""
        parcel = {
            "svg": self.svg, "sideways": self.sideways, "info": self.info, "arrows": self.arrows,
            "frames": self.frames, "dot": self.dot,
        }  # fmt: skip
        return gzip.compress(json.dumps(parcel, ensure_ascii=False).encode(), mtime=0) if self.svg else b""


def chart_of(picture: Picture, autograd: Kept, view: str, opened: Iterable[str] = ()) -> Chart:
    """The boxes and arrows of a view. The graph begins with the nodes around the cuts.

    Args:
        picture: what to show.
        autograd: what torchviz's drawing is made from.
        view: one of ``VIEWS``.
        opened: what a person asked to unfold; a view takes what is its own.

    Raises:
        GradkitError: torchviz cannot draw it; an unknown view.
    """
    if view == TORCHVIZ:
        return torchviz_boxes.boxes(autograd, picture).chart(picture)
    near = "near" if view == GRAPH else view
    mine = [path for path in opened if path.startswith(nearby.MARK) == (near == "near")]
    return fold.chart_of(picture, near, mine)


def drawn(picture: Picture, autograd: Kept, view: str, chart: Chart) -> Shown:
    """Draw one view of a picture, in the language in use. The arguments are those of ``drafted``.

    Raises:
        GradkitError: it cannot be drawn, or not be laid out.
    """
    draft = drafted(picture, autograd, view, chart)
    return draft.laid_out(iter(render.svgs(draft.sources)))


def drafted(picture: Picture, autograd: Kept, view: str, chart: Chart, flows: Flows | None = None) -> Shown:
    """One view of a picture in the language in use, but for the layout of its drawing.

    Args:
        picture: what to show.
        autograd: what torchviz's drawing is made from.
        view: one of ``VIEWS``.
        chart: what ``chart_of`` gives for it.
        flows: of the picture, where it has several drawings.

    Raises:
        GradkitError: it cannot be drawn.
    """
    if view == TORCHVIZ:
        starved = [node.label for node in picture.nodes if node.status == "starved"]
        source = torchviz_view.dot(autograd, starved, picture).source
    else:
        source = dot.dot(picture, view, shown=chart).source
    return Shown(
        "",
        cards.cards(picture, view, shown=chart, flows=flows),
        [[arrow.tail, arrow.head, arrow.status] for arrow in chart.arrows],
        source,
        words.picture_limits(picture, chart),
        f"gradkit-{words.caption_name(picture)}-{view}",
        frames=_framed(picture, chart),
    )


def _framed(picture: Picture, chart: Chart) -> list[list[str]]:
    said = words.Phrases(picture)
    return [
        [name_in(frame.path, around), frame.folds, said.say("shaded") if frame.shaded else ""]
        for frame, around in nested(chart).below()
    ]


@functools.cache
def script() -> str:
    """The viewer as an ES module."""
    return SCRIPT.read_text(encoding="utf-8")


@functools.cache
def style() -> str:
    """Its style sheet."""
    return STYLE.read_text(encoding="utf-8")
