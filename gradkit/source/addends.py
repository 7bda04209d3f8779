"""What a term of a loss is called where it is made: the variable, the key of a dictionary, else the expression.

A report lists the terms by these names, as the program's own log would.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, locations, syntax

_LONGEST = 48


def name_of(chain: Chain, added: Chain = ()) -> str:
    """What the innermost line of a chain calls the value that it makes.

    Returns:
        ``""`` if its source is not known.

    Args:
        chain: the user's frames, innermost first.
        added: those of the call that adds it: the variable that the same statement fills holds the sum, and not this.

    Example:
        >>> name_of(())
        ''
    """
    if not chain:
        return ""
    node, line = locations.node_at(chain[0]), locations.line_of(chain[0])
    statement = _statement(chain[0])
    of_sum = bool(added) and added[0][0] is chain[0][0] and _statement(added[0]) is statement
    named = "" if of_sum else key_of(statement, node, line) or _target(statement)
    if named:
        return named
    text = ast.unparse(node) if node is not None else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _statement(point: Point) -> ast.stmt | None:
    line = locations.line_of(point)
    holding = [one for one in dataflow.statements(point[0]) if one.lineno <= line <= (one.end_lineno or line)]
    return min(holding, key=lambda one: (one.end_lineno or line) - one.lineno, default=None)


def key_of(statement: ast.stmt | None, node: ast.AST | None, line: int) -> str:
    """The key under which a dictionary that is written out holds a value; ``""`` if none does.

    Args:
        statement: the one around the value.
        node: the expression that makes the value, or None if only its line is known.
        line: its line.

    Example:
        >>> statement = ast.parse("parts = {'mel': f(x), 'kl': g(x)}").body[0]
        >>> key_of(statement, statement.value.values[1], 1)
        'kl'
    """
    for key, value in (pair for one in (ast.walk(statement) if statement is not None else ()) for pair in _pairs(one)):
        inside = any(syntax.same(part, node) for part in ast.walk(value)) if node is not None else value.lineno == line
        if inside:
            return key
    return ""


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The keys of a dictionary that is written out, by braces or by ``dict(key=value)``, with their values."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from ((str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        yield from ((one.arg, one.value) for one in node.keywords if one.arg is not None)


def _target(statement: ast.stmt | None) -> str:
    """The one variable, attribute or item that an assignment gives its value."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
