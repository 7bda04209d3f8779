"""Where a function begins and returns: the line of its ``def`` and of its ``return``, and what that gives back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from types import CodeType

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.syntax import function_of, statements


def only_return(code: CodeType) -> Location | None:
    """What the function returns, if that is written in one place."""
    tree = locations.tree_at(code)
    lines = {line for *_, line in code.co_lines() if line}
    found: list[ast.expr] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            found.append(node.body)
        elif isinstance(node, ast.Return) and node.value is not None and node.lineno in lines:
            found.append(node.value)
    return locations.place(code.co_filename, found[0], locations.qualified_name(code)) if len(found) == 1 else None


def def_line(code: CodeType) -> int:
    """The line of the ``def`` or ``lambda``, below any decorators."""
    tree = locations.tree_at(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                return node.lineno
    return code.co_firstlineno


def return_of_method(files: Iterable[str], owner: str, method: str) -> Location | None:
    """The first ``return`` in a method of a class."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Return) and function_of(around).endswith(f"{owner}.{method}"):
                return locations.place(file, node, function_of(around))
    return None


def return_without_gradient(code: CodeType, position: int, *, zeros: bool = False) -> Location | None:
    """The ``return`` of a function that gives None at a position of its tuple; if none plainly does, its last one.

    Where that gives a name which only one ``if`` gives another value than None, it is the condition of that.

    With ``zeros``, the last one that plainly gives zeros there (``torch.zeros_like(grad)``, ``0 * grad``), or None.
    """
    lines = {line for *_, line in code.co_lines() if line}
    nodes = [n for n, _ in statements(code.co_filename) if isinstance(n, ast.Return) and n.lineno in lines]
    plain = [n for n in nodes if _gives(n.value, position, zeros=zeros)]
    best = (plain or ([] if zeros else nodes))[-1:]
    test = _only_condition(code, best[0], position) if best and not plain else None
    if test is not None:
        return locations.place(code.co_filename, test, locations.qualified_name(code))
    return locations.place(code.co_filename, best[0], locations.qualified_name(code)) if best else None


def gives_none(code: CodeType, position: int) -> bool:
    """Whether a function's last ``return`` plainly gives None at a position of its tuple."""
    lines = {line for *_, line in code.co_lines() if line}
    nodes = [n for n, _ in statements(code.co_filename) if isinstance(n, ast.Return) and n.lineno in lines]
    return bool(nodes) and _gives(nodes[-1].value, position, zeros=False)


def _only_condition(code: CodeType, found: ast.Return, position: int) -> ast.expr | None:
    """The condition of the innermost ``if`` that alone gives a value to the name which is returned at a position."""
    given = found.value.elts[position : position + 1] if isinstance(found.value, ast.Tuple) else [found.value]
    name = given[0].id if given and isinstance(given[0], ast.Name) else ""
    lines = {line for *_, line in code.co_lines() if line}
    made: list[list[ast.AST]] = []
    for node, around in statements(code.co_filename) if name else ():
        if isinstance(node, ast.Assign) and node.lineno in lines and not _is_none(node.value):
            if any(isinstance(x, ast.Name) and x.id == name for target in node.targets for x in ast.walk(target)):
                made.append(around)
    tests = [outer.test for outer in made[0] if isinstance(outer, ast.If)] if len(made) == 1 else []
    return tests[-1] if tests and tests[-1].lineno in lines else None


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


_ZEROS = re.compile(r"\bzeros(_like)?\(|\bzero_\(|(^|[^\w.])0(\.0*)? \* |\* 0(\.0*)?$")


def _gives(value: ast.expr | None, position: int, *, zeros: bool) -> bool:
    at = value.elts[position] if isinstance(value, ast.Tuple) and position < len(value.elts) else value
    if zeros:
        return at is not None and bool(_ZEROS.search(ast.unparse(at)))
    return at is None or (isinstance(at, ast.Constant) and at.value is None)
