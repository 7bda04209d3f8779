"""Which functions of the user's files can have run: what module-level code, or the step's own, leads to by name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from gradkit import frames
from gradkit.words import FUNCTIONS

Place = tuple[str, str]


def reached(files: Iterable[str], near: Iterable[str]) -> set[Place]:
    """File and qualified name of every function that can have run.

    A name is taken for every function that is called so, which errs on the side of too many.

    Args:
        near: qualified names of functions that did run, such as the step's.

    Example:
        >>> reached([], ["train.step"])
        set()
    """
    known: dict[str, list[tuple[Place, ast.AST]]] = {}
    todo: list[ast.AST] = []
    ran = {name for one in near for name in _around(one)}
    found: set[Place] = set()
    for file in dict.fromkeys(files):
        for place, node in _functions(frames.tree_of(file), file, ()):
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


def likely(places: Sequence[Place], files: Iterable[str], near: Iterable[str]) -> list[int]:
    """Which of several places, each a file and the function around it (``""``: none), can have run; all if none can."""
    every = list(range(len(places)))
    if len(places) < 2:
        return every
    able = reached(files, near)
    return [i for i in every if not places[i][1] or places[i] in able] or every
