"""A drawing to move about in: zoom, search, click a node to read what it is and which line made it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from graphviz import Digraph

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.records import Picture
from gradkit.report.picture import cards, dot, fold, nearby, render, torchviz_boxes, torchviz_view, words
from gradkit.report.picture.chart import Chart
from gradkit.report.picture.torchviz_kept import Kept

_STATIC = Path(__file__).parent / "static"
_STILL = 300_000
VIEWS = ("map", "graph", "torchviz")
_LABELS = (
    *("label", "help", "zoom_in", "zoom_out", "fit", "actual", "cut", "search", "hits", "no_hits"),
    *(
        "close",
        "open",
        "fold",
        "no_fold",
        "map",
        "graph",
        "torchviz",
        "torchviz_hint",
        "views",
        "card",
        "loading",
        "hit",
        "next",
        "previous",
        "found_here",
    ),
    *("path", "path_clear", "path_cut", "path_live", "path_both", "path_dead", "path_none"),
    *("save", "save_svg", "save_png", "save_dot", "saved", "save_failed"),
)


class GraphView(anywidget.AnyWidget):
    """Shows an SVG from ``render.svg`` and, for the node picked in it, its card.

    Attributes:
        svg: the drawing. It travels to the browser gzipped, together with cards, arrows and DOT.
        node_info: cards by node number, as ``cards.cards`` makes them, in the language to show.
        language: ``"en"`` or ``"zh"``: the words of the toolbar. Drawing and cards are the caller's.
        arrows: ends and status of every arrow, for the ways through the drawing.
        dot: the drawing's source, to be saved.
        name: what a saved file is called, without its ending.
        limit: what is left out of the drawing, in words.
        selected: number of the picked node, or None; can be set from Python, too.
        opened: module paths that a person asked to unfold; whoever draws may observe it.
        view: ``"map"``, ``"graph"`` or ``"torchviz"`` shows a switch between the three; ``""`` shows none.
        message: shown instead of a drawing; without one, what works on a drawing is disabled, and says this.
        height: height in pixels at most.
        png: a bitmap for pages that cannot run the widget; ``b""`` for none.

    Example:
        >>> view = GraphView(svg="<svg/>", node_info={3: {"title": "fc.weight"}}, language="zh")
        >>> view.labels["search"], view.selected is None
        ('搜索', True)
    """

    _esm = _STATIC / "graph_view.js"
    _css = _STATIC / "graph_view.css"

    svg = traitlets.Unicode("")
    node_info = traitlets.Dict()
    arrows: traitlets.List[Any] = traitlets.List()
    dot = traitlets.Unicode("")
    name = traitlets.Unicode("gradkit").tag(sync=True)
    limit = traitlets.Unicode("").tag(sync=True)
    png = traitlets.Bytes(b"")
    language = traitlets.Enum(i18n.LANGUAGES, default_value="en").tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    packed = traitlets.Bytes(b"").tag(sync=True)
    selected = traitlets.Int(None, allow_none=True).tag(sync=True)
    opened = traitlets.List(traitlets.Unicode()).tag(sync=True)
    view = traitlets.Enum(("", *VIEWS), default_value="").tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(640, min=220).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._relabel()

    @traitlets.observe("language")
    def _relabel(self, _change: object = None) -> None:
        self.labels = {name: i18n.catalogue(self.language)[f"viewer.{name}"] for name in _LABELS}

    @traitlets.observe("svg", "node_info", "arrows", "dot")
    def _pack(self, _change: object = None) -> None:
        parcel = {"svg": self.svg, "info": self.node_info, "arrows": self.arrows, "dot": self.dot}
        self.packed = gzip.compress(json.dumps(parcel, ensure_ascii=False).encode(), mtime=0) if self.svg else b""

    def still(self) -> bytes:
        """The bitmap for pages without a kernel; ``b""`` if there is none."""
        return self.png

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live widget, and beside it a still picture for pages that cannot run it."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        data["text/plain"] = self.message or i18n.words("picture.title", self.language)
        if self.svg and len(self.svg) <= _STILL:
            data["image/svg+xml"] = self.svg
            bitmap = self.still()
            if bitmap:
                data["image/png"] = bitmap
        return data, metadata


class PictureView(GraphView):
    """A ``GraphView`` that draws a picture itself, and again when language, view or unfolded modules change.

    Nothing of the user's is run again for that. If the picture cannot be laid out, ``message`` says why.

    Args:
        picture: what to show; None for nothing yet.
        language: ``"en"``, ``"zh"``, or None for the one in use.
        view: ``"map"``, ``"graph"``, ``"torchviz"``, or ``"auto"``: the graph up to 24 nodes, else the map.
        autograd: what torchviz's drawing is made from; a report has it.

    Example:
        >>> PictureView(None, language="en").svg
        ''
    """

    picture = traitlets.Instance(Picture, allow_none=True)

    def __init__(self, picture: Picture | None = None, *, language: str | None = None, view: str = "auto",
                 autograd: Kept | None = None, **traits: Any) -> None:  # fmt: skip
        self._ready, self._autograd = False, autograd or Kept()
        chosen = view if view == "torchviz" else fold.choose_boxes(picture, view) if picture is not None else "map"
        super().__init__(picture=picture, language=language or i18n.language(), view=chosen, **traits)
        self._ready = True
        self._draw()

    @traitlets.observe("picture", "language", "view", "opened")
    def _draw(self, _change: object = None) -> None:
        if not self._ready:
            return
        drawn: dict[str, Any] = {"svg": "", "node_info": {}, "arrows": [], "dot": "", "limit": "", "message": ""}
        if self.picture is not None:
            with i18n.speaking(self.language):
                try:
                    drawn |= self._drawn(self.picture)
                except GradkitError as error:
                    drawn["message"] = error.text()
        with self.hold_sync(), self.hold_trait_notifications():
            self.png = b""
            for name, value in drawn.items():
                setattr(self, name, value)

    def _drawn(self, picture: Picture) -> dict[str, Any]:
        source, shown = self._source(picture), self.shown()
        return {
            "svg": render.svg(source),
            "node_info": cards.cards(picture, self.view, shown=shown),
            "arrows": [[arrow.tail, arrow.head, arrow.status] for arrow in shown.arrows],
            "dot": source.source,
            "limit": words.picture_limits(picture, shown),
            "name": f"gradkit-{words.caption_name(picture)}-{self.view}",
        }

    def _source(self, picture: Picture) -> Digraph:
        if self.view != "torchviz":
            return dot.dot(picture, self.view, shown=self.shown())
        starved = [node.label for node in picture.nodes if node.status == "starved"]
        return torchviz_view.dot(self._autograd, starved, picture)

    def shown(self) -> Chart:
        """The boxes and arrows that are drawn. The graph begins with the nodes around the cuts."""
        assert self.picture is not None
        if self.view == "torchviz":
            return torchviz_boxes.boxes(self._autograd, self.picture).chart(self.picture)
        view = "near" if self.view == "graph" else self.view
        opened = [path for path in self.opened if path.startswith(nearby.MARK) == (view == "near")]
        return fold.chart_of(self.picture, view, opened)

    def still(self) -> bytes:
        """The bitmap, made when it is first asked for."""
        if not self.png and self.picture is not None and self.svg:
            try:
                self.png = render.png(self.dot)
            except GradkitError:
                return b""
        return self.png
