"""A dictionary of losses: under which key a value is put, and whether anything but a sum may ever take it out again.

An entry that is logged, handed on or taken by a name that a setting holds may be meant as it is. One whose key stands
nowhere else in the source, in a dictionary that is read by its keys alone, is computed for nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType

from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, entries, frames, locations, syntax

RETURNED = "return"
_BY_KEY = frozenset("get pop setdefault update keys __getitem__ __contains__ __setitem__".split())
_ALL = frozenset("items values".split())


@dataclass(frozen=True)
class Put:
    """Where a value is put into a dictionary.

    Attributes:
        code: of the function that does.
        held: what the source calls the dictionary there; ``"return"`` where it is returned as it is written out.
        key: under which key.
        at: place of the function's frame in the chain of the call that made the value.
    """

    code: CodeType
    held: str
    key: str
    at: int


def put(chain: Chain) -> Put | None:
    """Where the value that a call made is put into a dictionary, at once or by way of a variable; None if it is not.

    Args:
        chain: the user's frames of the call, innermost first.

    Example:
        >>> put(()) is None
        True
    """
    for at, point in enumerate(chain):
        one = entries.entry(point) or _by_variable(point)
        if one is not None and one.held:
            return Put(point[0], one.held, one.key, at)
        if not isinstance(dataflow.statement_at(point[0], locations.line_of(point)), ast.Return):
            return None
    return None


def _by_variable(point: Point) -> entries.Entry | None:
    """``kl = f(x)`` where the function says ``{"kl": kl}``, or ``parts["kl"] = kl``, of a variable with one value."""
    statement = dataflow.statement_at(point[0], locations.line_of(point))
    name = _given(statement, point)[0] if statement is not None else ""
    every = dataflow.statements(point[0]) if name else []
    stores = [one for one in every if any(_is(target, name) for target, _ in syntax.pairs(one))]
    found = [one for statement in every for one in _entries(statement, name)]
    return found[0] if len(stores) == len(found) == 1 else None


def _given(statement: ast.stmt, point: Point) -> tuple[str, ast.expr | None]:
    """The one variable that a statement gives what is computed at a point, or what is made of that; and its value."""
    node, pairs = locations.node_at(point), syntax.pairs(statement)
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if any(syntax.same(node, one) for one in ast.walk(pair[1]))]
    target, value = pairs[0] if len(pairs) == 1 else (None, None)
    return (target.id, value) if isinstance(target, ast.Name) else ("", None)


def _entries(statement: ast.stmt, name: str) -> Iterator[entries.Entry]:
    if isinstance(statement, ast.Return):
        yield from (entries.Entry(RETURNED, key) for key, value in _written_out(statement) if _is(value, name))
    for target, value in syntax.pairs(statement):
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and _is(value, name):
            yield entries.Entry(ast.unparse(target.value), str(target.slice.value))
        elif isinstance(target, ast.Name) and isinstance(value, (ast.Dict, ast.Call)):
            yield from (entries.Entry(target.id, key) for key, one in _written_out(value) if _is(one, name))


def _written_out(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for one in ast.walk(node):
        if isinstance(one, ast.Dict):
            pairs = zip(one.keys, one.values, strict=True)
            yield from ((str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant))
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "dict":
            yield from ((word.arg, word.value) for word in one.keywords if word.arg is not None)


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_closed(chain: Chain, one: Put) -> bool:
    """Whether a dictionary is only ever read by single keys, in the function that fills it, or that it is returned to.

    A variable of a notebook's cell may be read by a cell that is run later.
    """
    held, at = one.held, one.at
    while held == RETURNED:
        at += 1
        statement = dataflow.statement_at(chain[at][0], locations.line_of(chain[at])) if at < len(chain) else None
        name, value = _given(statement, chain[at]) if statement is not None else ("", None)
        if name and isinstance(value, ast.Call):
            held = name
        elif not (isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call)):
            return False
    code = chain[at][0]
    if not held.isidentifier() or (code.co_name == "<module>" and frames.is_cell(code.co_filename)):
        return False
    return all(map(_is_by_key, _reads(code, held)))


def _reads(code: CodeType, name: str) -> Iterator[list[ast.AST]]:
    """The ways from a function, or from a module with all of its functions, to where a variable is read."""
    tree = locations.tree_of(code.co_filename)
    inner = syntax.function_at(tree, code.co_firstlineno) if code.co_name != "<module>" else None
    for path in syntax.paths(inner or tree) if tree is not None else ():
        node = path[-1]
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield path


def _is_by_key(path: list[ast.AST]) -> bool:
    outer = path[-2] if len(path) > 1 else None
    if isinstance(outer, ast.Attribute):
        return outer.attr in _BY_KEY
    inside = isinstance(outer, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in outer.ops)
    return inside or (isinstance(outer, ast.Subscript) and outer.value is path[-1])


def named(files: Iterable[str], key: str) -> int:
    """How often a key stands in the source other than where a value is put under it; a number there is a weight."""
    found = 0
    for file in files:
        nodes = syntax.nodes(file)
        apart = {id(one) for node in nodes for one in _keys_of_stores(node)}
        found += sum(isinstance(n, ast.Constant) and n.value == key and id(n) not in apart for n in nodes)
    return found


def _keys_of_stores(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from (key for key, value in pairs if key is not None and not isinstance(value, ast.Constant))
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield node.slice


def goes_through(chain: Chain) -> bool:
    """Whether one of some functions goes through all entries of any dictionary.

    Example:
        >>> goes_through(())
        False
    """
    trees = [syntax.function_at(locations.tree_of(code.co_filename), code.co_firstlineno) for code, _ in chain]
    nodes = (node for tree in trees if tree is not None for node in ast.walk(tree))
    return any(isinstance(node, ast.Attribute) and node.attr in _ALL for node in nodes)
