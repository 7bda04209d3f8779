"""What there is to say about each box of a drawing, when a person picks it: in words, with its lines of code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gradkit.core import printable
from gradkit.core.records import Finding, Location, Node, Picture
from gradkit.report.picture import what_if
from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.fold import chart_of
from gradkit.report.picture.nearby import MARK
from gradkit.report.picture.style import cleaned, operation_words, place_name
from gradkit.report.picture.words import Phrases, Shapes
from gradkit.source import frames, imported

_NAMES, _AROUND = 8, 3


def cards(
    picture: Picture,
    view: str = "auto",
    *,
    open: Iterable[str] = (),  # noqa: A002
    shown: Chart | None = None,
    flows: what_if.Flows | None = None,
) -> dict[int, dict[str, Any]]:
    """A card for every box that ``dot.dot`` draws with the same arguments, by the number of the box.

    A card has ``title``, ``kind`` (``"cut"``, ``"plate"``, ``"module"`` ...), ``status``, ``state`` (the status in
    words), ``rows`` (pairs of label and value), ``place`` (``file.py:41``), ``path`` (of the file), ``code`` (lines as
    ``{"line", "text", "here", "from", "to"}``, columns from 0), ``why`` (sentences), ``open`` (what unfolds the box:
    the path of a module, a part beyond, or ``""``), ``finding`` (the index of the one on a plate, else None), ``undo``
    (what would flow without it, as ``what_if.shown`` has it, or None), and to be searched ``names`` (of all modules,
    parameters and operations in it) and ``places`` (of all lines in it). All of it is plain JSON.

    Args:
        picture: what to show.
        view: as for ``dot.dot``.
        open: as for ``dot.dot``.
        shown: the boxes; None for those of the view.
        flows: of the picture, where it has several drawings; None to work them out.

    Raises:
        GradkitError: an unknown view.

    Example:
        >>> picture = Picture((Node(1, "fc.bias", "parameter", "starved", shape=(4,)),), (), (), ())
        >>> card = cards(picture)[1]
        >>> card["title"], card["state"], card["rows"]
        ('fc.bias', '✗ should train, no gradient', [['Shape', '(4)']])
    """
    words = Phrases(picture)
    shown = shown or chart_of(picture, view, open)
    flows = flows or what_if.Flows(picture)
    shapes = Shapes(flows.wires, words)
    guilty: dict[str, list[int]] = {}
    for index, finding in enumerate(picture.findings):
        for name in finding.parameters:
            guilty.setdefault(name, []).append(index)
    made = (_Card(picture, words, shapes, box, box.number in shown.shaded, guilty) for box in shown.boxes)
    plates = {
        box.number: box.finding for box in shown.boxes if box.finding is not None and box.kind in ("cut", "plate")
    }
    drawn = plates if shown.view in ("map", "graph") else {}
    undo = {number: what_if.shown(flows, shown, words, finding) for number, finding in drawn.items()}
    return {card.box.number: {**card.as_dict(), "undo": undo.get(card.box.number)} for card in made}


class _Card:
    def __init__(
        self, picture: Picture, words: Phrases, shapes: Shapes, box: Box, shaded: bool, guilty: Mapping[str, list[int]]
    ) -> None:
        self.guilty = guilty
        self.picture = picture
        self.words = words
        self.shapes = shapes
        self.box = box
        self.shaded = shaded
        self.finding = picture.findings[box.finding] if box.finding is not None else None

    def as_dict(self) -> dict[str, Any]:
        place = self._location()
        return {
            "title": self._title(),
            "kind": self.box.kind,
            "status": self.box.status,
            "state": self._state(),
            "rows": [[self.words.say(f"card.{key}"), value] for key, value in self._rows(place) if value],
            "place": place_name(place) if place else "",
            "path": printable.name(place.file, printable.FACT) if place else "",
            "line": str(place.line) if place else "",
            "cell": frames.cell_number(place.file) if place and frames.is_cell(place.file) else "",
            "code": _code(place) if place else [],
            "why": self._why(),
            "open": unfolds(self.picture, self.box),
            "finding": self.box.finding,
            "names": self._names(),
            "places": self._places(),
        }

    def _title(self) -> str:
        if self.finding is not None:
            return self.words.heading(self.finding, self.box.kind == "cut", len(self.box.members))
        return self.words.title(self.box)

    def _state(self) -> str:
        if self.box.kind == "loss":
            return self.words.loss_line()
        if self.box.kind == "fixed":
            return self.words.say("fixed", n=len(self.picture.fixed[int(self.box.members[0].label)].parameters))
        said = self.words.state(self.box)
        if said or self.box.kind == "input" or self.finding is not None:
            return said
        live = "live_here" if self.words.picture.backward else "connected"
        return self.words.say(f"status.{live}" if self.box.status == "live" else "status.dead")

    def _location(self) -> Location | None:
        if self.finding is not None:
            return self.finding.location
        return self.box.members[0].location if len(self.box.members) == 1 else None

    def _rows(self, place: Location | None) -> list[tuple[str, str]]:
        one = self.box.members[0] if len(self.box.members) == 1 else None
        if self.finding is not None:
            return [
                ("cause", cleaned(self.finding.cause)),
                ("proof", self.words.proof(self.finding)),
                ("module", cleaned(self.finding.module)),
                ("function", cleaned(place.function) if place else ""),
                ("starves", self._some(self.finding.parameters)),
            ]
        if self.box.kind == "loss":
            return [("shape", self.shapes.taken(self.box)), ("limit", self.words.limit())]
        if one is not None and self.box.kind != "input":
            parameter = one.kind == "parameter"
            return [
                ("module", "" if parameter else cleaned(one.module)),
                ("shape", self.words.shape(one.shape) if parameter else ""),
                ("takes", "" if parameter else self.shapes.taken(self.box)),
                ("gives", "" if parameter else self.shapes.given(self.box) or self.words.shape(one.shape)),
                ("function", cleaned(place.function) if place else ""),
            ]
        if self.box.kind == "input":
            named = [f"{cleaned(node.label)} {self.words.shape(node.shape)}".strip() for node in self.box.members]
            return [("holds", self._some(named))]
        labels = dict.fromkeys(node.label for node in self.box.members if node.kind in ("autograd", "call"))
        operations = (operation_words(cleaned(label)) for label in labels)
        trained = (node.label for node in self.box.members if (node.kind, node.status) == ("parameter", "live"))
        return [
            ("holds", self.words.holds(self.box) if self.box.part else ""),
            ("takes", self.shapes.taken(self.box)),
            ("gives", self.shapes.given(self.box)),
            ("starves", self._some(node.label for node in self._starved())),
            ("parameters", self._some(trained)),
            ("operations", self._some(dict.fromkeys(operations), ", ")),
            ("line", self._some(self._places(), ", ")),
        ]

    def _names(self) -> list[str]:
        """What the box can be searched by: modules, parameters, operations by both of their names, the cause."""
        found: dict[str, None] = dict.fromkeys(self.box.part.paths if self.box.part else ())
        of_plate = self.box.kind == "fixed"
        labels = {} if of_plate else dict.fromkeys((node.label, node.module) for node in self.box.members)
        for label, module in labels:
            found |= dict.fromkeys((label, operation_words(label), module))
        cause = (self.finding.cause, self.finding.module, *self.finding.parameters) if self.finding else ()
        return [cleaned(name) for name in (*cause, *found) if name]

    def _places(self) -> list[str]:
        """Every line that made something in the box, ``file.py:41``; of a finding also those of its notes."""
        made = dict.fromkeys(node.location for node in self.box.members if node.location)
        told = (self.finding.location, *self.finding.also) if self.finding else ()
        return list(dict.fromkeys(place_name(place) for place in (*told, *made) if place))

    def _starved(self) -> list[Node]:
        return [node for node in self.box.members if node.kind == "parameter" and node.status == "starved"]

    def _some(self, names: Iterable[str], between: str = "\n") -> str:
        known = [cleaned(name) for name in names]
        text = between.join(known[:_NAMES])
        return f"{text}\n{self.words.say('more', n=len(known) - _NAMES)}" if len(known) > _NAMES else text

    def _why(self) -> list[str]:
        """Why the box looks as it does."""
        status = self.box.status
        if self.box.kind == "loss":
            return [] if self.picture.backward or self.words.has_history else [self.words.say("why.raises")]
        if self.box.kind in ("cut", "plate", "fixed", "input"):
            return []
        if status in ("starved", "partly"):
            return self._blame()
        cut = next((finding.location for finding in self.picture.findings if finding.location), None)
        if status == "dead" and self.shaded and cut is not None:
            return [self.words.say("why.dead_before", place=place_name(cut))]
        return [self.words.say(f"why.{status}_passes" if status == "frozen" and self.box.flows else f"why.{status}")]

    def _blame(self) -> list[str]:
        """One sentence for every finding that starves a parameter of this box."""
        found = sorted({index for node in self._starved() for index in self.guilty.get(node.label, ())})
        told = [self._sentence(self.picture.findings[index]) for index in found]
        return told or [self.words.say("why.starved_unknown")]

    def _sentence(self, finding: Finding) -> str:
        if finding.location is None:
            return self.words.say("why.starved_unplaced", cause=cleaned(finding.cause))
        place = place_name(finding.location)
        return self.words.say("why.starved", cause=cleaned(finding.cause), place=place)


def unfolds(picture: Picture, box: Box) -> str:
    """What unfolds a box: the path of its module, the parent of the siblings in it, a part beyond, or ``""``."""
    part = box.part
    if box.kind == "more":
        return f"{MARK}{_border(picture, box)}"
    if part is None:
        return ""
    if len(part.paths) > 1:
        return part.paths[0].rpartition(".")[0]
    below = f"{part.paths[0]}."
    return part.paths[0] if any(node.module.startswith(below) for node in box.members) else ""


def _border(picture: Picture, box: Box) -> int:
    """The node of a part beyond to go on from: the last one before the cut, the first one behind it."""
    numbers = [node.number for node in box.members if node.kind != "parameter"] or [box.number]
    cut = next((node.number for node in picture.nodes if node.kind == "cut"), 0)
    before = [number for number in numbers if number < cut]
    return max(before) if len(before) * 2 > len(numbers) else min(numbers)


def _code(place: Location) -> list[dict[str, Any]]:
    """The line and its neighbours; only the line itself where the file cannot be read or has changed."""
    source = imported.source_of(place)
    if source is None:
        return [_line(place, place.line, place.text)] if place.text else []
    lines = [text.rstrip("\n") for text in source.lines]
    first, last = max(1, place.line - _AROUND), min(len(lines), place.line + _AROUND)
    return [_line(place, number, lines[number - 1]) for number in range(first, last + 1)]


def _line(place: Location, number: int, text: str) -> dict[str, Any]:
    if number != place.line:
        return {"line": number, "text": printable.line(text)[0], "here": False, "from": 0, "to": 0}
    last = len(text.rstrip()) if place.end_line > place.line else min(place.end_column - 1, len(text))
    shown, first, end = printable.line(text, place.column, last + 1)
    return {"line": number, "text": shown, "here": True, "from": first - 1, "to": end - 1}
