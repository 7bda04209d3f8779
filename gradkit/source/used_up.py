"""Generators of parameters that an optimizer was handed once they had been used up: the line that makes one.

``filter(...)``, ``model.parameters()`` and ``(p for p in ...)`` can be gone through once. Who stores one and hands it
over twice gives the second taker an empty group, about which torch says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.syntax import FUNCTIONS, Function, argument, call_name, function_of, pairs, parameters, statements

_MAKERS = {"filter", "map", "zip", "chain", "iter", "from_iterable", "islice"}
_OF_MODULES = {"parameters", "named_parameters", "children", "modules"}
_DEEPEST = 5


@dataclass(frozen=True)
class _Scope:
    """Where names are looked up: a function, or the whole of a file outside of functions."""

    file: str
    around: tuple[ast.AST, ...]

    @property
    def function(self) -> Function | None:
        inside = [node for node in self.around if isinstance(node, FUNCTIONS)]
        return inside[-1] if inside else None

    def body(self) -> ast.AST:
        return self.function or locations.tree_of(self.file) or ast.Module([], [])


def used_up(built: Location, kind: str, files: Sequence[str]) -> Location | None:
    """The line that makes a generator which is kept and handed to the optimizer that is built at a line.

    Args:
        built: the line, or a part of what is handed over there.
        kind: class name of the optimizer.
        files: the user's.

    Returns:
        None where there is no such line, or more than one.
    """
    files = tuple(dict.fromkeys([built.file, *files]))
    found: dict[tuple[str, int], Location] = {}
    for call, scope in _built_at(built, kind):
        for given in [*call.args, *(k.value for k in call.keywords)]:
            found.update({(spot.file, spot.line): spot for spot in _kept(given, scope, files, 0)})
    return next(iter(found.values())) if len(found) == 1 else None


def _built_at(built: Location, kind: str) -> Iterator[tuple[ast.Call, _Scope]]:
    """The calls that make the optimizer, in the function that a line stands in, or outside of all."""
    function = built.function.replace("<module>", "")
    calls = [
        (node, _Scope(built.file, tuple(around)))
        for node, around in statements(built.file)
        if isinstance(node, ast.Call) and function_of(around) == function
    ]
    named = [(node, scope) for node, scope in calls if call_name(node) == kind]
    at = [(node, scope) for node, scope in named or calls if node.lineno <= built.line <= (node.end_lineno or 0)]
    yield from (at or named)[:1]


def _kept(value: ast.AST, scope: _Scope, files: Sequence[str], depth: int) -> Iterator[Location]:
    """The lines that make the generators which the names in an expression stand for."""
    if depth >= _DEEPEST:
        return
    if isinstance(value, (ast.Name, ast.Attribute)):
        for given, where in _given(value, scope, files):
            yield from _made(given, where, files, depth)
        return
    for child in ast.iter_child_nodes(value):
        yield from _kept(child, scope, files, depth)


def _given(node: ast.Name | ast.Attribute, scope: _Scope, files: Sequence[str]) -> Iterator[tuple[ast.expr, _Scope]]:
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
            where = _Scope(file, tuple(around))
            yield from ((v, where) for t, v in told if isinstance(t, ast.Attribute) and t.attr == node.attr)


def _handed(function: Function, name: str, files: Sequence[str]) -> Iterator[tuple[ast.expr, _Scope]]:
    """What the callers of a function give to one of its parameters."""
    place = [one for one in parameters(function) if one not in ("self", "cls")].index(name)
    for file in files:
        for node, around in statements(file):
            told = (
                argument(node, name, place) if isinstance(node, ast.Call) and call_name(node) == function.name else None
            )
            if told is not None:
                yield told, _Scope(file, tuple(around))


def _made(value: ast.expr, scope: _Scope, files: Sequence[str], depth: int) -> Iterator[Location]:
    """The line that makes a generator that a name is given, there or in the function that it calls."""
    if _is_generator(value):
        yield locations.place(scope.file, value, function_of(scope.around))
    elif isinstance(value, ast.Call) and not isinstance(value.func, ast.Call):
        yield from _returned(value, scope, files)
    elif isinstance(value, (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Dict)):
        yield from _kept(value, scope, files, depth + 1)


def _is_generator(value: ast.expr) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    name = call_name(value) if isinstance(value, ast.Call) else ""
    return name in _MAKERS or (name in _OF_MODULES and isinstance(value.func, ast.Attribute))  # type: ignore[attr-defined]


def _returned(call: ast.Call, scope: _Scope, files: Sequence[str]) -> Iterator[Location]:
    """The generator that the user's function of that name returns; the call itself where the function yields."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, FUNCTIONS) and node.name == call_name(call):
                inner = function_of([*around, node])
                if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(node)):
                    yield locations.place(scope.file, call, function_of(scope.around))
                ends = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
                yield from (locations.place(file, one, inner) for one in ends if _is_generator(one))
