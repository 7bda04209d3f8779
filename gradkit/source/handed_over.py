"""What an optimizer is handed: the call that builds it, and what the names in that call stand for.

Read off the source, where nothing was seen: a name is followed to what it is given in its function, by its callers or,
for an attribute, anywhere in the user's files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.syntax import FUNCTIONS, Function, argument, call_name, function_of, pairs, parameters, statements


@dataclass(frozen=True)
class Scope:
    """Where names are looked up: a function, or the whole of a file outside of functions."""

    file: str
    around: tuple[ast.AST, ...]

    @property
    def function(self) -> Function | None:
        """The innermost function that it stands in."""
        inside = [node for node in self.around if isinstance(node, FUNCTIONS)]
        return inside[-1] if inside else None

    def body(self) -> ast.AST:
        """The function, or the whole file."""
        return self.function or locations.tree_of(self.file) or ast.Module([], [])


def built_at(built: Location, kind: str) -> Iterator[tuple[ast.Call, Scope]]:
    """The call that makes an optimizer, in the function that a line stands in, or outside of all functions.

    Args:
        built: the line, or a part of what is handed over there.
        kind: class name of the optimizer.
    """
    function = built.function.replace("<module>", "")
    calls = [
        (node, Scope(built.file, tuple(around)))
        for node, around in statements(built.file)
        if isinstance(node, ast.Call) and function_of(around) == function
    ]
    named = [(node, scope) for node, scope in calls if call_name(node) == kind]
    at = [(node, scope) for node, scope in named or calls if node.lineno <= built.line <= (node.end_lineno or 0)]
    yield from (at or named)[:1]


def given(node: ast.Name | ast.Attribute, scope: Scope, files: Sequence[str]) -> Iterator[tuple[ast.expr, Scope]]:
    """What a name of a function, or an attribute of anything, is given."""
    if isinstance(node, ast.Name):
        function = scope.function
        for statement in ast.walk(scope.body()):
            told = [(statement.target, statement.value)] if isinstance(statement, ast.AugAssign) else pairs(statement)
            yield from ((v, scope) for t, v in told if isinstance(t, ast.Name) and t.id == node.id)
        if function is not None and node.id in parameters(function):
            yield from _handed(function, node.id, files)
        return
    for file in files:
        for statement, around in statements(file):
            told = pairs(statement)
            where = Scope(file, tuple(around))
            yield from ((v, where) for t, v in told if isinstance(t, ast.Attribute) and t.attr == node.attr)


def _handed(function: Function, name: str, files: Sequence[str]) -> Iterator[tuple[ast.expr, Scope]]:
    """What the callers of a function give to one of its parameters."""
    if name in ("self", "cls"):
        return
    place = [one for one in parameters(function) if one not in ("self", "cls")].index(name)
    for file in files:
        for node, around in statements(file):
            told = (
                argument(node, name, place) if isinstance(node, ast.Call) and call_name(node) == function.name else None
            )
            if told is not None:
                yield told, Scope(file, tuple(around))


def words(owner: ast.expr, scope: Scope, files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names, attributes and keys by which a module is named, there or where a variable is given it.

    Returns:
        Each with the qualified name of the function whose variable it is; ``"."`` for attributes and keys.
    """
    for one in ast.walk(owner):
        if isinstance(one, ast.Attribute):
            yield ".", one.attr
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield from ((".", word) for word in one.value.split("."))
        elif isinstance(one, ast.Name):
            told = list(given(one, scope, files))
            if not told or scope.function is None or one.id not in parameters(scope.function):
                yield function_of(scope.around), one.id
            if not told:  # of the whole file, or taken apart from what is returned
                yield "", one.id
            for value, where in told:
                yield from _named(value, where)


def _named(value: ast.expr, scope: Scope) -> Iterator[tuple[str, str]]:
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        for one in ast.walk(value):
            if isinstance(one, ast.Attribute):
                yield ".", one.attr
            elif isinstance(one, ast.Name):
                yield function_of(scope.around), one.id
