"""Custom autograd Functions as the source has them: their methods, and the names that those should have."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_ALSO = {"backward": ("backward", "vjp"), "forward": ("forward",)}


def method(files: Iterable[str], owner: str, name: str) -> Location | None:
    """The line of a method of a class; None if no file has it.

    Example:
        >>> method([], "Clip", "forward") is None
        True
    """
    for file, cls, around in _classes(files):
        for node in cls.body if cls.name == owner else ():
            if isinstance(node, syntax.FUNCTIONS) and node.name == name:
                return locations.head(file, node, syntax.function_of([*around, cls]))
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
    return any(ast.unparse(base).rpartition(".")[2] in ("Function", "InplaceFunction") for base in cls.bases)
