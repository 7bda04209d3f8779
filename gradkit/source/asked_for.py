"""What a program calls only where its batch holds something: the conditions that ask for a key, and the calls there.

Read off the source alone; which way a run has taken is for others to say.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gradkit.source import locations
from gradkit.source.conditions import asks, conditions_around
from gradkit.source.syntax import FUNCTIONS, assigned, call_name, looked_up, paths

_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp)
_PASSES_ON = ("checkpoint",)  # calls what it is handed
_DEEPEST = 2


@dataclass(frozen=True)
class AskedFor:
    """A call of an attribute, as ``self.eye(...)``, that stands under a condition.

    Attributes:
        key: what that asks for: the key of a mapping, or the name of a variable; ``""`` if it asks something else.
        attribute: what is called then.
        line: where.
        condition: the line of the condition; of several, of the innermost that asks for it.
    """

    key: str
    attribute: str
    line: int
    condition: int


def asked_for(file: str) -> tuple[AskedFor, ...]:
    """The calls of a file that stand under a condition: of each attribute by what *all* its calls ask for.

    An attribute that is also called without any condition is left out; calls in ``__init__`` do not count.

    Example:
        >>> asked_for("no such file.py")
        ()
    """
    tree = locations.tree_of(file)
    return _of_tree(tree) if tree is not None else ()


@functools.lru_cache(64)
def _of_tree(tree: ast.Module) -> tuple[AskedFor, ...]:
    found = dict[str, list[list[AskedFor]]]()
    for path in paths(tree):
        if (attribute := _called(path)) and not _sets_up(path):
            found.setdefault(attribute, []).append(_on_the_way(tree, path, attribute))
    uses = {name: _common(ways) for name, ways in found.items()}
    return tuple(one for name, ways in uses.items() for one in (*ways, *_within(tree, name, ways, found)))


def _called(path: list[ast.AST]) -> str:
    """The attribute that is called at the end of a path, also by what it is handed to; ``""`` if none is."""
    node, outer = path[-1], path[-2] if len(path) > 1 else None
    if not isinstance(node, ast.Attribute) or not isinstance(outer, ast.Call):
        return ""
    return node.attr if outer.func is node or call_name(outer) in _PASSES_ON else ""


def _sets_up(path: list[ast.AST]) -> bool:
    return any(isinstance(node, FUNCTIONS) and node.name == "__init__" for node in path)


def _on_the_way(tree: Any, path: list[ast.AST], attribute: str) -> list[AskedFor]:
    """What is asked for on the way to a call, within its function."""
    at = max((n for n, node in enumerate(path) if isinstance(node, FUNCTIONS)), default=0)
    body: Any = path[at] if isinstance(path[at], FUNCTIONS) else tree
    line = path[-1].lineno  # type: ignore[attr-defined]
    met = [
        (test, wanted)
        for outer, inner in itertools.pairwise(path[at:])
        for test, wanted in conditions_around(outer, inner)
        if isinstance(outer, _BRANCHES) or not wanted
    ]
    keyed = {key: AskedFor(key, attribute, line, test.lineno) for test, ok in met for key in _keys(body, test, ok)}
    return list(keyed.values()) or [AskedFor("", attribute, line, test.lineno) for test, _ in met[-1:]]


def _keys(body: Any, test: ast.expr, wanted: bool) -> Iterator[str]:
    for asked in asks(test, wanted):
        if isinstance(asked, tuple):
            yield asked[1]
        elif isinstance(asked, ast.Name):
            yield looked_up(assigned(body, asked.id, test.lineno))[1] or asked.id
        elif asked is not None and (key := looked_up(asked)[1]):
            yield key


def _common(ways: list[list[AskedFor]]) -> list[AskedFor]:
    """The calls, by each key that all of them ask for; by their conditions alone, where they ask for nothing alike."""
    keys = set.intersection(*({one.key for one in way} for way in ways))
    if not keys and all(ways):
        return [replace(way[-1], key="") for way in ways]
    return [one for key in sorted(keys) for way in ways for one in way if one.key == key]


def _within(
    tree: Any, name: str, ways: list[AskedFor], found: dict[str, list[list[AskedFor]]], depth: int = 0
) -> Iterator[AskedFor]:
    """What a method that is called so calls itself, where nobody else calls that."""
    methods = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name == name] if ways else []
    for path in (path for method in methods[:1] for path in paths(method)):
        attribute = _called(path)
        if attribute and attribute != name and len(found.get(attribute, ())) == 1:
            line = path[-1].lineno  # type: ignore[attr-defined]
            mine = [AskedFor(one.key, attribute, line, one.condition) for one in ways]
            yield from mine
            yield from _within(tree, attribute, mine, found, depth + 1) if depth < _DEEPEST else ()
