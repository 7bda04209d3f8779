"""Between where a value is made and where it is used: the line that puts it into what outlasts its function.

``buffer["logp"].append(dist.log_prob(a))``, ``self.logp.append(lp)`` in a method that was handed it; where there is
none, the line of the function that both share, ``start = model(x)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import CodeType

from gradkit.core.records import Location
from gradkit.core.trace import Chain
from gradkit.source import dataflow, locations, syntax
from gradkit.source.attributes import ADDING
from gradkit.source.syntax import FUNCTIONS


def put_away_at(made: Chain, used: Chain, files: Iterable[str]) -> Location | None:
    """The line that keeps what was made at some frames for those that use it.

    Args:
        made: the frames of the call that made it, innermost first.
        used: those of the call that uses it.
        files: the user's.

    Returns:
        None where the two share no frame, or it cannot be read off.
    """
    files, shared, at = tuple(files), {code for code, _ in used}, -1
    for point in made:
        code, node = point[0], locations.node_at(point)
        statement = dataflow.statement_at(code, locations.line_of(point))
        if statement is None:
            return None
        spot = _kept_by(statement, node, code, files)
        names = _names_given(statement, at)
        for later in dataflow.statements(code) if spot is None and names else ():
            spot = spot or (_kept_by(later, None, code, files, names) if later.lineno > statement.lineno else None)
        if spot is not None:
            return spot
        if code in shared:
            return locations.place(code.co_filename, statement, locations.qualified_name(code))
        at = _position(statement, node, names, code)
    return None


def _kept_by(
    statement: ast.stmt, node: ast.AST | None, code: CodeType, files: tuple[str, ...],
    names: frozenset[str] = frozenset(),
) -> Location | None:  # fmt: skip
    """Where a statement keeps what stands at a node of it, or under some names: itself, or in a function it calls."""
    here = locations.place(code.co_filename, statement, locations.qualified_name(code))
    calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)] if _is_simple(statement) else []
    given = [(call, x) for call in calls for x in _arguments(call) if _holds(x, node, names)]
    for call, value in given:
        spot = _kept_in(call, value, here, files)
        if spot is not None:
            return spot
        if syntax.call_name(call) in ADDING and isinstance(call.func, ast.Attribute):
            return here
    pairs = syntax.pairs(statement)
    lasting = (isinstance(target, (ast.Attribute, ast.Subscript)) and _holds(x, node, names) for target, x in pairs)
    return here if any(lasting) else None


def _kept_in(call: ast.Call, value: ast.expr, here: Location, files: tuple[str, ...]) -> Location | None:
    """Where a function of the user's keeps one of its arguments; where it knows it by no name, the call."""
    found = [(file, one) for file in files for one in _functions(file, syntax.call_name(call))]
    if len(found) != 1:
        return None
    file, function = found[0]
    name = _parameter(call, value, function)
    rest = function.args.vararg.arg if function.args.vararg is not None else ""
    for node, around in syntax.statements(file):
        if function in around and isinstance(node, ast.stmt) and _is_simple(node) and _adds(node, {name, rest} - {""}):
            return locations.place(file, node, syntax.function_of(around)) if name else here
    return None


def _adds(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement puts what stands under some names into an object or a container."""
    calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    adding = (x for one in calls if syntax.call_name(one) in ADDING for x in _arguments(one))
    stored = (x for target, x in syntax.pairs(statement) if isinstance(target, (ast.Attribute, ast.Subscript)))
    return any(_holds(x, None, frozenset(names)) for x in (*adding, *stored))


def _functions(file: str, name: str) -> list[syntax.Function]:
    tree = locations.tree_of(file)
    return syntax.named(tree).get(name, []) if tree is not None and name else []


def _parameter(call: ast.Call, value: ast.expr, function: syntax.Function) -> str:
    """Under which name a function is handed an argument; ``""`` for one of ``*args``."""
    for one in call.keywords:
        if one.value is value:
            return one.arg or ""
    known = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    at = next((at for at, one in enumerate(call.args) if one is value), -1)
    at += known[:1] in (["self"], ["cls"])
    return known[at] if 0 <= at < len(known) else ""


def _names_given(statement: ast.stmt, at: int) -> frozenset[str]:
    """The variables that a statement gives a value, or a part of one: the one at a position, if that is known."""
    found: set[str] = set()
    for target, _ in syntax.pairs(statement):
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        parts = [parts[at]] if 0 <= at < len(parts) and len(parts) > 1 else parts
        found |= {one.id for one in parts if isinstance(one, ast.Name)}
    return frozenset(found)


def _position(statement: ast.stmt, node: ast.AST | None, names: frozenset[str], code: CodeType) -> int:
    """At which position of the tuple that a function returns a value stands; -1 if it returns none, or not it."""
    ends = [statement] if isinstance(statement, ast.Return) else dataflow.statements(code)
    for end in ends:
        value = end.value if isinstance(end, ast.Return) else None
        for at, part in enumerate(value.elts if isinstance(value, ast.Tuple) else ()):
            if _holds(part, node, names):
                return at
    return -1


def _holds(value: ast.AST, node: ast.AST | None, names: frozenset[str]) -> bool:
    """Whether an expression has a node in it, or uses one of some names."""
    inside = list(ast.walk(value))
    used = {one.id for one in inside if isinstance(one, ast.Name)}
    return bool(used & names) or (node is not None and any(syntax.same(node, one) for one in inside))


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _is_simple(statement: ast.stmt) -> bool:
    return not isinstance(getattr(statement, "body", None), list) and not isinstance(statement, FUNCTIONS)
