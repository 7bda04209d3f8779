"""Entries of a dictionary that is filled by name: under which key a line puts a value, and where one is picked out.

A step that returns ``parts["mel"]`` of several losses leaves the others aside: that is the line where they would be
added.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.core.trace import Point
from gradkit.source import addends, dataflow, locations, syntax


@dataclass(frozen=True)
class Entry:
    """What a line puts into a dictionary.

    Attributes:
        held: what the source calls the dictionary; ``"return"`` where it is returned as it is written out.
        key: under which key.
    """

    held: str
    key: str


def entry(point: Point) -> Entry | None:
    """The entry that an expression of the user's is the value of; None if it is that of none.

    Example:
        >>> entry((entry.__code__, 0)) is None
        True
    """
    node, line = locations.node_at(point), locations.line_of(point)
    around = [one for one in dataflow.statements(point[0]) if one.lineno <= line <= (one.end_lineno or line)]
    statement = min(around, key=lambda one: (one.end_lineno or line) - one.lineno, default=None)
    if statement is None:
        return None
    targets = [target for target, _ in syntax.pairs(statement)]
    target = targets[0] if len(targets) == 1 else None
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return Entry(ast.unparse(target.value), str(target.slice.value))
    key = addends.key_of(statement, node, line)
    if not key or not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)):
        return None
    return Entry("return" if isinstance(statement, ast.Return) else ast.unparse(target) if target else "", key)


def picked(files: Iterable[str], key: str, near: Collection[str]) -> Location | None:
    """The one line that picks an entry out, weighs it at most, and returns it, names it or goes backward of it.

    Args:
        files: the user's.
        key: of the entry.
        near: the qualified names of functions that ran: where several lines pick it, the one in these.

    Returns:
        None where there is no such line, or more than one.
    """
    found = list(_picking(files, key))
    found = found if len(found) == 1 else [(spot, name) for spot, name in found if name in near]
    return found[0][0] if len(found) == 1 else None


def _picking(files: Iterable[str], key: str) -> Iterator[tuple[Location, str]]:
    for file in files:
        for node, around in syntax.statements(file):
            if isinstance(node, ast.stmt) and any(_is_entry(one, key) for one in _handed_on(node)):
                name = syntax.function_of(around)
                yield locations.place(file, node, name), name


def _handed_on(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement returns, alone or first of several, gives a variable, or goes backward of."""
    if isinstance(statement, ast.Return) and statement.value is not None:
        yield statement.value.elts[0] if isinstance(statement.value, ast.Tuple) else statement.value
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        yield from (value for target, value in syntax.pairs(statement) if isinstance(target, ast.Name))
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
            yield call.args[0] if call.args else call.func.value


def _is_entry(value: ast.expr, key: str) -> bool:
    """Whether an expression is an entry, weighed at most.

    Example:
        >>> texts = ["parts['mel']", "0.5 * parts['mel'] / n", "parts['mel'].item()", "parts['kl']"]
        >>> [_is_entry(ast.parse(text, mode="eval").body, "mel") for text in texts]
        [True, True, False, False]
    """
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        return _is_entry(value.left, key) or (isinstance(value.op, ast.Mult) and _is_entry(value.right, key))
    taken = value.slice if isinstance(value, ast.Subscript) else None
    return isinstance(taken, ast.Constant) and str(taken.value) == key
