"""What a function that builds an optimizer takes in on a condition only: left out where that did not hold.

``if not self.locked: params += list(self.decoder.parameters())`` says that somebody has thought of the decoder, and
that a setting decides. Nothing is forgotten there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_HANDING = ("parameters", "named_parameters")


def on_condition(built: Location, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a model's parameters that a function names under a condition, and nowhere else.

    Args:
        built: the line that builds an optimizer.
        names: of the parameters, as the model knows them.
    """
    tree = locations.tree_of(built.file)
    around = _function(tree, built.line) if tree is not None else None
    if around is None:
        return ()
    chosen, always = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for path, arm in _handed(around):
        (chosen if arm else always).add(path)
    only = [path for path in chosen - always if not any(_is_of(".".join(path), one) for one in always)]
    return tuple(name for name in names if any(_is_of(name, path) for path in only))


def _function(tree: ast.Module, line: int) -> ast.AST | None:
    """The innermost function that a line stands in; None at the top level."""
    inside = [
        one for one in ast.walk(tree) if isinstance(one, syntax.FUNCTIONS) and one.lineno <= line <= (one.end_lineno or 0)
    ]
    return max(inside, key=lambda one: one.lineno, default=None)


def _handed(function: ast.AST) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The modules whose parameters a function asks for, as the names that lead to them, and whether in one arm alone."""
    for path in syntax.paths(function):
        node = path[-1]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING:
            words = tuple(_words(node.func.value))
            if words:
                yield words, any(_is_arm(outer, inner) for outer, inner in zip(path, path[1:], strict=False))


def _is_arm(outer: ast.AST, inner: ast.AST) -> bool:
    return isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test


def _words(value: ast.expr) -> list[str]:
    """``["model", "up"]`` of ``self.model.up``, ``["up"]`` of ``net.up`` and of ``up``; ``[]`` of other expressions."""
    names = list[str]()
    while isinstance(value, ast.Attribute):
        names, value = [value.attr, *names], value.value
    if not isinstance(value, ast.Name):
        return []
    return names or ([] if value.id in ("self", "cls") else [value.id])


def _is_of(name: str, path: tuple[str, ...]) -> bool:
    return f".{'.'.join(path)}." in f".{name}."
