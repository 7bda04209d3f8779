"""Where what a function has computed gets lost: by a function that ignores an argument, or under a name given anew.

Which functions called which, and which lines the loss was computed on, is known from a run; whether a name is read is
read off the source.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, locations, returns, syntax

IGNORED, OVERWRITTEN, UNREAD, UNASSIGNED = "ignored", "overwritten", "unread", "unassigned"
_DEEPEST = 6


@dataclass(frozen=True)
class Lost:
    """A result that goes nowhere.

    Attributes:
        kind: ``"ignored"`` (an argument that its function does not read), ``"overwritten"`` (its name is given another
            value first), ``"unread"`` (nothing reads its name, and one line goes on without it) or ``"unassigned"``
            (the result of a call is thrown away).
        location: the line that goes on without it, or throws it away.
        name: the variable or argument, or the function that is called.
    """

    kind: str
    location: Location
    name: str


class Run:
    """What is known of a run, to follow a result in it.

    Args:
        chains: the frames of all its calls, innermost first.
        useful: the frames of those calls that the loss was computed by.
    """

    def __init__(self, chains: Iterable[Chain], useful: Iterable[Chain]) -> None:
        self._inner: dict[Point, dict[CodeType, None]] = {}
        for chain in chains:
            for inner, outer in itertools.pairwise(chain):
                self._inner.setdefault(outer, {})[inner[0]] = None
        self._useful: dict[CodeType, set[int]] = {}
        for chain in useful:
            for point in chain:
                self._useful.setdefault(point[0], set()).add(locations.line_of(point))

    def called_by(self, code: CodeType, call: ast.Call) -> list[CodeType]:
        """The functions that a call in a function was seen to run."""
        found = (
            inner
            for point, codes in self._inner.items()
            if point[0] is code and (node := locations.node_at(point)) is not None and syntax.same(node, call)
            for inner in codes
        )
        return list(dict.fromkeys(found))

    def useful(self, code: CodeType, after: int = 0) -> list[ast.stmt]:
        """The statements of a function below a line that the loss was computed by, in order."""
        lines = sorted(line for line in self._useful.get(code, ()) if line > after)
        stated = (dataflow.statement_at(code, line) for line in lines)
        return list({one.lineno: one for one in stated if one is not None}.values())


def lost_at(chain: Chain, run: Run) -> Lost | None:
    """Where what was made at a place gets lost, on its way out through the functions that hand it on.

    Args:
        chain: the frames of the call that made it, innermost first.
    """
    for point in chain:
        code, line = point[0], locations.line_of(point)
        stated, node = dataflow.statement_at(code, line), locations.node_at(point)
        if stated is None or node is None:
            return None
        found = (
            _unassigned(code, stated, node, run)
            or _as_an_argument(code, stated, node, run)
            or _under_a_name(code, stated, node, run)
        )
        if found is not None or not isinstance(stated, ast.Return):
            return found
    return None


def _unassigned(code: CodeType, stated: ast.stmt, node: ast.AST, run: Run) -> Lost | None:
    """A call whose result is thrown away: the one that made it, or one that takes it in and returns something."""
    call = stated.value if isinstance(stated, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return None
    if not syntax.same(call, node):
        handed = any(syntax.same(part, node) for one in syntax.arguments(call) for part in ast.walk(one))
        if not handed or not _only_returns(_functions(code, call, run)):
            return None
    elif syntax.call_name(call).endswith("_") or run.called_by(code, call):
        return None
    name = syntax.call_name(call)
    return Lost(UNASSIGNED, locations.place(code.co_filename, stated, locations.qualified_name(code)), name)


def _functions(code: CodeType, call: ast.Call, run: Run) -> list[syntax.Function]:
    """What a call was seen to run; of what makes no tensor, the functions of its name in the same file."""
    seen = [function for one in run.called_by(code, call) if (function := returns.function_of(one)) is not None]
    tree = locations.tree_at(code)
    return seen or list(syntax.named(tree).get(syntax.call_name(call), ()) if tree is not None else ())


def _only_returns(functions: Sequence[syntax.Function]) -> bool:
    """Whether the one function returns something, and keeps nothing of what it is given."""
    ends = [one for function in functions for one in returns.own_returns(function)]
    nodes = [one for function in functions for one in ast.walk(function)]
    kept = any(not isinstance(target, ast.Name) for one in nodes for target, _ in syntax.pairs(one))
    called = any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in nodes)
    return len(functions) == 1 and bool(ends) and all(one.value is not None for one in ends) and not kept and not called


def _as_an_argument(code: CodeType, stated: ast.stmt, node: ast.AST, run: Run, depth: int = 0) -> Lost | None:
    """Where it gets lost in the functions that the same statement hands it to."""
    calls = [one for one in ast.walk(stated) if isinstance(one, ast.Call) and not syntax.same(one, node)]
    for call in calls:
        for given in syntax.arguments(call):
            if any(syntax.same(one, node) for one in ast.walk(given)):
                found = _in_callee(code, call, given, run, depth)
                if found is not None:
                    return found
    return None


def _in_callee(code: CodeType, call: ast.Call, given: ast.expr, run: Run, depth: int) -> Lost | None:
    """Where an argument gets lost in the one function that a call was seen to run."""
    callees = run.called_by(code, call)
    if len(callees) != 1 or depth > _DEEPEST or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    function = returns.function_of(callees[0])
    name = syntax.handed_as(call, given, function) if function is not None else ""
    known = function is not None and name in syntax.parameters(function)
    return _of_variable(callees[0], name, None, run, depth + 1) if known else None


def _under_a_name(code: CodeType, stated: ast.stmt, node: ast.AST, run: Run) -> Lost | None:
    """Where it gets lost under the variable that a statement gives it."""
    for target, value in syntax.pairs(stated):
        if isinstance(target, ast.Name) and any(syntax.same(one, node) for one in ast.walk(value)):
            return _of_variable(code, target.id, Since(stated, value), run, 0)
    return None


@dataclass(frozen=True)
class Since:
    """The statement that gives a variable its value, and the expression of that."""

    stated: ast.stmt
    value: ast.expr


def _of_variable(code: CodeType, name: str, since: Since | None, run: Run, depth: int) -> Lost | None:
    """Where what stands under a name gets lost, after a statement; None: since its function began."""
    function = returns.function_of(code)
    if function is None or name in code.co_cellvars:
        return None
    after = (since.stated.end_lineno or 0) if since is not None else 0
    reads = _reads_after(code, function, name, since)
    again = [one for one in _assigned_again(function, name, after) if name not in syntax.names_in(one.value)]
    before = [one for one in reads if not again or one.lineno < again[0].lineno]
    spot = None
    if not before and again and _is_passed(again[0], since, function):
        kind, spot = OVERWRITTEN, again[0]
    elif not reads and not again:
        useful = run.useful(code, after) or [one for one in returns.own_returns(function) if one.lineno > after]
        kind, spot = (IGNORED if since is None else UNREAD), _goes_on(code, useful, since, run)
    if spot is not None:
        return Lost(kind, locations.place(code.co_filename, spot, locations.qualified_name(code)), name)
    passed = (_passed_on(code, one, run, depth) for one in before)
    return next(filter(None, passed), None)


def _goes_on(code: CodeType, useful: Sequence[ast.stmt], since: Since | None, run: Run) -> ast.stmt | None:
    """Of the statements that go on without a result, the first that may have been meant to use it.

    Of a variable, that is the only one, if it is what its function returns; or the only one that asks the function of
    the user's that made its value for something else.
    """
    if since is None:
        return next(iter(useful), None)
    if len(useful) == 1 and isinstance(useful[0], ast.Return):
        return useful[0]
    own = isinstance(since.value, ast.Call) and bool(run.called_by(code, since.value))
    made = ast.unparse(since.value.func) if own and isinstance(since.value, ast.Call) else ""
    calls = [
        one
        for one in useful
        if made and any(isinstance(n, ast.Call) and ast.unparse(n.func) == made for n in ast.walk(one))
    ]
    return calls[0] if len(calls) == 1 else None


def _reads_after(code: CodeType, function: syntax.Function, name: str, since: Since | None) -> list[ast.Name]:
    """Where a variable is read after a statement, and not by that itself; in a loop, also above it."""
    reads = [node for _, node in dataflow.reads(code, [name])]
    if since is None:
        return reads
    first, last = since.stated.lineno, since.stated.end_lineno or 0
    again = _is_repeated(since.stated, function)
    return [one for one in reads if one.lineno > last or (again and one.lineno < first)]


def _passed_on(code: CodeType, read: ast.Name, run: Run, depth: int) -> Lost | None:
    """Where it gets lost in the function that a statement which reads it hands it to as it is."""
    stated = dataflow.statement_at(code, read.lineno)
    for call in ast.walk(stated) if stated is not None else ():
        if isinstance(call, ast.Call):
            given = next((one for one in syntax.arguments(call) if syntax.same(one, read)), None)
            if given is not None:
                return _in_callee(code, call, given, run, depth)
    return None


def _assigned_again(function: syntax.Function, name: str, after: int) -> list[Any]:
    """The statements below a line that give a variable another value, in order."""
    found = [
        one
        for one in ast.walk(function)
        if isinstance(one, ast.stmt) and one.lineno > after
        if any(isinstance(target, ast.Name) and target.id == name for target, _ in syntax.pairs(one))
    ]
    return sorted(found, key=lambda one: one.lineno)


def _is_passed(again: ast.stmt, since: Since | None, function: syntax.Function) -> bool:
    """Whether a run that comes from one statement cannot miss the other: that stands in a block around the first."""
    return since is None or any(again in block and _holds(block, since.stated) for block in _blocks(function))


def _is_repeated(since: ast.stmt, function: syntax.Function) -> bool:
    """Whether a statement stands in a loop, so that what is above it runs after it, too."""
    loops = (one for one in ast.walk(function) if isinstance(one, (ast.For, ast.While)))
    return any(_holds(one.body, since) for one in loops)


def _holds(block: Collection[ast.AST], stated: ast.stmt) -> bool:
    return any(syntax.same(one, stated) for outer in block for one in ast.walk(outer))


def _blocks(function: syntax.Function) -> list[list[ast.stmt]]:
    nodes = [*ast.walk(function)]
    return [
        block
        for node in nodes
        for field in ("body", "orelse", "finalbody")
        if (block := getattr(node, field, None)) and isinstance(block, list)
    ]
