"""By which attributes and functions an expression of the user's is computed: the words of its source, followed back."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from gradkit import frames

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASIDE = frozenset("device dtype shape size config training grad requires_grad".split())


class Reader:
    """Follows names and calls backwards from an expression, each of them once.

    Args:
        files: the user's, to look for functions.

    Example:
        >>> value = ast.parse("net.encoder(x).to(net.device)").body[0].value
        >>> sorted(Reader(()).words(value, [], "?"))
        ['encoder', 'to']
    """

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._seen: set[int] = set()

    def words(self, value: ast.AST, around: Sequence[ast.AST], file: str) -> set[str]:
        """The attributes that an expression or a function is computed by, the functions and keys that are called.

        Args:
            around: the statements that it stands in, outermost first.
            file: where it stands.
        """
        if id(value) in self._seen:
            return set()
        self._seen.add(id(value))
        found: set[str] = set()
        scope = next((node for node in reversed(around) if isinstance(node, FUNCTIONS)), frames.tree_of(file))
        todo = [value]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Attribute):
                if node.attr in _ASIDE:
                    continue
                found.add(node.attr)
            elif isinstance(node, ast.Call):
                found |= _keys(node.func)
                name = ast.unparse(node.func).rpartition(".")[2]
                for inner, function in _called(name, self._files):
                    found |= self.words(function, (function,), inner)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and scope is not None:
                for statement in ast.walk(scope):
                    if isinstance(statement, ast.Assign) and node.id in _given(statement):
                        found |= self.words(statement.value, around, file)
            todo.extend(ast.iter_child_nodes(node))
        return found


def _given(statement: ast.Assign) -> set[str]:
    return {x.id for target in statement.targets for x in ast.walk(target) if isinstance(x, ast.Name)}


def _keys(called: ast.expr) -> set[str]:
    if isinstance(called, ast.Name):
        return {called.id}
    inside = ast.walk(called.slice) if isinstance(called, ast.Subscript) else ()
    return {str(x.value) for x in inside if isinstance(x, ast.Constant)}


def _called(name: str, files: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for file in files:
        tree = frames.tree_of(file)
        yield from ((file, node) for node in (named(tree).get(name, ()) if tree is not None else ()))


@functools.lru_cache(maxsize=64)
def named(tree: ast.Module) -> dict[str, list[Any]]:
    """The functions of a file, by name."""
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            found.setdefault(node.name, []).append(node)
    return found
