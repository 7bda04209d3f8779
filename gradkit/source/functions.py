"""Custom autograd Functions as the source has them: their methods, and the names that those should have."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import locations, returns, syntax

_ALSO = {"backward": ("backward", "vjp"), "forward": ("forward",)}


def method(files: Iterable[str], owner: str, name: str) -> Location | None:
    """The line of a method of a class; None if no file has it.

    Example:
        >>> method([], "Clip", "forward") is None
        True
    """
    found = _method(list(_classes(files)), owner, name)
    return locations.head(*found) if found is not None else None


def returning(files: Iterable[str], owner: str, count: int) -> Location | None:
    """Where the backward of a custom Function returns so many gradients, and torch wants another number of them.

    Args:
        owner: the name of its class; a base may have the backward.
        count: how many it returned; 1 for one that returned nothing.

    Returns:
        The ``return`` of that many; where none is, its only ``return``, or the line of its ``def``. None if no file has
        it.
    """
    found = _method(list(_classes(files)), owner, "backward")
    if found is None:
        return None
    file, method, function = found
    ends = sorted(returns.own_returns(method), key=lambda one: one.lineno)
    fits = [one for one in ends if _count(one.value) == count] or ends
    return locations.place(file, fits[0], function) if fits else locations.head(file, method, function)


def _count(value: ast.expr | None) -> int:
    """How many gradients an expression is, as it is written."""
    return len(value.elts) if isinstance(value, ast.Tuple) else 1


def _method(
    classes: Sequence[tuple[str, ast.ClassDef, list[ast.AST]]], owner: str, name: str
) -> tuple[str, syntax.Function, str] | None:
    """The file, the node and the qualified name of the class of a method that a class has or takes from a base."""
    todo, seen = [owner], set[str]()
    while todo:
        wanted = todo.pop(0)
        seen.add(wanted)
        for file, cls, around in classes:
            if cls.name != wanted:
                continue
            for node in cls.body:
                if isinstance(node, syntax.FUNCTIONS) and node.name == name:
                    return file, node, syntax.function_of([*around, cls])
            todo += [base for base in syntax.bases(cls) if base not in seen]
    return None


def lacking(files: Iterable[str], name: str) -> list[tuple[str, Location]]:
    """The custom Functions that have no method of this name, each with the line to change.

    That is the method whose name comes nearest to it, if one does; else the class.

    Args:
        name: ``"backward"`` or ``"forward"``.

    Example:
        >>> import linecache
        >>> text = ("class Clip(torch.autograd.Function):\\n    def forward(ctx, x): return x\\n"
        ...         "    def backwards(ctx, grad): return grad\\n")
        >>> linecache.cache["<lacking>"] = len(text), None, text.splitlines(True), "<lacking>"
        >>> [(owner, spot.line) for owner, spot in lacking(["<lacking>"], "backward")]
        [('Clip', 3)]
    """
    found = []
    for file, cls, around in _classes(files):
        methods = {node.name: node for node in cls.body if isinstance(node, syntax.FUNCTIONS)}
        if methods.keys() & set(_ALSO[name]) or not _is_function(cls):
            continue
        near = difflib.get_close_matches(name, methods.keys() - {"forward", "backward"}, n=1)
        spot = methods[near[0]] if near else cls
        found.append((cls.name, locations.head(file, spot, syntax.function_of([*around, cls]))))
    return found


def _classes(files: Iterable[str]) -> Iterator[tuple[str, ast.ClassDef, list[ast.AST]]]:
    for file in files:
        for node, around in syntax.statements(file):
            if isinstance(node, ast.ClassDef):
                yield file, node, around


def _is_function(cls: ast.ClassDef) -> bool:
    """Whether it derives from ``torch.autograd.Function`` itself, by the words of the source."""
    return not {"Function", "InplaceFunction"}.isdisjoint(syntax.bases(cls))
