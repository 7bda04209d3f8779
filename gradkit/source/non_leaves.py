"""Of what an optimizer refuses to train, the line that computed it: ``z = torch.randn(3, requires_grad=True) * 0.1``.

The optimizer's own line says what it was handed. What is to change is the line after which that is no leaf any more.
And whether what a call hands out is told what only a leaf can be told (``is_told_to_need_none``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.core.trace import Point
from gradkit.source import dataflow, helpers, locations, returns, syntax
from gradkit.source.attributes import ADDING
from gradkit.source.helpers import Part

_HOLDING = frozenset("list tuple dict values filter".split())
_LEAVES = frozenset("Parameter Variable requires_grad_ detach parameters named_parameters detach_ leaf".split())
_DEEPEST = 4


def computed_at(point: Point, files: Iterable[str]) -> Location | None:
    """The line that computed what an optimizer is handed.

    Args:
        point: where the optimizer is built.
        files: the user's, to look for functions.

    Returns:
        None where several lines may be meant, or the optimizer's own line computes it.
    """
    call, tree = locations.node_at(point), locations.tree_at(point[0])
    handed = _handed(call) if isinstance(call, ast.Call) else None
    names = set(_names(handed)) if handed is not None else set()
    scope = returns.function_of(point[0]) or tree
    if scope is None or not names or None in names:
        return None
    name, files = locations.qualified_name(point[0]), tuple(dict.fromkeys((point[0].co_filename, *files)))
    found = [
        spot
        for one in names
        for statement, value in _last(scope, one or "", locations.line_of(point))
        if (spot := _computed(value, statement, point[0].co_filename, name, files, 0)) is not None
    ]
    return found[0] if len(set(found)) == 1 else None


def _handed(call: ast.Call) -> ast.expr | None:
    named = next((one.value for one in call.keywords if one.arg == "params"), None)
    return named or next(iter(call.args), None)


def _names(handed: ast.expr) -> Iterator[str | None]:
    """The variables and attributes whose values are handed over as they are; None for an expression that computes."""
    if isinstance(handed, ast.Name):
        yield handed.id
    elif isinstance(handed, ast.Attribute):
        yield f".{handed.attr}"
    elif isinstance(handed, (ast.List, ast.Tuple, ast.Dict, ast.Starred)) or _holds_others(handed):
        for one in _inside(handed):
            yield from _names(one)
    elif not (isinstance(handed, ast.Call) and syntax.call_name(handed) in _LEAVES):
        yield None


def _holds_others(handed: ast.expr) -> bool:
    return isinstance(handed, ast.Call) and syntax.call_name(handed) in _HOLDING


def _inside(handed: ast.expr) -> list[ast.expr]:
    """What a list, a group of parameters, or ``list(camera.values())`` holds."""
    if isinstance(handed, ast.Starred):
        return [handed.value]
    if isinstance(handed, ast.Dict):
        pairs = zip(handed.keys, handed.values, strict=True)
        return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "params"]
    if isinstance(handed, ast.Call):
        return [handed.func.value] if isinstance(handed.func, ast.Attribute) else handed.args[-1:]
    return list(getattr(handed, "elts", ()))


def _last(scope: ast.AST, name: str, line: int) -> list[tuple[ast.stmt, ast.expr]]:
    """What a name is given last above a line, and all that is put into it from there on."""
    statements = [node for node in ast.walk(scope) if isinstance(node, ast.stmt) and node.lineno < line]
    found: list[tuple[ast.stmt, ast.expr]] = []
    for statement in sorted(statements, key=lambda one: one.lineno):
        if any(_is(target, name) for target, _ in syntax.pairs(statement)):
            found = [(statement, value) for target, value in syntax.pairs(statement) if _is(target, name)]
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ADDING:
            found += [(statement, one) for one in call.args if _is(call.func.value, name)]
    return found


def _is(target: ast.expr, name: str) -> bool:
    if isinstance(target, ast.Attribute):
        return f".{target.attr}" == name
    return isinstance(target, ast.Name) and target.id == name


def _computed(
    value: ast.expr, statement: ast.stmt, file: str, name: str, files: tuple[str, ...], depth: int
) -> Location | None:
    """The statement, or the one in the user's function that it calls; None where it computes nothing."""
    function = _function(value, files) if depth < _DEEPEST else None
    if function is not None:
        made = [(v, s) for v, s in returns.returned(function.node) if not _is_plain(v)]
        spots = (_computed(v, s, function.file, function.name, files, depth + 1) for v, s in made)
        return next(filter(None, spots), None)
    return None if _is_plain(value) else locations.place(file, statement, name)


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression makes a leaf, or computes nothing."""
    if isinstance(value, ast.Dict):
        return all(map(_is_plain, value.values))
    if isinstance(value, (ast.List, ast.Tuple)):
        return all(map(_is_plain, value.elts))
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _is_plain(value.elt)
    if isinstance(value, ast.Call):
        asked = any(one.arg == "requires_grad" for one in value.keywords)
        return asked or syntax.call_name(value) in _LEAVES | _HOLDING
    return not isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Subscript))


def _function(value: ast.expr, files: tuple[str, ...]) -> Part | None:
    """The one function of the user's that a call names, outside of a module's class."""
    found = helpers.named(syntax.call_name(value), files) if isinstance(value, ast.Call) else []
    owner = found[0].owner if len(found) == 1 else None
    if owner is not None and any(ast.unparse(base).endswith("Module") for base in owner.bases):
        return None
    return found[0] if len(found) == 1 else None


def is_told_to_need_none(point: Point) -> bool:
    """Whether ``requires_grad_(False)`` is called on what the expression at a point comes to: ``x.detach()``, say.

    That is in the same expression, or on a variable that got its value there; a copy made in between counts. Only a
    leaf can be told so: where the detach goes, the flag has to go with it.

    Example:
        >>> is_told_to_need_none((is_told_to_need_none.__code__, 0))
        False
    """
    code, line, node = point[0], locations.line_of(point), locations.node_at(point)
    if node is None:
        return False
    flags = list(_flags(point))
    inside = any(syntax.same(part, node) for flag in flags for part in ast.walk(flag.func))
    return inside or any(dataflow.flows_into(code, line, flag.lineno) for flag in flags)


def _flags(point: Point) -> Iterator[ast.Call]:
    """The calls ``.requires_grad_(False)`` of a function."""
    for statement in dataflow.statements(point[0]):
        for one in dataflow.own_nodes(statement):
            value = syntax.argument(one, "requires_grad", 0)
            if isinstance(one, ast.Call) and syntax.call_name(one) == "requires_grad_":
                if isinstance(value, ast.Constant) and value.value is False:
                    yield one
