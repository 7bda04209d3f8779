"""Generators of parameters that an optimizer was handed once they had been used up: the line that makes one.

``filter(...)``, ``model.parameters()`` and ``(p for p in ...)`` can be gone through once. Who stores one and hands it
over twice gives the second taker an empty group, about which torch says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import helpers, syntax
from gradkit.source.helpers import Helpers, Part

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
    search = _Search([built.file, *files])
    given = [Part(built.file, one) for call in _built_at(built, kind) for one in syntax.arguments(call)]
    found = {(spot.file, spot.line): spot for one in given for spot in search.kept(one)}
    return next(iter(found.values())) if len(found) == 1 else None


def _built_at(built: Location, kind: str) -> list[ast.Call]:
    """The call that makes the optimizer, in the function that a line stands in, or outside of all."""
    function = built.function.replace("<module>", "")
    calls = [
        node
        for node, around in syntax.statements(built.file)
        if isinstance(node, ast.Call) and syntax.function_of(around) == function
    ]
    named = [one for one in calls if syntax.call_name(one) == kind]
    at = [one for one in named or calls if one.lineno <= built.line <= (one.end_lineno or 0)]
    return (at or named)[:1]


class _Search:
    """Follows the names in what an optimizer is handed to what they are given."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._helpers = Helpers(self._files)

    def kept(self, value: Part, depth: int = 0) -> Iterator[Location]:
        """The lines that make the generators which the names in an expression stand for."""
        if depth >= _DEEPEST:
            return
        if isinstance(value.node, ast.Name):
            for given in self._helpers.given(value, adding=True):
                yield from self._made(given, depth)
        elif isinstance(value.node, ast.Attribute):
            for given in self._helpers.set_to(value.node.attr):
                yield from self._made(given, depth)
        else:
            for child in ast.iter_child_nodes(value.node):
                yield from self.kept(Part(value.file, child), depth)

    def _made(self, value: Part, depth: int) -> Iterator[Location]:
        """The line that makes a generator that a name is given, there or in the function that it calls."""
        if _is_generator(value.node):
            yield value.place()
        elif isinstance(value.node, ast.Call) and not isinstance(value.node.func, ast.Call):
            yield from self._returned(value, depth)
        elif isinstance(value.node, (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Dict)):
            yield from self.kept(value, depth + 1)

    def _returned(self, call: Part, depth: int) -> Iterator[Location]:
        """The generator that a function returns; the call itself where the function yields."""
        name = syntax.call_name(call.node)
        called = self._helpers.callees(Part(call.file, call.node.func)) or helpers.named(name, self._files)
        for function in called if depth < _DEEPEST else []:
            if _yields(function.node):
                yield call.place()
            for end in helpers.ends(function):
                yield from self._made(end, depth + 1)


def _yields(function: ast.AST) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(function))


def _is_generator(value: ast.expr) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    name = syntax.call_name(value) if isinstance(value, ast.Call) else ""
    return name in _MAKERS or (name in _OF_MODULES and isinstance(value.func, ast.Attribute))  # type: ignore[attr-defined]
