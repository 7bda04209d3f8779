"""Which functions of the user's ran, and from where they were called."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import locations
from gradkit.source.syntax import Function, function_at, same


class FunctionsRan:
    """Which functions of the user's ran, and from where they were called.

    Args:
        chains: the user's frames at moments of the run, innermost first; empty where a library called torch by itself.

    Example:
        >>> node = ast.parse("def step(): ...").body[0]
        >>> FunctionsRan([])("train.py", node), FunctionsRan([()]).callers("train.py", node)
        (False, [])
    """

    def __init__(self, chains: Iterable[Chain]) -> None:
        self._callers: dict[tuple[str, int, str], dict[tuple[str, Point] | None, Point | None]] = {}
        # by identity: a code object is slow to hash
        for chain in {tuple((id(code), at) for code, at in one): one for one in chains}.values():
            for (code, _), outer in zip(chain, (*chain, None)[1:], strict=True):
                called = self._callers.setdefault((code.co_filename, code.co_firstlineno, code.co_name), {})
                called[(outer[0].co_filename, outer) if outer is not None else None] = outer

    def __call__(self, file: str, function: Function) -> bool:
        """Whether a function of a file ran."""
        return bool(self._found(file, function))

    def around(self, place: Location) -> bool:
        """Whether the function that a line stands in ran; which of its lines did is not known."""
        function = function_at(locations.tree_of(place.file), place.line)
        return function is not None and self(place.file, function)

    def callers(self, file: str, function: Function) -> list[Point | None]:
        """From where it was called; None stands for outside of the user's code."""
        return list(self._found(file, function).values())

    def called(self, point: Point, call: ast.Call) -> tuple[str, int, str] | None:
        """File, first line and name of the one function that ran for a call in the function that is at ``point``."""
        found = {
            key
            for key, callers in self._callers.items()
            for outer in callers.values()
            if outer is not None and outer[0] is point[0] and same(locations.node_at(outer), call)
        }
        return found.pop() if len(found) == 1 else None

    def _found(self, file: str, function: Function) -> dict[tuple[str, Point] | None, Point | None]:
        lines = [function.lineno, *(mark.lineno for mark in function.decorator_list)]
        keys = ((file, line, function.name) for line in lines)
        return next((self._callers[key] for key in keys if key in self._callers), {})
