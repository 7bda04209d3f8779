"""Which line a value was returned by: from the function that handed it out back to the one that made it.

A function that returns what another returned (``return loss_of(out)``, or ``loss = loss_of(out)`` and then
``return loss``) only hands it on. That is read off the source, and which functions returned, and where, off a run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import locations, syntax
from gradkit.source.syntax import FUNCTIONS

_PASSED_THROUGH = (ast.IfExp, ast.BoolOp, ast.Await, ast.NamedExpr)


@dataclass(frozen=True)
class Return:
    """A function of the user's that returned.

    Attributes:
        point: where it did.
        caller: where it was called from, by the next function of the user's; None of the outermost.
        within: the last return of those that it called, one for each place that calls.
    """

    point: Point
    caller: Point | None = None
    within: tuple[Return, ...] = ()

    def all(self) -> Iterator[Return]:
        """This one and all within."""
        yield self
        for one in self.within:
            yield from one.all()


def handed_out(outermost: Return, asked: Chain = ()) -> Chain:
    """Where a value was returned, innermost first: the function that made it, and those that handed it on.

    Args:
        asked: the frames in which ``value.backward()`` was called; then it is the value of that, and the frames around
            the call are no part of what is returned here.
    """
    first = outermost
    if asked:
        first = next((one for one in outermost.all() if one.point[0] is asked[0][0]), outermost)
    found = [] if asked else [first.point]
    one: Return | None = first
    while one is not None:
        end = asked[0] if asked and one is first else one.point
        one = next((inner for inner in reversed(one.within) if _is_handed_on(end, inner.caller)), None)
        if one is not None:
            found.insert(0, one.point)
    return tuple(found)


def _is_handed_on(end: Point, call: Point | None) -> bool:
    """Whether what is called at ``call`` is what the same function returns, or calls ``backward()`` on, at ``end``."""
    tree = locations.tree_at(end[0])
    node = locations.node_at(call) if call is not None else None
    if tree is None or not isinstance(node, ast.Call):
        return False
    walked = syntax.walked(tree)
    here = next((one for one in walked.nodes if syntax.same(one, node)), None)
    around = walked.inside(here) if here is not None else []
    while around and isinstance(around[-1], _PASSED_THROUGH):
        around.pop()
    if not around:
        return False
    outer, line = around[-1], locations.line_of(end)
    if isinstance(outer, ast.Return):
        return outer.lineno <= line <= (outer.end_lineno or line)
    if isinstance(outer, (ast.Lambda, ast.Attribute)):
        return not isinstance(outer, ast.Attribute) or outer.attr == "backward"
    used = name_used(end)
    return any(isinstance(target, ast.Name) and target.id == used for target, _ in syntax.pairs(outer))


def name_used(end: Point) -> str:
    """The variable that is returned at a point, or that ``backward()`` is called on; ``""`` if it is none."""
    node, last = locations.node_at(end), _statement(end)
    value: ast.AST | None = last.value if isinstance(last, ast.Return) else _body(end[0])
    if isinstance(node, ast.Attribute) and node.attr == "backward":
        value = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        value = node.func.value
    return value.id if isinstance(value, ast.Name) else ""


def given_at(end: Point) -> Location | None:
    """Where the variable that is returned at a point, or that ``backward()`` is called on, gets its only value."""
    name, function = name_used(end), function_of(end[0])
    if not name or function is None:
        return None
    stores = syntax.stores(function, name, locations.line_of(end))
    told = (node for node in ast.walk(function) if any(target in stores for target, _ in syntax.pairs(node)))
    only = next(told, None) if len(stores) == 1 else None
    return locations.place(end[0].co_filename, only, locations.qualified_name(end[0])) if only is not None else None


def only_hands_out(point: Point) -> bool:
    """Whether a function makes an object at a point only to return it, as it is or as a part of another.

    ``def head(n): return nn.Linear(n, 1)`` does, and so does one that keeps it in a variable until it returns it; one
    that calls it, as ``return nn.Linear(n, 1)(x)`` does, has another use for it.
    """
    node, function = locations.node_at(point), function_of(point[0])
    if not isinstance(node, ast.Call):
        return False
    if function is None:
        return _is_part(node, _body(point[0]))
    stated = _statement(point)
    if isinstance(stated, ast.Return):
        return _is_part(node, stated.value)
    names = _given(stated, node) if stated is not None else set()
    called = {one.func.id for one in ast.walk(function) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
    ends = [one.value for one in own_returns(function) if one.value is not None]
    given = {one.id for end in ends for one in ast.walk(end) if isinstance(one, ast.Name) and _is_part(one, end)}
    return bool(names) and not called.intersection(names) and given.issuperset(names)


def _given(stated: ast.stmt, node: ast.AST) -> set[str]:
    """The variables that a statement gives a value or puts it into: ``x = f()``, ``x += [f()]``, ``x.append(f())``."""
    told = syntax.pairs(stated)
    if isinstance(stated, ast.AugAssign):
        told = [(stated.target, stated.value)]
    elif (
        isinstance(stated, ast.Expr)
        and isinstance(stated.value, ast.Call)
        and isinstance(stated.value.func, ast.Attribute)
    ):
        told = [(stated.value.func.value, one) for one in stated.value.args]
    return {syntax.base_name(target) for target, value in told if _is_part(node, value)} - {""}


def past_factories(chain: Chain) -> Chain:
    """The frames from the line on that has another function build something: past functions, or past one method."""
    begin = chain
    while len(chain) > 1 and only_hands_out(chain[0]) and not _is_method(chain[0][0]):
        chain = chain[1:]
    alone = chain is begin and len(chain) > 1 and only_hands_out(chain[0])
    return chain[1:] if alone else chain


def _is_method(code: CodeType) -> bool:
    return code.co_argcount > 0 and code.co_varnames[0] in ("self", "cls")


def _is_part(node: ast.AST, whole: ast.AST | None) -> bool:
    """Whether an expression is another, or is handed to it as a part of it, and not called by it."""
    if whole is None or syntax.same(node, whole):
        return whole is not None
    if isinstance(whole, ast.Attribute):
        return False
    inner = [x for x in ast.iter_child_nodes(whole) if not (isinstance(whole, ast.Call) and x is whole.func)]
    return any(_is_part(node, one) for one in inner)


def _statement(point: Point) -> ast.stmt | None:
    """The innermost statement of its function that a point stands in; None in a lambda, or where it cannot be read."""
    function, line = function_of(point[0]), locations.line_of(point)
    if function is None:
        return None
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function)
    holding = [node for node in nodes if node.lineno <= line <= (node.end_lineno or line)]
    return min(holding, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def function_of(code: CodeType) -> syntax.Function | None:
    """The function that code was compiled from; None for a module or a lambda, or where it cannot be read."""
    tree = locations.tree_at(code)
    named = syntax.named(tree).get(code.co_name, ()) if tree is not None else ()
    return next((f for f in named if code.co_firstlineno in {f.lineno, *(d.lineno for d in f.decorator_list)}), None)


def own_returns(function: syntax.Function) -> list[ast.Return]:
    """The return statements of a function, without those of functions that are defined in it."""
    todo: list[ast.AST] = list(function.body)
    found = []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            found.append(node)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
    return found


def returned(function: syntax.Function) -> list[tuple[ast.expr, ast.stmt]]:
    """What a function returns, each with the statement that makes it."""
    found: list[tuple[ast.expr, ast.stmt]] = []
    for one in own_returns(function):
        if one.value is None:
            continue
        value = syntax.assigned(function, one.value.id, one.lineno) if isinstance(one.value, ast.Name) else None
        made = next((s for s in ast.walk(function) if isinstance(s, ast.stmt) and _gives(s, value)), None)
        found.append((value, made) if value is not None and made is not None else (one.value, one))
    return found


def _gives(statement: ast.stmt, value: ast.expr | None) -> bool:
    return value is not None and any(given is value for _, given in syntax.pairs(statement))


def place(point: Point) -> Location:
    """The line of a return: the statement, or the body of a lambda.

    Of a function that ended without any, it is its first line if it can return nothing at all, else the last line that
    ran.
    """
    code, function = point[0], function_of(point[0])
    name, line = locations.qualified_name(code), locations.line_of(point)
    body = _body(code)
    if body is not None:
        return locations.place(code.co_filename, body, name)
    if function is None:
        return locations.whole_line(code, line, name)
    statement = _statement(point)
    if isinstance(statement, ast.Return):
        return locations.place(code.co_filename, statement, name)
    if not any(one.value is not None for one in own_returns(function)):
        line = function.lineno
    return locations.whole_line(code, line, name)


def _body(code: CodeType) -> ast.expr | None:
    """The body of the one lambda that begins on a line; None if there are several."""
    tree = locations.tree_at(code) if code.co_name == "<lambda>" else None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)] if tree is not None else []
    here = [node.body for node in found if node.lineno == code.co_firstlineno]
    return here[0] if len(here) == 1 else None


def only_return(code: CodeType, *, nothing: bool = False) -> Chain:
    """Where a function returns, read off its source; ``()`` if that cannot be told.

    Args:
        nothing: it returned None.
    """
    function = function_of(code)
    if function is None:
        return ((code, _last(code, 0, code.co_firstlineno + 1)),) if _body(code) is not None else ()
    found = own_returns(function)
    if nothing:
        found = [one for one in found if one.value is None or ast.unparse(one.value) == "None"] or found
    if len(found) > 1:
        return ()
    first, end = (found[0].lineno, found[0].end_lineno) if found else (function.lineno, function.end_lineno)
    return ((code, _last(code, first, (end or first) + 1)),)


def _last(code: CodeType, first: int, end: int) -> int:
    """The last instruction of some lines, from ``first`` to the one before ``end``."""
    return max((start for start, _, line in code.co_lines() if line and first <= line < end), default=0)
