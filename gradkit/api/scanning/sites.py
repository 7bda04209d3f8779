"""Where source code does what may stop a gradient, by its syntax tree. Nothing is imported, and nothing is run.

A site is a place to look at, not a fault: nearly all of them are right where they stand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit.api.scanning import stops
from gradkit.api.scanning.stops import FLAG, FREEZE, Names, Reader, is_constant, sets_flag
from gradkit.core.records import Location
from gradkit.source import freezing, locations, syntax
from gradkit.source.files import Text
from gradkit.source.syntax import FUNCTIONS, Tree

_ALWAYS = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad|\.\s*detach_?\b")
_WITH_TORCH = re.compile(
    r"\.\s*(data\b|eval\s*\(|train\s*\(|item\s*\(|tolist\s*\(|numpy\s*\(|type\s*\(|to\s*\()|float\s*\(|[tT]ensor\s*\(|"
    r"as_?array|np\.array|Parameter|Variable|\.\s*(long|int|short|char|byte|bool)\s*\("
)

_TELLING = (ast.With, ast.AsyncWith, *FUNCTIONS, ast.Call, ast.Attribute, ast.Assign)
_Found = tuple[str, ast.AST, str, int]  # kind, node, form, last line


@dataclass(frozen=True)
class Site:
    """One place that may stop a gradient.

    Attributes:
        kind: one of ``stops.KINDS``.
        location: where it stands; of a method call, the part from the dot on.
        role: what the function around it is for: ``"forward"``, ``"training"``, ``"evaluation"``, ``"setup"`` or
            ``"other"``, as far as the file by itself can tell.
        form: ``"block"`` (a ``with``), ``"decorator"``, or ``""``.
        last_line: of a block or decorator, where what it covers ends.
        cell: of a notebook, the number of the cell, counted from 1 over all of its cells; else 0.
        scope: name of the function that runs the line, ``"<lambda>"`` or ``"<module>"``.
    """

    kind: str
    location: Location
    role: str = stops.OTHER
    form: str = ""
    last_line: int = 0
    cell: int = 0
    scope: str = "<module>"


class Finder:
    """Finds the sites of one file, or of the cells of one notebook.

    Args:
        trees: the syntax trees, in order.
        torch: whether the file speaks of torch at all.

    Example:
        >>> text = "import torch as t\\n@t.no_grad()\\ndef forward(x):\\n    return x.detach()\\n"
        >>> found = Finder([ast.parse(text)]).sites(0, "a.py", text.splitlines())
        >>> [(site.kind, site.form, site.location.line, site.role) for site in found]
        [('no_grad', 'decorator', 2, 'forward'), ('detach', '', 4, 'forward')]
    """

    def __init__(self, trees: Sequence[ast.Module], *, torch: bool = True) -> None:
        self._trees = [Tree(tree) for tree in trees]
        self._reader = Reader(Names(node for tree in self._trees for node in tree.nodes), torch=torch)
        self._roles = stops.roles(self._trees)

    def sites(self, index: int, file: str, lines: Sequence[str], cell: int = 0) -> list[Site]:
        """The sites of one of the trees, in the order of their lines.

        Args:
            file: what to call the file.
            lines: its source.
            cell: the number of the notebook cell.
        """
        found: list[Site] = []
        tree = self._trees[index]
        for node in tree.nodes:
            for kind, spot, form, last in self._kinds(node, tree) if isinstance(node, _TELLING) else ():
                inside = [*tree.inside(node), node]
                around = syntax.function_of(inside) or "<module>"
                place = locations.place(file, spot, around, anchor=True, lines=lines)
                scope = _scope(inside if form == "decorator" else inside[:-1])
                role = stops.role_of(node, tree, self._roles)
                found.append(Site(kind, place, role, form, last or place.end_line, cell, scope))
        return sorted(found, key=lambda one: (one.location.line, one.location.column))

    def _kinds(self, node: Any, tree: Tree) -> Iterator[_Found]:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                yield from self._switches(item.context_expr, "block", node.end_lineno or 0)
        elif isinstance(node, FUNCTIONS):
            for mark in node.decorator_list:
                yield from self._switches(mark, "decorator", node.end_lineno or 0)
        elif isinstance(node, ast.Call):
            yield from self._calls(node, tree)
        elif isinstance(node, ast.Attribute) and (kind := self._reader.attribute(node)):
            outer = tree.inside(node)[-1]
            called = isinstance(outer, ast.Call) and outer.func is node and node.attr != "data"
            yield kind, outer if called else node, "", 0
        elif isinstance(node, ast.Assign):
            if freezing.flag_off(node):
                yield FREEZE, node, "", 0
            elif sets_flag(node) and stops.role_of(node, tree, self._roles) in stops.ON_THE_WAY:
                yield FLAG, node, "", 0

    def _calls(self, node: ast.Call, tree: Tree) -> Iterator[_Found]:
        kind = self._reader.switch(node)
        kind = "" if kind and _is_head(node, tree.inside(node)) else kind
        role = stops.role_of(node, tree, self._roles)
        if kind := kind or self._reader.call(node, role):
            yield kind, node, "", 0
        for one in node.keywords:
            if one.arg == "requires_grad" and is_constant(one.value, False):
                yield FREEZE, one.value, "", 0

    def _switches(self, head: ast.expr, form: str, last: int) -> Iterator[_Found]:
        for node in _outermost(head):
            if kind := self._reader.switch(node):
                yield kind, node, form, last
                return


def _scope(inside: Sequence[ast.AST]) -> str:
    scopes = (node for node in reversed(inside) if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)))
    return next(("<lambda>" if isinstance(one, ast.Lambda) else one.name for one in scopes), "<module>")


def _is_head(node: ast.Call, inside: Sequence[ast.AST]) -> bool:
    """Whether a call is part of the head of a ``with`` or of a decorator, or gives a switch another name."""
    below: ast.AST = node
    for outer in reversed(inside):
        if isinstance(outer, ast.withitem) and outer.context_expr is below:
            return True
        if isinstance(outer, FUNCTIONS) and any(mark is below for mark in outer.decorator_list):
            return True
        if isinstance(outer, ast.stmt):
            return isinstance(outer, ast.Assign) and outer.value is node and isinstance(outer.targets[0], ast.Name)
        below = outer
    return False


def _outermost(head: ast.expr) -> Iterator[ast.expr]:
    """An expression and those in it, without the mere name of what a call calls."""
    todo: list[ast.AST] = [head]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.expr):
            yield node
        called = node.func if isinstance(node, ast.Call) and not isinstance(node.func, ast.Call) else None
        todo.extend(child for child in ast.iter_child_nodes(node) if child is not called)


def worth(text: str) -> bool:
    """Whether a text may hold a site: looked at quickly, before it is parsed."""
    return bool(_ALWAYS.search(text)) or ("torch" in text and bool(_WITH_TORCH.search(text)))


def find_sites(found: Sequence[Text]) -> list[Site]:
    """The sites of one file, or of the cells of one notebook."""
    if not found:
        return []
    finder = Finder([one.tree for one in found], torch=any("torch" in line for one in found for line in one.lines))
    parts = (finder.sites(i, one.file, one.lines, one.cell) for i, one in enumerate(found))
    return [site for part in parts for site in part]
