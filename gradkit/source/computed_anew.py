"""What was computed once before a loop, computed in each pass of it: the same line, in front of its first use.

Only where it means the same there: nothing that it reads is given another value on the way, or is another variable in
the function that uses it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from gradkit.core.records import Change, Location
from gradkit.core.trace import Chain, Point
from gradkit.source import imported, locations, rewrites, syntax
from gradkit.source.imported import Source
from gradkit.source.rewrites import Changes


def before_its_use(spot: Location, used: Chain) -> Changes:
    """The line at a place, once more in front of the first statement that reads what it makes.

    Args:
        spot: of an assignment to one variable, alone on its line.
        used: the user's frames of a call that uses the value, innermost first.

    Example:
        >>> before_its_use(Location("a.py", 1, 1, 5, "", "a = b"), ())
        ()
    """
    source = imported.source_of(spot)
    tree: Any = source.tree if source is not None else None
    made = _made_at(tree, spot.line) if tree is not None else None
    if source is None or made is None:
        return ()
    name, home = made.targets[0].id, syntax.function_at(tree, made.lineno)
    for point in used:
        if point[0].co_filename == spot.file and _reads(locations.node_at(point), name):
            scope = syntax.function_at(tree, locations.line_of(point))
            first = _first_use(scope or tree, name, made)
            if first is None or not _means_the_same(made, home, scope, tree, point):
                return ()
            return _in_front(source, made, first)
    return ()


def variable_at(spot: Location) -> str:
    """The one variable that the line at a place gives what it computes; ``""`` if that is not all that it does.

    Example:
        >>> variable_at(Location("a.py", 1, 1, 5, "", "a = b"))
        ''
    """
    source = imported.source_of(spot)
    made = _made_at(source.tree, spot.line) if source is not None and source.tree is not None else None
    return str(made.targets[0].id) if made is not None else ""


def _made_at(tree: ast.Module, line: int) -> Any:
    """The one statement of a line, if it gives one variable what it computes."""
    found = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno <= line <= (one.end_lineno or 0)]
    simple = [one for one in found if _is_simple(one)]
    one = simple[0] if len(simple) == 1 else None
    plain = isinstance(one, ast.Assign) and one.lineno == one.end_lineno and len(one.targets) == 1
    return one if plain and isinstance(one.targets[0], ast.Name) else None  # type: ignore[union-attr]


def _is_simple(statement: ast.stmt) -> bool:
    return not any(isinstance(child, ast.stmt) for child in ast.iter_child_nodes(statement))


def _reads(node: ast.AST | None, name: str) -> bool:
    inside = ast.walk(node) if node is not None else ()
    return any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in inside)


def _own(scope: ast.AST) -> Iterator[ast.stmt]:
    """The simple statements of a function or module, and the heads of loops, without those of functions in it."""
    todo: list[Any] = list(getattr(scope, "body", []))
    while todo:
        one = todo.pop(0)
        if isinstance(one, (*syntax.FUNCTIONS, ast.ClassDef)):
            continue
        yield one
        todo += [child for child in ast.iter_child_nodes(one) if isinstance(child, ast.stmt)]
        todo += [child for part in getattr(one, "handlers", ()) for child in part.body]


def _first_use(scope: ast.AST, name: str, made: ast.stmt) -> ast.stmt | None:
    """The first statement of a scope that reads a variable, if a loop goes through it and no other gives it a value."""
    mine = [one for one in _own(scope) if one is not made]
    simple = [one for one in mine if _is_simple(one)]
    heads = [one for one in mine if one not in simple]
    stored = any(name in syntax.names_in(target) for one in mine for target in _targets(one))
    reading = sorted((one for one in simple if _reads(one, name)), key=lambda one: (one.lineno, one.col_offset))
    around = [one for one in heads if isinstance(one, (ast.For, ast.While))]
    if stored or not reading or any(_head_reads(one, name) for one in heads):
        return None
    first = reading[0]
    is_function = isinstance(scope, syntax.FUNCTIONS)
    looped = any(one.lineno < first.lineno <= (one.end_lineno or 0) for one in around)
    return first if looped or (is_function and not _holds(scope, made)) else None


def _holds(scope: ast.AST, made: ast.stmt) -> bool:
    return any(one is made for one in ast.walk(scope))


def _head_reads(one: Any, name: str) -> bool:
    heads = [getattr(one, part, None) for part in ("test", "iter", "subject")]
    heads += [item.context_expr for item in getattr(one, "items", ())]
    return any(_reads(head, name) for head in heads)


def _targets(one: Any) -> list[ast.expr]:
    found = list(getattr(one, "targets", ()))
    return found + [t for t in [getattr(one, "target", None)] if t is not None]


def _means_the_same(made: Any, home: Any, scope: Any, tree: ast.Module, point: Point) -> bool:
    """Whether an expression, read in another place, is of the same variables with the same values."""
    names = syntax.names_in(made.value)
    if home is scope:
        after = [one for one in _own(scope or tree) if one is not made and one.lineno > made.lineno]
        given = {name for one in after for target in _targets(one) for name in syntax.names_in(_base(target))}
        return names.isdisjoint(given)
    own = {*point[0].co_varnames, *point[0].co_cellvars}
    return home is None and names.isdisjoint(own)


def _base(target: ast.expr) -> ast.expr:
    """What of a target gets another value: of an attribute or item, nothing that has a name of its own."""
    return target if isinstance(target, (ast.Name, ast.Tuple, ast.List, ast.Starred)) else ast.Constant(None)


def _in_front(source: Source, made: ast.stmt, first: ast.stmt) -> Changes:
    indent = source.line(first.lineno).encode()[: first.col_offset].decode()
    if indent.strip():
        return ()
    return (Change("+", first.lineno, f"{indent}{rewrites.text_of(source, made)}"),)
