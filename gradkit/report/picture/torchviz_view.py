"""The autograd graph as torchviz draws it: both halves, the one that backward walks and the one that was cut off.

``torchviz.make_dot`` wants live tensors, and when a report is shown none of the run is alive any more. It is handed
stand-ins that answer what it asks of a tensor and of a node, made of the records that were kept.
Source: https://github.com/szagoruyko/pytorchviz
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from types import ModuleType
from typing import Any

import graphviz
import torch

from gradkit.core import printable
from gradkit.core.errors import GradkitError
from gradkit.core.records import Picture
from gradkit.report.picture import torchviz_boxes
from gradkit.report.picture.chart import Box
from gradkit.report.picture.dot import Drawing
from gradkit.report.picture.style import ARROWS, MONO, SANS, points
from gradkit.report.picture.torchviz_kept import MOST, Kept
from gradkit.report.picture.words import Phrases
from gradkit.tracing.autograd_graph import AutogradNode

_NOTHING = Picture((), (), (), ())
_ENDS = {"loss": "loss", "output": "shaded"}


def dot(kept: Kept, starved: Collection[str], picture: Picture = _NOTHING) -> graphviz.Digraph:
    """torchviz's boxes and arrows, both halves in one, in gradkit's colours and with its plates on the cuts.

    Boxes that the picture has as well carry its numbers, ``id="n<number>"``, as in ``dot.dot``. Saved tensors of
    custom Functions, which torchviz shows beside their nodes, are left out: none is alive.

    Args:
        kept: the nodes.
        starved: names of the parameters that should train and get no gradient.
        picture: where the numbers and the plates are taken from.

    Raises:
        GradkitError: there is no graph (``torchviz_nothing``), one of more than ``MOST`` nodes
            (``torchviz_too_large``), or no torchviz (``torchviz_missing``).

    Example:
        >>> leaf, node = AutogradNode("w", -1, True, (2,), ()), AutogradNode("SumBackward0", 3, False, (), (1,))
        >>> print("".join(dot(Kept((node, leaf), (), 2, 2), ()).body[1:2]).replace(chr(9), ""), end="")
        n1 [label=SumBackward0]
    """
    if kept.count > MOST:
        raise GradkitError("torchviz_too_large", n=kept.count, most=MOST)
    if not kept.nodes and kept.loss is None:
        raise GradkitError("torchviz_nothing")
    made = torchviz_boxes.boxes(kept, picture)
    plates = Drawing(picture, made.chart(picture), Phrases(picture))
    functions, tensors = _stand_ins(kept.nodes)
    outputs = {
        index: _Output(functions[index], kept.nodes[index].shape) if index >= 0 else _Output(None, kept.loss)
        for index in made.outputs
    }
    params = {_shown(kept.nodes[index].label): tensor for index, tensor in tensors.items() if kept.nodes[index].label}
    drawing: graphviz.Digraph = _make_dot()(tuple(outputs.values()), params=params)
    numbers = {id(function): made.functions[index] for index, function in enumerate(functions)}
    numbers |= {id(tensor): made.tensors[index] for index, tensor in tensors.items()}
    numbers |= {id(output): made.outputs[index] for index, output in outputs.items()}
    _rename(drawing, numbers, plates)
    _colour(drawing, plates, starved)
    plates.hang(drawing)
    return drawing


_LINE = re.compile(r"\A\t(\d+)(?: -> (\d+))?(.*)\n\Z", re.DOTALL)
_BLANK = "\N{NO-BREAK SPACE}"  # a line without a letter makes the Graphviz of some wheels crash


def _rename(drawing: graphviz.Digraph, numbers: dict[int, int], plates: Drawing) -> None:
    """Name nodes by their numbers instead of their addresses, which are others each time; say what is an output."""
    said = {box.number: plates.words.say(_ENDS[box.kind]) for box in plates.shown.boxes if box.kind in _ENDS}
    status = {(arrow.tail, arrow.head): arrow.status for arrow in plates.shown.arrows}
    for index, line in enumerate(drawing.body):
        address, other, rest = _LINE.findall(line)[0]
        number = numbers[int(address)]
        if not other:
            rest = rest.replace('label="\n', f'label="{said.get(number, _BLANK)}\n')
            drawing.body[index] = f"\tn{number}{rest}\n"
        else:
            head = numbers[int(other)]
            kind = status[number, head]
            look = f'id="e{number}-{head}" class={kind} color="{ARROWS[kind]["color"]}"'
            drawing.body[index] = f"\tn{number} -> n{head} [{look}]\n"


def _colour(drawing: graphviz.Digraph, plates: Drawing, starved: Collection[str]) -> None:
    """Give every box the look, and what tells it apart in a page, that it has in gradkit's own drawings."""
    drawing.graph_attr.pop("size", None)  # it would shrink large drawings until nobody can read them
    drawing.graph_attr.update(pad="0.25", bgcolor="white", fontname=SANS)
    drawing.node_attr.update(fontname=MONO, margin="0.12,0.06")
    for box in plates.shown.boxes:
        if box.kind in ("cut", "plate"):
            drawing.node(f"n{box.number}", style="solid", fontname=SANS)
            continue
        node = box.members[0]
        starving = node.kind == "parameter" and node.label in starved
        shown = replace(box, status="starved") if starving else box
        drawing.node(f"n{box.number}", **plates.identity(shown), **plates.look(shown), **_room(box, plates.words))
    for arrow in plates.shown.arrows:
        if arrow.status == "cut":
            name = f"e{arrow.tail}-{arrow.head}"
            drawing.edge(f"n{arrow.tail}", f"n{arrow.head}", id=name, **{"class": "cut"}, **ARROWS["cut"])


def _room(box: Box, words: Phrases) -> dict[str, str]:
    """The width of a box and its font: engines without font metrics guess too narrow, and most know no Chinese."""
    node = box.members[0]
    if box.kind in _ENDS:
        width = points(words.say(_ENDS[box.kind]), 10)
        return {"width": f"{width / 72 + 0.3:.2f}", "fontname": SANS}
    return {"width": f"{points(printable.escaped(node.label), 10, code=True) / 72 + 0.25:.2f}"}


class _Function:
    """Stands for a node of autograd's; its class has that one's name."""

    next_functions: tuple[tuple[_Function, int], ...] = ()
    variable: torch.Tensor


class _Output:
    """Stands for a tensor that a graph ends in."""

    def __init__(self, grad_fn: _Function | None, shape: tuple[int, ...] | None) -> None:
        self.grad_fn, self._shape = grad_fn, shape or ()

    def size(self) -> tuple[int, ...]:
        return self._shape

    def _is_view(self) -> bool:
        return False


def _stand_ins(nodes: tuple[AutogradNode, ...]) -> tuple[list[_Function], dict[int, torch.Tensor]]:
    """Something for each node, and tensors without memory for the leaves, by their indices."""
    functions: list[_Function] = []
    leaves: dict[int, torch.Tensor] = {}
    for index, node in enumerate(nodes):
        name = "AccumulateGrad" if node.leaf else _shown(node.label)
        functions.append(type(name, (_Function,), {})())
        if node.leaf:
            functions[-1].variable = leaves[index] = torch.empty(node.shape or (), device="meta")
    for function, node in zip(functions, nodes, strict=True):
        function.next_functions = tuple((functions[parent], 0) for parent in node.parents)
    return functions, leaves


def _shown(name: str) -> str:
    return str(graphviz.escape(printable.escaped(name)))


def _make_dot() -> Callable[..., Any]:
    """``torchviz.make_dot``; where it is imported here, with the little that it asks of distutils.

    Python has no distutils any more. Setuptools' has a folder of its own on ``sys.path``, and warns.

    Raises:
        GradkitError: it cannot be imported (``torchviz_missing``).
    """
    if "torchviz" not in sys.modules:
        package, version = ModuleType("distutils"), ModuleType("distutils.version")
        version.LooseVersion = _Release  # type: ignore[attr-defined]
        standins = {"distutils": package, "distutils.version": version}
        own = {name: sys.modules.get(name) for name in standins}
        sys.modules.update(standins)
        try:
            importlib.import_module("torchviz")
        except ImportError as error:
            raise GradkitError("torchviz_missing") from error
        finally:
            for name, module in own.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module
    found: Callable[..., Any] = sys.modules["torchviz"].make_dot
    return found


class _Release(tuple[int, ...]):
    """A version, as far as it tells releases of torch apart.

    Example:
        >>> _Release("2.10.0+cu126") < _Release("1.9")
        False
    """

    def __new__(cls, text: str) -> _Release:
        return super().__new__(cls, (int(part) for part in re.findall(r"\d+", text)[:3]))
