"""Where a function begins and returns: the line of its ``def`` and of its ``return``, and what that gives back."""

from __future__ import annotations

import ast
from types import CodeType

from gradkit.core.records import Location
from gradkit.source import locations, syntax
from gradkit.source.syntax import statements


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


def return_without_gradient(code: CodeType, position: int) -> Location | None:
    """The ``return`` of a function that gives None at a position of its tuple; if none plainly does, its last one.

    Where that gives a name which only one ``if`` gives another value than None, it is the condition of that. Of a
    function that returns nothing, it is the line of its ``def``.
    """
    nodes = _returns(code)
    plain = [n for n in nodes if _gives_none(n.value, position)]
    best = (plain or nodes)[-1:]
    test = _only_condition(code, best[0], position) if best and not plain else None
    if test is not None:
        return locations.place(code.co_filename, test, locations.qualified_name(code))
    if not best:
        return locations.whole_line(code, def_line(code), locations.qualified_name(code))
    return locations.place(code.co_filename, best[0], locations.qualified_name(code))


def gives_none(code: CodeType, position: int) -> bool:
    """Whether a function's last ``return`` plainly gives None at a position of its tuple."""
    nodes = _returns(code)
    return bool(nodes) and _gives_none(nodes[-1].value, position)


def _returns(code: CodeType) -> list[ast.Return]:
    lines = {line for *_, line in code.co_lines() if line}
    return [n for n, _ in statements(code.co_filename) if isinstance(n, ast.Return) and n.lineno in lines]


def _only_condition(code: CodeType, found: ast.Return, position: int) -> ast.expr | None:
    """The condition of the innermost ``if`` that alone gives a value to the name which is returned at a position."""
    given = found.value.elts[position : position + 1] if isinstance(found.value, ast.Tuple) else [found.value]
    name = given[0].id if given and isinstance(given[0], ast.Name) else ""
    lines = {line for *_, line in code.co_lines() if line}
    made: list[list[ast.AST]] = []
    for node, around in statements(code.co_filename) if name else ():
        if isinstance(node, ast.Assign) and node.lineno in lines and not syntax.is_none(node.value):
            if any(isinstance(x, ast.Name) and x.id == name for target in node.targets for x in ast.walk(target)):
                made.append(around)
    tests = [outer.test for outer in made[0] if isinstance(outer, ast.If)] if len(made) == 1 else []
    return tests[-1] if tests and tests[-1].lineno in lines else None


def _gives_none(value: ast.expr | None, position: int) -> bool:
    at = value.elts[position] if isinstance(value, ast.Tuple) and position < len(value.elts) else value
    return at is None or syntax.is_none(at)
