"""Which functions of the user's ran and from where they were called, and which others can have run.

A function can have run if code at the top of a module, or the step's own, leads to it by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import locations
from gradkit.source.syntax import FUNCTIONS, Function, same

Place = tuple[str, str]


def reached_from(files: Iterable[str], near: Iterable[str]) -> set[Place]:
    """File and qualified name of every function that can have run.

    A name is taken for every function that is called so, which errs on the side of too many.

    Args:
        near: qualified names of functions that did run, such as the step's.

    Example:
        >>> reached_from([], ["train.step"])
        set()
    """
    known: dict[str, list[tuple[Place, ast.AST]]] = {}
    todo: list[ast.AST] = []
    ran = {name for one in near for name in _around(one)}
    found: set[Place] = set()
    for file in dict.fromkeys(files):
        for place, node in _functions(locations.tree_of(file), file, ()):
            if isinstance(node, FUNCTIONS):
                known.setdefault(place[1].rpartition(".")[2], []).append((place, node))
                if place[1] in ran:
                    found.add(place)
                    todo.append(node)
            else:
                todo.append(node)
    while todo:
        for name in _names(todo.pop()):
            for place, node in known.pop(name, ()):
                if place not in found:
                    found.add(place)
                    todo.append(node)
    return found


def _around(name: str) -> list[str]:
    """A qualified name and those of the functions around it."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _functions(node: ast.AST | None, file: str, outer: tuple[str, ...]) -> list[tuple[Place, ast.AST]]:
    """Every function below a node, and the statements of module and class bodies, which run at once."""
    found: list[tuple[Place, ast.AST]] = []
    for child in getattr(node, "body", ()):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            inner = (*outer, child.name)
            if not isinstance(child, ast.ClassDef):
                found.append(((file, ".".join(inner)), child))
            found += _functions(child, file, inner)
        elif not isinstance(node, FUNCTIONS):
            found.append(((file, ".".join(outer)), child))
    return found


def _names(node: ast.AST) -> set[str]:
    """What a piece of code speaks of: a class stands for its ``__init__`` and ``__call__``, too."""
    found = {"__init__", "__call__", "forward"}
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            found.add(child.id)
        elif isinstance(child, ast.Attribute):
            found.add(child.attr)
    return found


def can_have_run(places: Sequence[Place], files: Iterable[str], near: Iterable[str]) -> list[int]:
    """Which of several places, each a file and the function around it (``""``: none), can have run; all if none can."""
    every = list(range(len(places)))
    if len(places) < 2:
        return every
    able = reached_from(files, near)
    return [i for i in every if not places[i][1] or places[i] in able] or every


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
        nodes = (node for node in ast.walk(locations.tree_of(place.file) or ast.Module([], [])))
        inside = [n for n in nodes if isinstance(n, Function) and n.lineno <= place.line <= (n.end_lineno or n.lineno)]
        return bool(inside) and self(place.file, max(inside, key=lambda n: n.lineno))

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
