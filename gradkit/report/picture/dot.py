"""Picture → DOT: where the gradient flows, where it stops, what starves; in colour, in shape and in words.

The plate on a cut says what was lost, the source line with carets under the very call, and how sure that is.
"""

from __future__ import annotations

from collections.abc import Iterable

import graphviz

from gradkit.core.i18n import columns
from gradkit.core.records import Finding, Fixed, Location, Picture
from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.nested import Frame, nested, prefixes
from gradkit.report.picture.style import (
    AMBER,
    ARROWS,
    BOXES,
    DARK_GREEN,
    DARK_RED,
    GREY,
    INK,
    LINE,
    PALE,
    RED,
    SANS,
    SOFT,
    TEXT,
    broken,
    cleaned,
    framed,
    html_text,
    is_wide,
    place_name,
    points,
    quantity_words,
    text_line,
)
from gradkit.report.picture.words import Phrases

_NEAR = 3

_ROW, _ACROSS = 4, 300

_LABEL_ACROSS, _LEAST, _LINES = 66, 40, 4


def cut_label(finding: Finding, head: str, words: Phrases, *, in_flow: bool, again: bool = False) -> str:
    """The HTML-like label of a plate.

    Args:
        finding: what it tells.
        head: its headline.
        words: what the plate says beside it.
        in_flow: red for a cut in the flow of the data, amber for what stands beside it.
        again: a further place of a finding that already has a plate: its headline names the line, and that is all.

    Example:
        >>> from gradkit.core.records import Picture
        >>> finding = Finding("detach", Location("a.py", 7, 5, 15, text="y = x.detach()"))
        >>> label = cut_label(finding, "cut", Phrases(Picture((), (), (), (finding,))), in_flow=True)
        >>> "a.py:7" in label, "^^^^^^^^^^" in label
        (True, True)
    """
    color = DARK_RED if in_flow else AMBER
    if again:
        head = words.say("again", cause=finding.cause, place=words.place(finding.location))
    headline = f'<font color="white" point-size="12"><b>{html_text(head)}</b></font>'
    return (
        f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="6" bgcolor="{color}">'
        f'<tr><td align="left" width="{points(head, 12, bold=True)}">{headline}</td></tr>'
        f"{'' if again else _evidence(finding, words, color)}</table>>"
    )


def _evidence(finding: Finding, words: Phrases, color: str) -> str:
    rows = "".join(_source(place, place == finding.location) for place in _lines(finding))
    if not rows:
        rows = text_line(words.place(None), 10, color=GREY, left=True)
    rows += text_line(words.proof(finding), 10, color=SOFT, left=True)
    return (
        f'<tr><td align="left" bgcolor="#FFFBFA" border="1" color="{color}" cellpadding="4">'
        f'<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table></td></tr>'
    )


def _source(place: Location, main: bool) -> str:
    start = f"{place_name(place)}  "
    most = max(_LEAST, _LABEL_ACROSS - columns(start))
    code, marks = framed(place, most, _LINES if main else 1)
    rows = ""
    for line, under in broken(code, marks, most):
        rows += text_line(start + line, 10, color=INK if main else GREY, code=True)
        start = "".join("\N{IDEOGRAPHIC SPACE}" if is_wide(char) else " " for char in start)
        rows += text_line(start + under, 10, color=RED, code=True) if main and under else ""
    return rows


def _lines(finding: Finding) -> list[Location]:
    """The line of a finding, and those of its notes that stand right beside it; a mere caller is none of them."""
    main = finding.location
    if main is None:
        return []
    beside = [note.location for note in finding.notes if note.kind != "called_by" and note.location is not None]
    near = {
        place.line: place
        for place in beside
        if place.file == main.file and place.text and 0 < abs(place.line - main.line) <= _NEAR
    }
    return [place for _, place in sorted({**near, main.line: main}.items())]


def fixed_label(change: Fixed, words: Phrases) -> str:
    """The HTML-like label of a plate where a gradient flows again, with the lines that were changed.

    Example:
        >>> change = Fixed("detach", Location("a.py", 7), (("-", 7, "y = x.detach()"), ("+", 7, "y = x")), ("w",))
        >>> label = fixed_label(change, Phrases(Picture((), (), (), ())))
        >>> "a.py:7" in label, "x.detach()" in label
        (True, True)
    """
    head, rows = words.fixed(change), ""
    start = f"{words.place(change.location)}  " if change.location else ""
    for sign, _, code in change.lines[:_LINES]:
        for row, _ in broken(cleaned(code), "", max(_LEAST, _LABEL_ACROSS - columns(start)))[:_LINES]:
            rows += text_line(f"{start}{sign} {row}", 10, color=GREY if sign == "-" else INK, code=True)
            start, sign = " " * columns(start), " "  # noqa: PLW2901  what begins a line stands there once
    rows += text_line(words.say("fixed", n=len(change.parameters)), 10, color=SOFT, left=True)
    headline = f'<font color="white" point-size="12"><b>{html_text(head)}</b></font>'
    return (
        f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="6" bgcolor="{DARK_GREEN}">'
        f'<tr><td align="left" width="{points(head, 12, bold=True)}">{headline}</td></tr>'
        f'<tr><td align="left" bgcolor="#F9FFFB" border="1" color="{DARK_GREEN}" cellpadding="4">'
        f'<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table></td></tr></table>>'
    )


_THIN, _THICK = 1.6, 6.5
_MOST_WITH_CARE = 1000  # arrows; above, Graphviz draws straight lines and looks less long for the best places


def dot(
    picture: Picture,
    view: str = "auto",
    *,
    open: Iterable[str] = (),  # noqa: A002
    shown: Chart | None = None,
) -> graphviz.Digraph:
    """Draw a picture as DOT.

    Every node carries ``id="n<number>"``, its status as ``class`` and a tooltip. Numbers are those of the picture's
    nodes (a folded box has the smallest of its members), so they stay the same from run to run.

    Args:
        picture: what to draw.
        view: ``"map"`` (folded by module), ``"graph"`` (every node), ``"near"`` (the nodes around the cuts), or
            ``"auto"``: the graph up to 24 nodes, else the map.
        open: dotted paths of modules that the map shows unfolded.
        shown: the chart of all this, if there is one already.

    Returns:
        A graph whose ``.source`` is the DOT text; ``render.svg`` and ``render.png`` lay it out.

    Raises:
        GradkitError: an unknown view.

    Example:
        >>> from gradkit.core.records import Node
        >>> "n1" in dot(Picture((Node(1, "loss", "loss", "live"),), (), (), (), loss="0.5")).source
        True
    """
    return Drawing(picture, shown or chart_of(picture, view, open), Phrases(picture)).digraph()


class Drawing:
    """One chart of one picture, on its way to DOT."""

    def __init__(self, picture: Picture, shown: Chart, words: Phrases) -> None:
        self.picture = picture
        self.shown = shown
        self.words = words
        self.graph = graphviz.Digraph("gradkit")
        self.told: set[int | None] = set()
        self.boxes = {box.number: box for box in shown.boxes}
        self.frames = nested(shown)
        self.prefix = prefixes(self.frames)
        below = self.frames.below()
        self.index = {frame: index for index, (frame, _) in enumerate(below)}
        self.around = [around for _, around in below]
        self.region = {
            number: f"cluster_{self.index[frame]}" for frame, _ in below if frame.shaded for number in frame.all_boxes
        }

    def digraph(self) -> graphviz.Digraph:
        """The whole drawing."""
        self.graph.attr(
            "graph",
            rankdir="TB",
            nodesep="0.35",
            ranksep="0.34",
            pad="0.25",
            compound="true",
            bgcolor="white",
            fontname=SANS,
            tooltip=graphviz.escape(self.words.say("title")),
        )
        self.graph.attr("node", fontname=SANS, fontsize="11", shape="box", margin="0.14,0.07", height="0.3")
        self.graph.attr("edge", fontname=SANS, fontsize="10", arrowsize="0.7")
        if len(self.shown.arrows) > _MOST_WITH_CARE:
            self.graph.attr("graph", nslimit="0.1", nslimit1="0.1", mclimit="0.01", maxiter="50", splines="line")
        self._frame(self.graph, self.frames)
        self._arrows()
        self._beside()
        self._loose()
        self._end()
        self._limit()
        return self.graph

    def hang(self, graph: graphviz.Digraph) -> None:
        """Put the plates into another drawing, whose boxes have the numbers of this chart's."""
        self.graph = graph
        for box in self.shown.boxes:
            if box.kind in ("cut", "plate"):
                self._box(graph, box)
        self._beside()
        self._limit()

    def _frame(self, graph: graphviz.Digraph, frame: Frame) -> None:
        """What lies in a frame, in the order of the run: its boxes, and the frames in it."""
        inside: list[tuple[int, Frame | None]] = [(number, None) for number in frame.boxes]
        inside += [(min(inner.all_boxes), inner) for inner in frame.frames]
        for number, inner in sorted(inside, key=lambda one: one[0]):
            if inner is None:
                self._box(graph, self.boxes[number])
                continue
            index = self.index[inner]
            with graph.subgraph(name=f"cluster_{index}") as region:
                self._look_of(region, inner, index)
                self._frame(region, inner)

    def _look_of(self, region: graphviz.Digraph, frame: Frame, index: int) -> None:
        """Solid around what is named alike, dashed around what no gradient reaches."""
        named, shaded = self.words.frame(frame.path, self.around[index]), self.words.say("shaded")
        said = [f'<font color="{SOFT}" point-size="11"><b>{html_text(named)}</b></font>'] if named else []
        said += [f'<font color="{GREY}" point-size="10">{html_text(shaded)}</font>'] if frame.shaded else []
        begins = self.words.say("frame", path=cleaned(frame.path)) if frame.path else ""
        region.attr(
            label=f"<{html_text('   ').join(said)}>",
            style="rounded,dashed" if frame.shaded else "rounded",
            color=PALE if frame.shaded else LINE,
            labeljust="l",
            margin="12",
            id=f"f{index}",
            tooltip=graphviz.escape(" · ".join(filter(None, (begins, shaded if frame.shaded else "")))),
        )

    def _box(self, graph: graphviz.Digraph, box: Box) -> None:
        if box.kind in ("cut", "plate"):
            self._plate(graph, box)
            return
        if box.kind == "fixed":
            label = fixed_label(self.picture.fixed[int(box.members[0].label)], self.words)
            graph.node(f"n{box.number}", label, **self.identity(box), shape="none", margin="0")
            return
        folded = self.shown.view == "map" or box.kind == "more"
        rows = self._module_rows(box) if folded else self._node_rows(box)
        if box.kind in ("input", "loss"):
            rows = self._end_rows(box)
        label = f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="1">{rows}</table>>'
        graph.node(f"n{box.number}", label, **self.identity(box), **self.look(box))

    def look(self, box: Box) -> dict[str, str]:
        """Colours and shape of a box that is no plate, as Graphviz's attributes."""
        look = dict(BOXES.get(box.status, BOXES["dead"]))
        if box.kind == "input":
            return {"shape": "plaintext"}
        if box.kind == "loss":
            return self._loss_look()
        if box.kind == "output":
            return {"style": "filled", "fillcolor": BOXES["starved"]["fillcolor"], "color": RED, "fontcolor": DARK_RED}
        if box.kind == "node" and box.members[0].kind == "parameter" and box.status != "starved":
            look["style"] = "filled"
        if box.kind == "more":
            look["style"] = f"{look['style']},dashed".replace("dashed,dashed", "dashed")
        return look

    def identity(self, box: Box, tip: str = "") -> dict[str, str]:
        """What tells a box apart in a page: id, class and tooltip."""
        said = filter(None, (self.words.title(box), self.words.holds(box), self.words.state(box)))
        kind = box.kind if box.kind in ("input", "loss", "fixed") else box.status
        tooltip = graphviz.escape(cleaned(tip or " · ".join(said)))
        return {"id": f"n{box.number}", "class": kind, "tooltip": tooltip}

    def _loss_look(self) -> dict[str, str]:
        starved = any(node.status == "starved" for node in self.picture.nodes)
        if not self.picture.backward:
            return {**BOXES["starved"], "peripheries": "1"}
        return {**BOXES["live"], "fillcolor": "#FFFAEB" if starved else "#ECFDF3", "penwidth": "2.2"}

    def _module_rows(self, box: Box) -> str:
        ink, accent = TEXT.get(box.status, (GREY, GREY))
        title = self.words.title(box, self.prefix.get(box.number, ""))
        state, holds = self.words.state(box), self.words.holds(box)
        bold = box.status in ("starved", "partly")
        second = text_line(holds, 10, color=SOFT if ink == INK else GREY) if holds else ""
        if state and points(title, 12, bold=True) + points(state, 10, bold=bold) <= _ACROSS:
            return text_line(title, 12, color=ink, bold=True, beside=(f"  {state}", 10, accent, bold)) + second
        last = text_line(state, 10, color=accent, bold=bold) if state else ""
        return text_line(title, 12, color=ink, bold=True) + second + last

    def _node_rows(self, box: Box) -> str:
        ink, accent = TEXT.get(box.status, (GREY, GREY))
        parameter = box.members[0].kind == "parameter"
        holds, state = self.words.holds(box), self.words.state(box) if parameter else ""
        if state and box.status != "starved":
            holds, state = " · ".join(filter(None, (holds, state))), ""
        return (
            text_line(self.words.title(box), 11, color=ink, bold=parameter)
            + (text_line(holds, 10, color=SOFT if ink == INK else GREY) if holds else "")
            + (text_line(state, 10, color=accent, bold=True) if state else "")
        )

    def _end_rows(self, box: Box) -> str:
        rows = text_line(self.words.title(box), 13, color=INK, bold=True)
        if box.kind == "loss":
            return rows + text_line(self.words.loss_line(), 10, color=DARK_RED if not self.picture.backward else SOFT)
        for node in box.members[:_ROW]:
            rows += text_line(f"{cleaned(node.label)}  {self.words.shape(node.shape)}".strip() or "?", 10, color=GREY)
        left = max(0, len(box.members) - _ROW) + self.picture.more_inputs
        return rows + (text_line(self.words.say("more", n=left), 10, color=GREY) if left else "")

    def _plate(self, graph: graphviz.Digraph, box: Box) -> None:
        finding = self.picture.findings[box.finding] if box.finding is not None else None
        if finding is None:
            finding = Finding(cleaned(box.members[0].label), box.members[0].location)
        head = self.words.heading(finding, box.kind == "cut", len(box.members))
        tip = f"{head} {self.words.place(finding.location)}"
        again = box.finding is not None and box.finding in self.told
        self.told.add(box.finding)
        label = cut_label(finding, head, self.words, in_flow=box.kind == "cut", again=again)
        graph.node(f"n{box.number}", label, **self.identity(box, tip), shape="none", margin="0")

    def _arrows(self) -> None:
        kinds = {box.number: box.kind for box in self.shown.boxes}
        labelled, reach = False, self.shown.reach()
        most = max(reach.values(), default=0)
        for arrow in self.shown.arrows:
            look = dict(ARROWS.get(arrow.status, ARROWS["dead"]))
            ends = {kinds[arrow.tail], kinds[arrow.head]}
            if "cut" in ends:
                look = dict(ARROWS["cut"])
            elif arrow.status == "live":
                look |= self._weight(reach.get((arrow.tail, arrow.head)), most)
                if kinds[arrow.head] == "loss" and not labelled:
                    look["label"], labelled = graphviz.escape(self.words.say("gradient")), True
            elif "input" in ends:
                look = {"color": PALE, "arrowhead": "vee"}
            region = self.region.get(arrow.head)
            if region and region != self.region.get(arrow.tail):
                look["lhead"] = region
            status = "cut" if "cut" in ends else arrow.status
            ends_id = f"e{arrow.tail}-{arrow.head}"
            self.graph.edge(f"n{arrow.tail}", f"n{arrow.head}", id=ends_id, **{"class": status}, **look)

    def _weight(self, reached: int | None, most: int) -> dict[str, str]:
        """The width of a live arrow tells which share of what trains gets its gradient by it; its tooltip how much."""
        if reached is None:
            return {"penwidth": "2"}
        width = _THIN + (_THICK - _THIN) * (reached / most) ** 0.5 if most else _THIN
        tip = graphviz.escape(self.words.say("reaches", n=reached, size=quantity_words(reached)))
        return {"penwidth": f"{width:.1f}", "arrowsize": f"{0.85 - 0.05 * width:.2f}", "tooltip": tip}

    def _end(self) -> None:
        """The loss stands at the end, wherever else the flow turns back."""
        losses = [box.number for box in self.shown.boxes if box.kind == "loss"]
        if losses:
            with self.graph.subgraph() as last:
                last.attr(rank="sink")
                for number in losses:
                    last.node(f"n{number}")

    def _limit(self) -> None:
        """Say below the drawing what is left out of it."""
        said = " ".join(filter(None, (self.words.limit(), self.words.untold(self.shown.boxes))))
        if said:
            self.graph.attr("graph", label=f'<<font color="{GREY}" point-size="10">{html_text(said)}</font>>')

    def _beside(self) -> None:
        """Hang every plate that has no place in the flow next to what it speaks of: below it, or above the loss."""
        losses = {box.number for box in self.shown.boxes if box.kind == "loss"}
        for box in self.shown.boxes:
            for rank, number in enumerate(box.beside):
                ends = (f"n{box.number}", f"n{number}")
                self.graph.edge(
                    *(ends if number in losses else ends[::-1]),
                    dir="none",
                    style="dotted",
                    color=DARK_GREEN if box.kind == "fixed" else AMBER,
                    penwidth="2",
                    constraint="true" if rank == 0 else "false",
                    **{"class": "plate"},
                )

    def _loose(self) -> None:
        """Stack boxes that nothing is linked with, a few in a row."""
        linked = {end for arrow in self.shown.arrows for end in (arrow.tail, arrow.head)}
        hung = {box.number for box in self.shown.boxes if box.beside or box.kind == "plate"}
        loose = [box.number for box in self.shown.boxes if box.number not in linked | hung]
        for above, below in zip(loose, loose[_ROW:], strict=False):
            self.graph.edge(f"n{above}", f"n{below}", style="invis")
