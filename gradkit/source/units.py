"""Which statements of a frame make one training step, read off its syntax tree.

A *unit* is a list of statements that can be run again as the body of a function: one pass of a loop, a function from
its start, or a module or cell from its first line, each up to the statement that failed. Of one frame there are
several, one within the other; nothing here tells which of them is the step.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import linecache
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from gradkit.source import locations, provenance, rebinding, syntax
from gradkit.source.syntax import FUNCTIONS

LOOP, BODY, MODULE = "loop", "body", "module"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
WITHS = (ast.With, ast.AsyncWith)
_TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))


@dataclass(frozen=True, eq=False)
class Unit:
    """Statements to run again. They are nodes of a tree that others read, too: change only copies of them.

    Attributes:
        statements: in their order.
        kind: ``"loop"``, one pass of a loop; ``"body"``, a function from its start; ``"module"``, a module or cell.
        first, last: the lines that they reach from and to.
        failing: the innermost statement that was running.
        function: the function that they stand in, or the whole module.
        owner: the name of the class that private names in them belong to, ``""`` if there is none.
        loop_line: where the loop begins, 0 if there is none.
        around: the ``with`` statements that enclose the loop in the same function, the outermost first.
        within: the ``with`` statements of the unit that the failing statement stands in, the outermost first.
        redraws: it takes what the loop is over anew.
        over: what the loop is over, as text; ``""`` if that is not taken anew.
        targets: the names that were given from outside: the loop's targets, the function's parameters.
        rebound: names that are read before they are written in it, and written.
        lost: those of them whose value at its start is gone; what is only moved or cast counts as still there.
        stored: all names that it gives a value.
        counted: names that were counted up by a whole number once on the way to the failing statement, and by how much.
    """

    statements: tuple[ast.stmt, ...]
    kind: str
    first: int
    last: int
    failing: ast.stmt
    function: ast.AST
    owner: str = ""
    loop_line: int = 0
    around: tuple[ast.stmt, ...] = ()
    within: tuple[ast.stmt, ...] = ()
    redraws: bool = False
    over: str = ""
    targets: frozenset[str] = frozenset()
    rebound: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    counted: tuple[tuple[str, int], ...] = ()


Place = tuple[Any, list[ast.stmt], int]
"""A statement on the way: what it stands in, the block, and its number there."""


def units_of(code: CodeType, lasti: int, line: int, *, inclusive: bool = True) -> tuple[Unit, ...]:
    """The units of a frame, the innermost first; none if its source is not known as it was when the code was compiled.

    On the way to the failing statement an ``if`` and a ``try`` are entered, a ``with`` is kept and cut short, and an
    inner loop is kept whole. A loop that rebinds its own targets gives a second unit, which takes the next ones first.

    Args:
        code: what the frame runs.
        lasti: the offset of the instruction that was running, in bytes.
        line: its line.
        inclusive: the failing statement belongs to the unit; else it ends at the last ``backward()`` before.

    Example:
        >>> text = '''
        ... def train(net, data):
        ...     for x in data:
        ...         loss = net(x).sum()
        ...         loss.backward()
        ... '''
        >>> linecache.cache["<units>"] = len(text), None, text.splitlines(True), "<units>"
        >>> exec(compile(text, "<units>", "exec"))
        >>> [(one.kind, one.first, one.last) for one in units_of(train.__code__, 0, 5)]
        [('loop', 4, 5), ('body', 3, 5)]
    """
    tree = tree_of(code)
    function, owner = _function(tree, code, lasti, line) if tree is not None else (None, "")
    if function is None:
        return ()
    way = _way(function, _position(code, lasti, line))
    if not way:
        return ()
    found: list[Unit] = []
    for depth in range(len(way) - 1, -1, -1):
        if not depth or _is_pass(way[depth]):
            found += _units_at(way, depth, function, owner, inclusive)
    return tuple(found)


def tree_of(code: CodeType) -> ast.Module | None:
    """The syntax tree of the text that code was compiled from; from an archive, too. None if that is not known."""
    file = code.co_filename
    if not os.path.exists(file) and file not in linecache.cache:
        module = provenance.module(file)
        if module is not None:  # a traceback reads it in the same way
            linecache.getlines(file, vars(module))
    return locations.tree_at(code)


def function_of(code: CodeType, lasti: int, line: int) -> ast.AST | None:
    """The function, lambda or module that code was compiled from; None if its source is not known as it was then."""
    tree = tree_of(code)
    return _function(tree, code, lasti, line)[0] if tree is not None else None


def stands_in(statement: ast.AST, place: ast.AST) -> bool:
    """Whether a statement, or a copy of it, is the one at a place."""
    return syntax.same(statement, place)


# -- where the frame stands --------------------------------------------------------------------------------------------


def _function(tree: ast.Module, code: CodeType, lasti: int, line: int) -> tuple[Any, str]:
    """The function, lambda or module that code was compiled from, and the class that its private names belong to.

    A class's body and a comprehension are none: (None, "").
    """
    if code.co_name.startswith(("<module", "<cell")):
        return tree, ""
    found = _functions(tree).get((code.co_name, code.co_firstlineno), [])
    if len(found) > 1:
        where = _position(code, lasti, line)
        found = [one for one in found if _holds(one[0], where)] or found
    return found[-1] if found else (None, "")


@functools.lru_cache(maxsize=64)
def _functions(tree: ast.Module) -> dict[tuple[str, int], list[tuple[Any, str]]]:
    """All functions of a file by name and first line, each with the name of the innermost class around it."""
    found: dict[tuple[str, int], list[tuple[Any, str]]] = {}
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, owner = todo.pop()
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            found.setdefault((name, _begin(node)[0]), []).append((node, owner))
        if isinstance(node, ast.ClassDef):
            todo += [(one, owner) for one in (*node.decorator_list, *node.bases, *node.keywords)]
            todo += [(one, node.name) for one in node.body]
        else:
            todo += [(one, owner) for one in ast.iter_child_nodes(node)]
    return found


Where = tuple[int, int | None]


def _position(code: CodeType, lasti: int, line: int) -> Where:
    """The line and the column (in bytes) of what was running; without a column where Python does not tell it."""
    if hasattr(code, "co_positions"):
        spot = next(itertools.islice(code.co_positions(), lasti // 2, None), None)
        if spot is not None and spot[0] == line:
            return line, spot[2]
        return line, None
    node = locations.node_at((code, lasti)) if lasti > 0 and _is_crowded(code, line) else None
    if isinstance(node, (ast.expr, ast.stmt)):
        return node.lineno, node.col_offset
    return line, None


def _is_crowded(code: CodeType, line: int) -> bool:
    """Whether more than one statement begins on a line."""
    tree = tree_of(code)
    here = (node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.Lambda)) if tree is not None else ()
    return sum(node.lineno == line for node in here) > 1


def _begin(node: Any) -> tuple[int, int]:
    """Where a statement begins, with its decorators."""
    marks = getattr(node, "decorator_list", None) or []
    return min((one.lineno, one.col_offset) for one in (node, *marks))


def _holds(node: Any, where: Where) -> bool:
    line, column = where
    begin, end = _begin(node), (node.end_lineno, node.end_col_offset)
    return begin[0] <= line <= end[0] if column is None else begin <= (line, column) < end


def blocks(node: Any) -> Iterator[list[ast.stmt]]:
    """The blocks of statements in a statement, function or module; of a lambda, one that returns what it does.

    Example:
        >>> [len(one) for one in blocks(ast.parse("if a:\\n    b\\nelse:\\n    c\\n    d").body[0])]
        [1, 2]
    """
    if isinstance(node, ast.Lambda):
        yield [ast.copy_location(ast.Return(node.body), node.body)]
        return
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _way(function: Any, where: Where) -> list[Place]:
    """From a function down to the innermost statement that was running."""
    found: list[Place] = []
    node = function
    if isinstance(node, ast.Lambda):  # the whole of it counts as its one statement
        return [(node, block, 0) for block in blocks(node)]
    while True:
        inner = [(node, block, at) for block in blocks(node) for at, one in enumerate(block) if _holds(one, where)]
        if not inner:
            return found
        found.append(inner[-1])
        node = inner[-1][1][inner[-1][2]]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return found


def _is_pass(place: Place) -> bool:
    """Whether a place lies in the body of a loop, and not in its ``else``."""
    node, block, _ = place
    return isinstance(node, LOOPS) and block is node.body


# -- which statements --------------------------------------------------------------------------------------------------


def _units_at(way: list[Place], depth: int, function: Any, owner: str, inclusive: bool) -> list[Unit]:
    node = way[depth][0]
    failing = way[-1][1][way[-1][2]]
    ran = _straight(way[depth:], inclusive)
    if depth == 0 and ran and _is_docstring(ran[0], function):
        ran = ran[1:]
    body = ran if inclusive else _until_backward(ran)
    if not body:
        return []
    flow, lost = rebinding.flow(body), rebinding.lost(ran)
    unit = Unit(
        statements=tuple(body),
        kind=LOOP if isinstance(node, LOOPS) else MODULE if isinstance(function, ast.Module) else BODY,
        first=_begin(body[0])[0],
        last=_end(body[-1]),
        failing=failing,
        function=function,
        owner=owner,
        loop_line=node.lineno if isinstance(node, LOOPS) else 0,
        around=tuple(one for one, *_ in way[:depth] if isinstance(one, WITHS)),
        within=tuple(one for one, *_ in way[depth + 1 :] if isinstance(one, WITHS)),
        targets=_targets(node),
        rebound=flow.read & (flow.stored | lost),
        lost=lost & flow.read,
        stored=flow.stored,
        counted=rebinding.counted(ran),
    )
    must_draw = unit.kind == LOOP and bool(unit.lost & unit.targets)
    redrawn = _redrawn(unit, node) if must_draw else None
    return [unit, redrawn] if redrawn is not None else [unit]


def _straight(way: Sequence[Place], inclusive: bool) -> list[ast.stmt]:
    """The statements of a block up to the failing one, which the rest of the way leads to."""
    _, block, at = way[0]
    before, this = list(block[:at]), block[at]
    if len(way) == 1:
        return [*before, this] if inclusive else before
    if isinstance(this, LOOPS):
        return [*before, this]
    rest = _straight(way[1:], inclusive)
    return [*before, *_entered(this, way[1][1], rest)]


def _entered(this: Any, block: list[ast.stmt], rest: list[ast.stmt]) -> list[ast.stmt]:
    """What is kept of a statement on the way, whose ``block`` is cut down to ``rest``."""
    if isinstance(this, WITHS):
        return [_with_block(this, body=rest)] if rest else []
    if isinstance(this, ast.If):  # which way it went is known, but its test may give a name a value
        binds = any(isinstance(node, ast.NamedExpr) for node in ast.walk(this.test))
        return [ast.copy_location(ast.Expr(this.test), this.test), *rest] if binds else rest
    if isinstance(this, _TRIES):
        return _entered_try(this, block, rest)
    if isinstance(this, ast.Match):
        case = next(one for one in this.cases if one.body is block)
        head = [one for one in (case.pattern, case.guard, this.subject) if one is not None]
        if rest and rebinding.flow(head).stored:
            kept = ast.match_case(case.pattern, case.guard, rest)
            return [_with_block(this, cases=[kept])]
    return rest


def _entered_try(this: Any, block: list[ast.stmt], rest: list[ast.stmt]) -> list[ast.stmt]:
    """What an ``except`` swallows is wanted; but a handler is entered by what its ``try`` raises."""
    if block is this.body:
        return rest
    if block is this.orelse:
        return [*this.body, *rest]
    if block is this.finalbody:
        return [_with_block(this, finalbody=rest)] if rest else []
    handlers = [
        ast.copy_location(ast.ExceptHandler(one.type, one.name, rest), one) if one.body is block else one
        for one in this.handlers
    ]
    return [_with_block(this, handlers=handlers, finalbody=[])] if rest else []


def _with_block(statement: Any, **blocks: Any) -> Any:
    """A copy of a statement with some of its blocks replaced."""
    cut = copy.copy(statement)
    for name, block in blocks.items():
        setattr(cut, name, block)
    return cut


def _until_backward(body: list[ast.stmt]) -> list[ast.stmt]:
    """Up to the last backward: clipping, unscaling and the like come after it, and cannot be done twice."""
    for at in range(len(body) - 1, -1, -1):
        this = body[at]
        if rebinding.backward_calls([this]):
            inner = _with_block(this, body=_until_backward(this.body)) if isinstance(this, WITHS) else this
            return [*body[:at], inner]
    return body


def _end(statement: Any) -> int:
    """The last line of a statement, of one that is cut short that of what is left of it."""
    found = [block for block in blocks(statement) if block]
    if not found:
        return int(statement.end_lineno or statement.lineno)
    return max(_end(block[-1]) for block in found)


def _is_docstring(statement: ast.stmt, function: Any) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return is_text and not isinstance(function, ast.Lambda) and statement is function.body[0]


def _targets(node: Any) -> frozenset[str]:
    """The names that a loop's head or a function's parameters give a value."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return syntax.names_in(node.target)
    if isinstance(node, ast.While):
        return rebinding.flow([node.test]).stored
    if isinstance(node, (*FUNCTIONS, ast.Lambda)):
        return frozenset(one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg))
    return frozenset()


def _redrawn(unit: Unit, loop: Any) -> Unit | None:
    """The unit that first takes what comes next in the loop's head."""
    if isinstance(loop, ast.While):
        draw: ast.stmt = ast.copy_location(ast.Expr(loop.test), loop.test)
        over = ast.unparse(loop.test)
    elif isinstance(loop, ast.For):
        draw, over = ast.Assign([loop.target], _call("next", _call("iter", loop.iter))), ast.unparse(loop.iter)
        ast.fix_missing_locations(ast.copy_location(draw, loop.iter))
    else:
        return None
    body = (draw, *unit.statements)
    return replace(
        unit, statements=body, first=loop.lineno, redraws=True, over=over,
        rebound=unit.rebound - unit.targets, lost=unit.lost - unit.targets, stored=unit.stored | unit.targets,
    )  # fmt: skip


def _call(name: str, value: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), value), [value], []), value)
