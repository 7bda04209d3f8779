"""Whether the value of one line of a function goes on to another, by the names in its source."""

from __future__ import annotations

import ast
import functools
from types import CodeType

from gradkit import frames
from gradkit.traces import Point


@functools.lru_cache(maxsize=512)
def leads(code: CodeType, start: int, end: int) -> bool:
    """Whether what the statement at line ``start`` computes is among what the statement at line ``end`` uses.

    Names are followed through assignments, loops, and method calls such as ``history.append(value)``. Both lines belong
    to the function ``code``. Within one statement, lines cannot tell: False.
    """
    body = statements(code)
    first, last = _at(body, start), _at(body, end)
    if first is None or last is None or first is last:
        return False
    carrying = _written(first)
    for _ in range(len(body)):
        before = len(carrying)
        for statement in body:
            if _read(statement) & carrying:
                carrying |= _written(statement)
        if len(carrying) == before:
            break
    return bool(_read(last) & carrying)


def making(point: Point) -> int | None:
    """Of a call ``torch.autograd.grad(y, x)`` or ``y.backward()``, the last line before it that makes ``y``."""
    code, node = point[0], frames.node_at(point)
    if not isinstance(node, ast.Call):
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "backward" else None
    asked = owner or (node.args[0] if node.args else None)
    names = {x.id for x in ast.walk(asked) if isinstance(x, ast.Name)} if asked is not None else set()
    before = [s for s in statements(code) if s.lineno < frames.line_of(point) and _written(s) & names]
    return max((s.lineno for s in before), default=None)


def statements(code: CodeType) -> list[ast.stmt]:
    """The simple statements of a function, and the heads of its loops and conditions."""
    tree = frames.tree_at(code)
    lines = {line for *_, line in code.co_lines() if line}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree is not None else []
    return [node for node in found if node.lineno in lines or (node.end_lineno or 0) in lines]


def _at(body: list[ast.stmt], line: int) -> ast.stmt | None:
    """The innermost statement that holds a line."""
    holding = [node for node in body if node.lineno <= line <= (node.end_lineno or line)]
    return min(holding, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def _own(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that are its own, without the statements inside of it."""
    parts = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    return [node for part in parts for node in ast.walk(part)]


def _read(statement: ast.stmt) -> set[str]:
    names = {node.id for node in _own(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names.add(statement.target.id)
    return names | {node.attr for node in _own(statement) if isinstance(node, ast.Attribute)}


def _written(statement: ast.stmt) -> set[str]:
    """Names and attributes that a statement gives a value, or calls a method of."""
    names: set[str] = set()
    for node in _own(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= _base(node.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        names |= _base(call.func.value)
    return names


def _base(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    return {node.attr} if isinstance(node, ast.Attribute) else set()
