"""By which lines and on what conditions a run comes to a line of a function.

What the function had to be given for it, and which ways a run did not take.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType

from gradkit.core.records import Location, Note
from gradkit.core.trace import Chain
from gradkit.source import attributes, dataflow, locations
from gradkit.source.callgraph import FunctionsRan
from gradkit.source.syntax import FUNCTIONS, Function, assigned, looked_up, parameters, paths, stores

_LEAVING = (ast.Return, ast.Continue)
_DEEPEST = 3


@dataclass(frozen=True)
class RequiredArgument:
    """A function ran, and passed by a line that it comes to only if it is given something.

    Attributes:
        file, function: which function.
        argument: the parameter that it asks for.
        key: of a mapping given by that parameter, the key that it asks for; ``""`` if it is the parameter itself.
        alone: nothing else is asked for on the way to the line.
        use: the line that was passed by.
        test: the condition that asks for it.
    """

    file: str
    function: Function
    argument: str
    key: str
    alone: bool
    use: Location
    test: Location

    @property
    def same(self) -> tuple[str, int, str, str]:
        """Equal for the same thing asked for by the same function."""
        return self.file, self.function.lineno, self.argument, self.key


def required_arguments(
    owners: Iterable[type], attribute: str, ran: FunctionsRan, depth: int = 0
) -> list[RequiredArgument] | None:
    """What was asked for on the way to each line that reads ``.<attribute>``; none if one is not asked for anything.

    A method that did not run itself is looked for where it would have been called; one that nothing calls, or that
    another stands in for, is passed over.

    Args:
        owners: the classes whose methods may read it.

    Returns:
        None if nothing that ran, or could have been called by what ran, reads it.
    """
    owners = tuple(owners)
    common: list[RequiredArgument] | None = None
    for file, owner, function, path in guard_reads(owners, attribute, ran):
        found: list[RequiredArgument] | None = []
        if ran(file, function):
            asked = _asked(function, path)
            use = locations.place(file, path[-1], f"{owner}.{function.name}")
            told = {one: test for one, test in reversed(asked) if one is not None}  # the outermost condition is kept
            alone = len(told) == 1 and all(one is not None for one, _ in asked)
            found = [
                RequiredArgument(file, function, *one, alone, use, locations.place(file, test, use.function))
                for one, test in reversed(told.items())
            ]
        elif depth < _DEEPEST and function.name != attribute:
            found = required_arguments(owners, function.name, ran, depth + 1)
        if found is not None:
            sole = {one.same: one.alone for one in found}
            before = found if common is None else common
            common = [replace(one, alone=one.alone and sole[one.same]) for one in before if one.same in sole]
    return common


def guard_reads(
    owners: Iterable[type], attribute: str, ran: FunctionsRan
) -> Iterator[tuple[str, str, Function, list[ast.AST]]]:
    """Every place outside of ``__init__`` that reads the attribute: the function, and the nodes on the way there."""
    for file, owner, function in dict.fromkeys(one for cls in owners for one in _methods(cls, ran)):
        for path in paths(function):
            if _is_read(path[-1], attribute):
                yield file, owner.name, function, path


def _methods(cls: type, ran: FunctionsRan) -> Iterator[tuple[str, ast.ClassDef, Function]]:
    """The methods of a class and of those it derives from, without those that another stands in for."""
    seen = {"__init__"}
    for file, owner in attributes.bodies(cls):
        own = [node for node in owner.body if isinstance(node, FUNCTIONS)]
        yield from ((file, owner, one) for one in own if one.name not in seen or ran(file, one))
        seen |= {one.name for one in own}


def _is_read(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)


def _asked(function: Function, path: list[ast.AST]) -> list[tuple[tuple[str, str] | None, ast.expr]]:
    """The parameters, and keys, that the conditions on the way down to a node ask for; None for one of another kind.

    Each stands beside its condition.
    """
    return [
        (_source(function, asked, test.lineno), test)
        for outer, inner in itertools.pairwise(path)
        for test, wanted in conditions_around(outer, inner)
        for asked in asks(test, wanted)
    ]


def conditions_around(outer: ast.AST, inner: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """What must hold, or not, for ``inner`` to run where ``outer`` does."""
    if isinstance(outer, ast.IfExp) and inner is not outer.test:
        yield outer.test, inner is outer.body
    if isinstance(outer, ast.BoolOp) and inner is not outer.values[0]:
        yield from ((v, isinstance(outer.op, ast.And)) for v in outer.values[: outer.values.index(inner)])  # type: ignore[arg-type]
    if isinstance(outer, (ast.For, ast.AsyncFor)) and any(inner is s for s in outer.body):
        yield from ((part, True) for part in (outer.iter, outer.target))  # that some come is not that this one comes
    if isinstance(outer, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        if not isinstance(inner, ast.comprehension):
            yield from ((part, True) for g in outer.generators for part in (g.iter, g.target))
    if isinstance(outer, ast.Call) and ast.unparse(outer.func) == "zip":
        yield from ((part, True) for part in (*outer.args, outer) if part is not inner)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(outer, name, None)
        if isinstance(block, list) and any(inner is s for s in block):
            if isinstance(outer, ast.If):
                yield outer.test, name == "body"
            before = block[: next(i for i, s in enumerate(block) if s is inner)]
            leaving = (s for s in before if isinstance(s, ast.If) and isinstance(s.body[-1], _LEAVING))
            yield from ((s.test, False) for s in leaving)


def asks(test: ast.expr, wanted: bool) -> Iterator[ast.expr | tuple[ast.expr, str] | None]:
    """What must be given for a condition to be met: expressions, or mappings and keys; None for anything else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from asks(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        parts = test.values if wanted == isinstance(test.op, ast.And) else []
        yield from (asked for part in parts for asked in asks(part, wanted))
        yield from ([] if parts else [None])
    elif isinstance(test, ast.Call) and ast.unparse(test.func) in ("zip", "enumerate", "len", "list"):
        yield from (test.args if wanted else [None])
    elif isinstance(test, ast.Compare):
        op, left, right = test.ops[0], test.left, test.comparators[0]
        there = wanted == isinstance(op, (ast.IsNot, ast.NotEq, ast.In))
        if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and ast.unparse(right) == "None":
            yield left if there else None
        elif isinstance(op, (ast.In, ast.NotIn)) and isinstance(left, ast.Constant) and isinstance(left.value, str):
            yield (right, left.value) if there else None
        else:
            yield None
    else:
        yield test if wanted else None


def _source(function: Function, asked: ast.expr | tuple[ast.expr, str] | None, line: int) -> tuple[str, str] | None:
    """The parameter that an expression at a line is, or the parameter and key that it was looked up by."""
    mapping: ast.expr | None
    if isinstance(asked, tuple):
        mapping, key = asked
    elif isinstance(asked, ast.Name) and not stores(function, asked.id, line):
        return (asked.id, "") if asked.id in parameters(function) else None
    else:
        mapping, key = looked_up(assigned(function, asked.id, line) if isinstance(asked, ast.Name) else asked)
    if not isinstance(mapping, ast.Name) or stores(function, mapping.id, line):
        return None
    rest = function.args.kwarg
    return (key, "") if rest is not None and rest.arg == mapping.id else (mapping.id, key)


_MOST_ROUTES = 3
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True)
class Route:
    """A line that uses a layer, and that functions which ran would have led to.

    Attributes:
        use: the line.
        conditions: what stands on the way there, in the function that ran: the place, and whether it has to hold.
    """

    use: Location
    conditions: tuple[tuple[Location, bool], ...]


def skipped_uses(owners: Iterable[type], attribute: str, defined: Location | None, ran: FunctionsRan) -> list[Note]:
    """The lines that use a layer; and, where there is one way to it, the conditions on which it is taken.

    Args:
        owners: the classes whose methods may read ``.<attribute>``.
        defined: the line that made the layer; it is no use.
    """
    owners, facts = tuple(owners), {"attribute": attribute}
    places = [use for use in attributes.uses(owners, attribute) if defined is None or use.line != defined.line]
    found = [way for way in routes_to(owners, attribute, ran) if way.use in places]
    places = list(dict.fromkeys(way.use for way in found)) or places
    notes = [Note("left_out" if ran.around(place) else "not_run", place, facts) for place in places[:2]]
    asked = found[0].conditions if len(found) == 1 and notes[0].kind == "not_run" else ()
    return notes + [Note("only_if" if holds else "only_if_not", place, facts) for place, holds in asked]


def routes_to(owners: Iterable[type], attribute: str, ran: FunctionsRan) -> list[Route]:
    """The ways to every line of ``owners`` that reads ``.<attribute>``, from functions that ran.

    A method that did not run is looked for where it would have been called. What nothing leads to, such as a method
    that prints a summary, is left out.
    """
    return list(_ways(tuple(owners), attribute, ran))


def _ways(owners: tuple[type, ...], attribute: str, ran: FunctionsRan, depth: int = 0) -> Iterator[Route]:
    for file, owner, function, path in guard_reads(owners, attribute, ran):
        use = locations.place(file, path[-1], f"{owner}.{function.name}")
        if ran(file, function):
            asked = ((locations.place(file, test, use.function), wanted) for test, wanted in _tests(path))
            yield Route(use, tuple(asked))
        elif depth < _MOST_ROUTES and function.name != attribute:
            yield from (Route(use, one.conditions) for one in _ways(owners, function.name, ran, depth + 1))


def _tests(path: list[ast.AST]) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions on the way down to a node, as they are written, and whether each has to hold."""
    for outer, inner in itertools.pairwise(path):
        met = conditions_around(outer, inner)
        block = isinstance(outer, ast.stmt) and not isinstance(outer, ast.If) and isinstance(inner, ast.stmt)
        if isinstance(outer, _BRANCHES):
            yield from met
        elif block:
            yield from ((test, wanted) for test, wanted in met if not wanted)


_GIVES = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)


@dataclass(frozen=True)
class Choice:
    """A condition that a value decides.

    Attributes:
        code: the function that it stands in.
        lines: the lines of the statements that it chooses between, as far as they give a name a value.
        returns: one of them returns something instead.
        node: the statement, or the expression ``a if c else b``, that it is the condition of.
    """

    code: CodeType
    lines: tuple[int, ...]
    returns: bool
    node: ast.If | ast.While | ast.IfExp

    @property
    def place(self) -> Location:
        """Where the condition stands."""
        return locations.place(self.code.co_filename, self.node.test, locations.qualified_name(self.code))


_PUTTING = frozenset("append extend insert add fill_ add_ sub_ mul_ zero_".split())


def put_in(statement: ast.AST) -> list[ast.expr]:
    """What a statement puts into something, after that itself: ``hits.append(1.0)``, ``mask[i].fill_(1)``; else none.

    Example:
        >>> [len(put_in(one)) for one in ast.parse("hits.append(1.0); log.info('hit')").body]
        [2, 0]
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _PUTTING:
        return []
    return [call.func.value, *call.args]


def chosen_by(chain: Chain) -> Choice | None:
    """The condition that is decided by what is computed at the innermost of some frames; None if that decides nothing.

    A function may hand it out, for one further out to decide by it.
    """
    for point in chain[:_DEEPEST]:
        code, line = point[0], locations.line_of(point)
        body = dataflow.statements(code)
        for node in body:
            if isinstance(node, (ast.If, ast.While)) and _decided(node, code, line):
                return _choice(node, code)
        here = [node for node in body if node.lineno <= line <= (node.end_lineno or line)]
        either = [x for node in here for x in ast.walk(node) if isinstance(x, ast.IfExp) and _within(x.test, line)]
        if either:
            return Choice(code, (line,), any(isinstance(node, ast.Return) for node in here), either[0])
        if not any(isinstance(r, ast.Return) and (r in here or _flows(code, line, r)) for r in body):
            return None
    return None


def _decided(node: ast.If | ast.While, code: CodeType, line: int) -> bool:
    return _within(node.test, line) or _flows(code, line, node)


def _within(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or line)


def _flows(code: CodeType, line: int, node: ast.stmt) -> bool:
    return dataflow.flows_into(code, line, node.lineno)


def _choice(node: ast.If | ast.While, code: CodeType) -> Choice:
    arms = [x for arm in (*node.body, *node.orelse) for x in ast.walk(arm) if isinstance(x, _GIVES) or put_in(x)]
    given = tuple(x.lineno for x in arms if isinstance(x, ast.stmt) and not isinstance(x, ast.Return))
    returned = [x.value for x in arms if isinstance(x, ast.Return)]
    return Choice(code, given, any(x is not None and ast.unparse(x) != "None" for x in returned), node)
