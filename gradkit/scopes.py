"""Where source code switches grad mode: decorators, wrapped functions, and blocks around a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from types import CodeType

from gradkit.frames import SWITCHES, line_of, place, qualified_name, tree_at, whole_line
from gradkit.records import Location
from gradkit.traces import Point


def locate_code(code: CodeType, names: Mapping[str, object] | None = None) -> Location:
    """The decorator that switches grad mode for a function; if there is none to be seen, its first line.

    Args:
        names: the globals of the function, to look up what a decorator's name stands for.
    """
    tree, function = tree_at(code), qualified_name(code)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
            continue
        if code.co_firstlineno in {node.lineno, *(d.lineno for d in node.decorator_list)}:
            for mark in node.decorator_list:
                if SWITCHES.search(ast.unparse(mark)) or _stands_for_switch(mark, names or {}, tree):
                    spot = place(code.co_filename, mark, function)
                    return replace(spot, column=max(spot.column - 1, 1))
    wrapper = _wrapped(tree, code)
    if wrapper is not None:
        return place(code.co_filename, wrapper, function)
    return whole_line(code, code.co_firstlineno, function)


def _wrapped(tree: ast.Module | None, code: CodeType) -> ast.Call | None:
    """``f = torch.no_grad()(f)``, after the ``def f`` and in the same scope."""
    for scope in ast.walk(tree) if tree is not None else ():
        body = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", "") == code.co_name]
        if not any(getattr(node, "lineno", 0) == code.co_firstlineno for node in body):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and node.lineno > code.co_firstlineno:
                named = [ast.unparse(arg).rpartition(".")[2] for arg in node.args]
                if code.co_name in named and SWITCHES.search(ast.unparse(node.func)):
                    return node
    return None


def around(point: Point, wanted: re.Pattern[str] = SWITCHES) -> Location | None:
    """The innermost ``with`` around ``point`` whose head matches ``wanted``: as a rule, that switches grad mode."""
    code, _ = point
    line, tree, found = line_of(point), tree_at(code), None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line <= (node.end_lineno or line):
            items = [i.context_expr for i in node.items if wanted.search(ast.unparse(i.context_expr))]
            if items and node.body[0].lineno <= line:
                found = place(code.co_filename, items[0], qualified_name(code), anchor=True)
    return found


def _stands_for_switch(mark: ast.expr, names: Mapping[str, object], tree: ast.Module | None) -> bool:
    """Whether a decorator's name stands for a switch: by what it is now, or by what the file gives that name."""
    named = mark.func if isinstance(mark, ast.Call) else mark
    if not isinstance(named, ast.Name):
        return False
    if named.id in names:
        value = names[named.id]
        kind = value if isinstance(value, type) else type(value)
        return kind.__module__ == "torch.autograd.grad_mode"
    return any(_is_another_name(node, named.id) for node in (ast.walk(tree) if tree is not None else ()))


def _is_another_name(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a switch another name: ``frozen = torch.no_grad()``, ``import no_grad as frozen``."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.asname == name and SWITCHES.fullmatch(alias.name) for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else []
    value = node.value if isinstance(node, ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else value
    same = any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return same and called is not None and bool(SWITCHES.search(ast.unparse(called)))
