"""Parameters that a loop gives another value by its own variable: ``for p, w in zip(model.parameters(), fast): p = w``.

The variable stands for something else then, and the model has what it had. Nothing reads the variable before the next
turn gives it the next parameter, so that the line does nothing at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations, syntax
from gradkit.source.callgraph import FunctionsRan
from gradkit.source.syntax import FUNCTIONS

_GIVING = ("parameters", "named_parameters")


@dataclass(frozen=True)
class Idle:
    """An assignment that does nothing.

    Attributes:
        location: where it stands.
        name: the variable of the loop.
    """

    location: Location
    name: str


def idle_assignment(files: Iterable[str], ran: FunctionsRan) -> Idle | None:
    """The assignment to the variable of a loop over parameters which nothing reads; None if there are several, or none.

    Only functions count that were seen to run, or that one of these calls by their names.

    Example:
        >>> idle_assignment((), FunctionsRan([])) is None
        True
    """
    functions = [
        (file, node, syntax.function_of([*around, node]))
        for file in files for node, around in syntax.statements(file) if isinstance(node, FUNCTIONS)
    ]  # fmt: skip
    seen = [node for file, node, _ in functions if ran(file, node)]
    called = {syntax.call_name(x) for node in seen for x in ast.walk(node) if isinstance(x, ast.Call)}
    called -= {node.name for node in seen}
    found = [
        Idle(locations.place(file, one, name), _name(one))
        for file, node, name in functions if ran(file, node) or node.name in called
        for one in _idle_in(node)
    ]  # fmt: skip
    return found[0] if len(set(found)) == 1 else None


def _idle_in(function: ast.AST) -> Iterator[ast.Assign]:
    for loop in ast.walk(function):
        if isinstance(loop, ast.For) and _over_parameters(loop.iter):
            variables = {x.id for x in ast.walk(loop.target) if isinstance(x, ast.Name)}
            assigned = [s for s in ast.walk(loop) if isinstance(s, ast.Assign) and _name(s) in variables]
            yield from (s for s in assigned if not _is_read(_name(s), s, function))


def _over_parameters(value: ast.expr) -> bool:
    return any(isinstance(x, ast.Call) and syntax.call_name(x) in _GIVING for x in ast.walk(value))


def _name(statement: ast.Assign) -> str:
    target = statement.targets[0] if len(statement.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else ""


def _is_read(name: str, statement: ast.Assign, function: ast.AST) -> bool:
    """Whether a variable is read anywhere behind a statement: on a later line, in its own function."""
    reads = (x for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load) and x.id == name)
    return any(x.lineno > (statement.end_lineno or statement.lineno) for x in reads)
