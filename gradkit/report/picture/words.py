"""What a drawing says: of a box its title, shapes and state, and of the whole what is left out of it."""

from __future__ import annotations

from collections.abc import Iterable

from gradkit.core import i18n
from gradkit.core.records import PROVEN, Finding, Fixed, Location, Node, Picture
from gradkit.report.picture.chart import Box, Chart
from gradkit.report.picture.nested import name_in
from gradkit.report.picture.outline import Part
from gradkit.report.picture.style import cleaned, operation_words, place_name, quantity_words, shorten

_TITLE, _LIST = 44, 3


class Phrases:
    """The words for one picture.

    Example:
        >>> from gradkit.core.records import Node
        >>> node = Node(1, "fc.weight", "parameter", "starved", shape=(2, 3))
        >>> words = Phrases(Picture((node,), (), (), ()))
        >>> box = Box(1, "node", "starved", (node,))
        >>> words.title(box), words.state(box), words.holds(box)
        ('fc.weight', '✗ should train, no gradient', '(2, 3)')
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._info = {module.path: module for module in picture.modules}
        self._below: dict[str, list[str]] = {}
        for module in picture.modules:
            self._below.setdefault(module.path.rpartition(".")[0], []).append(module.path)
        self._shapes = {node.label: node.shape for node in picture.nodes if node.kind == "parameter"}

    @property
    def has_history(self) -> bool:
        """Whether the loss has a grad_fn, though ``backward()`` may still raise."""
        return any(node.kind == "autograd" and node.status == "live" for node in self.picture.nodes)

    def say(self, key: str, **facts: object) -> str:
        """The sentence ``picture.<key>``."""
        return i18n.words(f"picture.{key}", **facts)

    def title(self, box: Box, around: str = "") -> str:
        """What the box is called; never empty. Without the path of the frame ``around`` it, which the frame says."""
        if box.kind == "input":
            return self.say("batch")
        if box.kind == "loss":
            return f"{self.say('loss')}  {cleaned(self.picture.loss)}".strip()
        if box.kind == "output":
            return self.say("shaded")
        if box.kind == "more":
            return self.say("beyond", n=len(box.members))
        if box.kind == "fixed":
            return self.fixed(self.picture.fixed[int(box.members[0].label)])
        if box.part is not None:
            return self._part_title(box.part, box.half, around)
        labels = [cleaned(node.label) or "?" for node in box.members]
        if box.kind == "node":
            return shorten(labels[0], _TITLE)
        if box.kind == "operations":
            labels = [operation_words(label) for label in labels]
        if box.kind == "parameters":
            labels = [name_in(label, around) for label in labels]
        return self._listed(dict.fromkeys(labels))

    def holds(self, box: Box) -> str:
        """What is in the box: classes and number of elements, or module and shape; ``""`` if nothing is known."""
        if box.part is not None:
            return " · ".join(filter(None, (self._kinds(box.part), self.elements(box))))
        if box.kind == "more":
            modules = dict.fromkeys(".".join(node.module.split(".")[:3]) for node in box.members if node.module)
            return self._listed(map(cleaned, modules))
        last = box.members[-1] if box.members else None
        if box.kind in ("input", "loss", "cut", "plate", "fixed") or last is None:
            return ""
        module = cleaned(last.module) if box.kind == "node" and last.kind != "parameter" else ""
        uses = self.say("uses", n=box.more_uses) if box.more_uses else ""
        return " · ".join(filter(None, (shorten(module, _TITLE), self.shape(last.shape), uses)))

    def state(self, box: Box) -> str:
        """Whether a gradient comes to the box, in words; ``""`` for an input or an operation that lies in the flow."""
        of_parameters = [node.status for node in box.members if node.kind == "parameter"]
        starved, trained = of_parameters.count("starved"), of_parameters.count("live")
        if box.status == "partly":
            return self.say("status.partly", n=starved, total=starved + trained)
        if box.status == "frozen" and box.flows:
            return self.say("status.frozen_passes")
        if box.status == "live":
            return self._live_state(box, trained) if self.picture.backward else self.connected(box)
        weighty = box.status == "dead" and box.part is not None and bool(self.elements(box))
        return self.say(f"status.{box.status}") if box.status in ("starved", "frozen") or weighty else ""

    def loss_line(self) -> str:
        """Whether ``backward()`` runs, and what it misses."""
        if not self.picture.backward:
            return self.say("backward.raises_late" if self.has_history else "backward.raises")
        of_parameters = [node.status for node in self.picture.nodes if node.kind == "parameter"]
        starved, trained = of_parameters.count("starved"), of_parameters.count("live")
        return self.say("backward.partly", n=starved, total=starved + trained) if starved else self.say("backward.runs")

    def limit(self) -> str:
        """What of a graph that is too large is left out; ``""`` if nothing is."""
        return self.say("limit", n=f"{self.picture.left_out:,}") if self.picture.left_out else ""

    def untold(self, boxes: Iterable[Box]) -> str:
        """How many findings have no plate among these boxes; ``""`` if all have one."""
        left = len(self.picture.findings) - len({box.finding for box in boxes} - {None})
        return self.say("untold", n=left) if left > 0 else ""

    def heading(self, finding: Finding, in_flow: bool, places: int = 1) -> str:
        """The headline of a plate: a cut in the flow (in how many places), or what is wrong where nothing was cut."""
        key, of_variant = (f"plate.{finding.cause}{part}" for part in ("", f"_{finding.variant}"))
        own = key if i18n.has(f"picture.{key}") else "plate.other"
        key = of_variant if i18n.has(f"picture.{of_variant}") else "plate.cut" if in_flow else own
        return self.say(key, cause=cleaned(finding.cause)) + (
            f"  ·  {self.say('places', n=places)}" if places > 1 else ""
        )

    def fixed(self, change: Fixed) -> str:
        """The headline of a plate where a gradient flows again: it was fixed there, or by a change elsewhere."""
        return self.say("plate.fixed" if change.lines else "plate.flows_again", cause=cleaned(change.cause))

    def proof(self, finding: Finding) -> str:
        """How sure the finding is."""
        of_set = {"": finding.proof, "1": "together"}.get(finding.facts.get("together", ""), "frozen")
        key = of_set if finding.proof == PROVEN else finding.proof
        return self.say(f"proof.{key}", n=len(finding.revived) or len(finding.parameters))

    def place(self, location: Location | None) -> str:
        """``file.py:41``, or that it is not known."""
        return place_name(location) if location else self.say("unplaced")

    def shape(self, shape: tuple[int, ...] | None) -> str:
        """``(2, 48)``, the word for a scalar, or ``""`` if the shape is not known."""
        if shape is None:
            return ""
        return f"({', '.join(str(size) for size in shape)})" if shape else self.say("scalar")

    def elements(self, box: Box) -> str:
        """How many elements the parameters of the box's modules hold, ``""`` for none."""
        paths = box.part.paths if box.part else ()
        count = sum(self._info[path].numel for path in paths if path in self._info)
        return self.say("elements", n=count, size=quantity_words(count)) if count else ""

    def connected(self, box: Box) -> str:
        """Of what lies on the way of a backward that raises: no gradient comes here, though nothing is cut."""
        holds = box.part is not None or any(node.kind == "parameter" for node in box.members)
        return self.say("status.connected") if holds else ""

    def _live_state(self, box: Box, trained: int) -> str:
        if not trained:
            return self.say("status.live_here") if box.part is not None else ""
        infos = [self._info[path] for path in (box.part.paths if box.part else ()) if path in self._info]
        all_, some = sum(info.numel for info in infos), sum(info.trainable for info in infos)
        if 0 < some < all_:
            return self.say("status.live_some", trained=quantity_words(some), size=quantity_words(all_))
        return self.say("status.live")

    def frame(self, path: str, around: str) -> str:
        """What a frame is called inside another, with the class of its module; ``""`` for one without a name."""
        if not path:
            return ""
        kind = cleaned(self._info[path].kind) if path in self._info else ""
        return " · ".join(filter(None, (shorten(cleaned(name_in(path, around)), _TITLE), shorten(kind, _TITLE))))

    def _part_title(self, part: Part, half: str, around: str) -> str:
        title = shorten(cleaned(name_in(part.paths[0], around)), _TITLE)
        if len(part.paths) > 1:
            last = ".".join(cleaned(part.paths[-1]).split(".")[-2:])
            title = self.say("run", first=title, last=shorten(last, _TITLE // 2))
        return self.say(half, title=title) if half else title

    def _kinds(self, part: Part) -> str:
        if len(part.paths) > 1:
            if not part.kind:
                return self.say("mixed", n=len(part.paths))
            return self.say("times", kind=cleaned(part.kind), n=len(part.paths))
        return self._repeated(part.paths[0]) or self._sequence(part.paths[0]) or self._kind(part.paths[0])

    def _repeated(self, path: str) -> str:
        """The class of the layers and how many, if a list of like layers is what the module consists of."""
        below = [path]
        for _ in range(4):
            below = [child for parent in below for child in self._below.get(parent, ())]
            numbered = [self._info[child].kind for child in below if child.rpartition(".")[2].isdigit()]
            if len(numbered) > 1 and len(set(numbered)) == 1:
                return self.say("times", kind=cleaned(numbered[0]), n=len(numbered))
        return ""

    def _sequence(self, path: str) -> str:
        below = self._below.get(path, [])
        if path not in self._info or self._info[path].kind != "Sequential" or not 1 < len(below) <= _LIST + 1:
            return ""
        return shorten(", ".join(self._kind(child) for child in below), _TITLE)

    def _kind(self, path: str) -> str:
        kind = cleaned(self._info[path].kind) if path in self._info else ""
        weight = self._shapes.get(f"{path}.weight")
        if kind == "Linear" and weight is not None and len(weight) == 2:
            return self.say("sizes", kind=kind, from_=weight[1], to=weight[0])
        return shorten(kind, _TITLE)

    def _listed(self, names: Iterable[str]) -> str:
        known = list(names)
        room = (_TITLE, _TITLE * 2 // 3, _TITLE // 2)[min(len(known), _LIST) - 1]
        shown = " · ".join(shorten(name, room) for name in known[:_LIST])
        return f"{shown} · {self.say('more', n=len(known) - _LIST)}" if len(known) > _LIST else shown


def picture_limits(picture: Picture, shown: Chart) -> str:
    """What of the picture is in a chart only as boxes for what lies beyond, in words; ``""`` if nothing is.

    What is left out of every drawing stands below the drawing itself.
    """
    words = Phrases(picture)
    beyond = sum(len(box.members) for box in shown.boxes if box.kind == "more")
    total = len(picture.nodes)
    return words.say("near", shown=total - beyond, all=total) if beyond else ""


def caption_name(picture: Picture) -> str:
    """What a file with the picture may be called after: the model's class and the first cause.

    Example:
        >>> from gradkit.core.records import Finding
        >>> caption_name(Picture((), (), (), (Finding("detach", None),)))
        'detach'
    """
    root = next((module.kind for module in picture.modules if not module.path), "")
    causes = [finding.cause for finding in picture.findings[:1]] or ["sound"]
    return "-".join("".join(c if c.isalnum() else "_" for c in part) for part in (root, *causes) if part)


_MOST = 6


class Wires:
    """What flows into each node of one picture, and where its own value goes.

    Example:
        >>> from gradkit.core.records import Edge
        >>> nodes = Node(1, "x", "input", "dead"), Node(2, "SumBackward0", "autograd", "live")
        >>> wires = Wires(Picture(nodes, (Edge(1, 2, "dead"),), (), ()))
        >>> wires.feeds, wires.fed
        ({2: [1]}, {1: [2]})
    """

    def __init__(self, picture: Picture) -> None:
        self.node = {node.number: node for node in picture.nodes}
        self.feeds: dict[int, list[int]] = {}
        self.fed: dict[int, list[int]] = {}
        for edge in picture.edges:
            self.feeds.setdefault(edge.target, []).append(edge.source)
            self.fed.setdefault(edge.source, []).append(edge.target)


class Shapes:
    """The values that flow between the boxes of one picture.

    Example:
        >>> from gradkit.core.records import Edge
        >>> nodes = Node(1, "x", "input", "dead", shape=(2, 3)), Node(2, "SumBackward0", "autograd", "live", shape=())
        >>> picture = Picture(nodes, (Edge(1, 2, "dead"),), (), ())
        >>> shapes = Shapes(Wires(picture), Phrases(picture))
        >>> shapes.taken(Box(2, "node", "live", nodes[1:])), shapes.given(Box(1, "input", "dead", nodes[:1]))
        ('x (2, 3)', 'x (2, 3)')
    """

    def __init__(self, wires: Wires, words: Phrases) -> None:
        self._words = words
        self._node, self._feeds, self._fed = wires.node, wires.feeds, wires.fed

    def taken(self, box: Box) -> str:
        """What flows in from other boxes, parameters aside; one value a line."""
        inside = {node.number for node in box.members}
        feeds = dict.fromkeys(n for node in box.members for n in self._feeds.get(node.number, ()) if n not in inside)
        return self._listed(self._node[n] for n in feeds if n in self._node and self._node[n].kind != "parameter")

    def given(self, box: Box) -> str:
        """What other boxes take from it."""
        inside = {node.number for node in box.members}
        return self._listed(
            node
            for node in box.members
            if node.kind != "parameter" and any(n not in inside for n in self._fed.get(node.number, ()))
        )

    def _listed(self, nodes: Iterable[Node]) -> str:
        known = list(dict.fromkeys(filter(None, map(self._value, nodes))))
        more = [self._words.say("more", n=len(known) - _MOST)] if len(known) > _MOST else []
        return "\n".join([*known[:_MOST], *more])

    def _value(self, node: Node) -> str:
        """The shape; before it the name of a tensor of the batch. A plate has none: it passes on what flows into it."""
        while node.shape is None and node.kind in ("cut", "fixed") and self._feeds.get(node.number):
            node = self._node[self._feeds[node.number][0]]
        name = cleaned(node.label) if node.kind == "input" else ""
        return f"{name} {self._words.shape(node.shape)}".strip()
