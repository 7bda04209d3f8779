"""Generators of parameters that an optimizer was handed once they had been used up: the line that makes one.

``filter(...)``, ``model.parameters()`` and ``(p for p in ...)`` can be gone through once. Who stores one and hands it
over twice gives the second taker an empty group, about which torch says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.handed_over import Scope, built_at, given
from gradkit.source.syntax import FUNCTIONS, call_name, function_of, statements

_MAKERS = {"filter", "map", "zip", "chain", "iter", "from_iterable", "islice"}
_OF_MODULES = {"parameters", "named_parameters", "children", "modules"}
_DEEPEST = 5


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
    for call, scope in built_at(built, kind):
        for handed in [*call.args, *(k.value for k in call.keywords)]:
            found.update({(spot.file, spot.line): spot for spot in _kept(handed, scope, files, 0)})
    return next(iter(found.values())) if len(found) == 1 else None


def _kept(value: ast.AST, scope: Scope, files: Sequence[str], depth: int) -> Iterator[Location]:
    """The lines that make the generators which the names in an expression stand for."""
    if depth >= _DEEPEST:
        return
    if isinstance(value, (ast.Name, ast.Attribute)):
        for told, where in given(value, scope, files):
            yield from _made(told, where, files, depth)
        return
    for child in ast.iter_child_nodes(value):
        yield from _kept(child, scope, files, depth)


def _made(value: ast.expr, scope: Scope, files: Sequence[str], depth: int) -> Iterator[Location]:
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


def _returned(call: ast.Call, scope: Scope, files: Sequence[str]) -> Iterator[Location]:
    """The generator that the user's function of that name returns; the call itself where the function yields."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, FUNCTIONS) and node.name == call_name(call):
                inner = function_of([*around, node])
                if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(node)):
                    yield locations.place(scope.file, call, function_of(scope.around))
                ends = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
                yield from (locations.place(file, one, inner) for one in ends if _is_generator(one))
