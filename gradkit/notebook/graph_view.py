"""A drawing to move about in: zoom, search, click a node to read what it is and which line made it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import anywidget
import traitlets

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.records import Picture
from gradkit.report.picture import fold, render, viewer
from gradkit.report.picture.chart import Chart
from gradkit.report.picture.torchviz_kept import Kept

_STILL = 300_000


class GraphView(anywidget.AnyWidget):
    """Shows an SVG from ``render.svg`` and, for the node picked in it, its card.

    Attributes:
        svg: the drawing. It travels to the browser gzipped, together with cards, arrows and DOT.
        node_info: cards by node number, as ``cards.cards`` makes them, in the language to show.
        language: ``"en"`` or ``"zh"``: the words of the toolbar. Drawing and cards are the caller's.
        arrows: ends and status of every arrow, for the ways through the drawing.
        dot: the drawing's source, to be saved.
        sideways: the same drawing from left to right; ``""`` for none.
        frames: of every frame of the drawing its name, the module that folds it, and what it says of the gradient.
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

    _esm = viewer.SCRIPT
    _css = viewer.STYLE

    svg = traitlets.Unicode("")
    node_info: traitlets.Dict[int, Any] = traitlets.Dict()
    arrows: traitlets.List[Any] = traitlets.List()
    dot = traitlets.Unicode("")
    sideways = traitlets.Unicode("")
    frames: traitlets.List[Any] = traitlets.List()
    name = traitlets.Unicode("gradkit").tag(sync=True)
    limit = traitlets.Unicode("").tag(sync=True)
    png = traitlets.Bytes(b"")
    language = traitlets.Enum(i18n.LANGUAGES, default_value="en").tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    packed = traitlets.Bytes(b"").tag(sync=True)
    selected = traitlets.Int(None, allow_none=True).tag(sync=True)
    opened = traitlets.List(traitlets.Unicode()).tag(sync=True)
    view = traitlets.Enum(("", *viewer.VIEWS), default_value="").tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(640, min=220).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._relabel()

    @traitlets.observe("language")
    def _relabel(self, _change: object = None) -> None:
        with i18n.speaking(self.language):
            self.labels = viewer.labels()

    @traitlets.observe("svg", "node_info", "arrows", "dot", "sideways", "frames")
    def _pack(self, _change: object = None) -> None:
        self.packed = viewer.Shown(
            self.svg, self.node_info, self.arrows, self.dot, sideways=self.sideways, frames=self.frames
        ).packed()

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
        drawn: dict[str, Any] = {
            "svg": "", "node_info": {}, "arrows": [], "dot": "", "limit": "", "message": "", "sideways": "",
            "frames": [],
        }  # fmt: skip
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
        made = asdict(viewer.drawn(picture, self._autograd, self.view, self.shown()))
        return {"node_info" if name == "info" else name: value for name, value in made.items()}

    def shown(self) -> Chart:
        """The boxes and arrows that are drawn. The graph begins with the nodes around the cuts."""
        assert self.picture is not None
        return viewer.chart_of(self.picture, self._autograd, self.view, self.opened)

    def still(self) -> bytes:
        """The bitmap, made when it is first asked for."""
        if not self.png and self.picture is not None and self.svg:
            try:
                self.png = render.png(self.dot)
            except GradkitError:
                return b""
        return self.png
