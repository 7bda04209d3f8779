"""What a function had to be given to come to the line that uses an attribute, by the conditions around it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gradkit import classes, frames, sources
from gradkit.ran import Function, Ran
from gradkit.records import Location
from gradkit.words import FUNCTIONS

_LEAVING = (ast.Return, ast.Continue)
_DEEPEST = 3


@dataclass(frozen=True)
class Guard:
    """A function ran, and passed by a line that it comes to only if it is given something.

    Attributes:
        file, function: which function.
        argument: the parameter that it asks for.
        key: of a mapping given by that parameter, the key that it asks for; ``""`` if it is the parameter itself.
        alone: nothing else is asked for on the way to the line.
        use: the line that was passed by.
    """

    file: str
    function: Function
    argument: str
    key: str
    alone: bool
    use: Location

    @property
    def same(self) -> tuple[str, int, str, str]:
        """Equal for the same thing asked for by the same function."""
        return self.file, self.function.lineno, self.argument, self.key


def of(owners: Iterable[type], attribute: str, ran: Ran, depth: int = 0) -> list[Guard] | None:
    """What was asked for on the way to each line that reads ``.<attribute>``; none if one is not asked for anything.

    A method that did not run itself is looked for where it would have been called; one that nothing calls, or that
    another stands in for, is passed over.

    Args:
        owners: the classes whose methods may read it.

    Returns:
        None if nothing that ran, or could have been called by what ran, reads it.
    """
    owners = tuple(owners)
    common: list[Guard] | None = None
    for file, owner, function, path in reads(owners, attribute, ran):
        found: list[Guard] | None = []
        if ran(file, function):
            asked = _asked(function, path)
            use = frames.place(file, path[-1], f"{owner}.{function.name}")
            told = dict.fromkeys(one for one in asked if one is not None)
            found = [Guard(file, function, *one, len(told) == 1 and None not in asked, use) for one in told]
        elif depth < _DEEPEST and function.name != attribute:
            found = of(owners, function.name, ran, depth + 1)
        if found is not None:
            alone = {one.same: one.alone for one in found}
            before = found if common is None else common
            common = [replace(one, alone=one.alone and alone[one.same]) for one in before if one.same in alone]
    return common


def reads(owners: Iterable[type], attribute: str, ran: Ran) -> Iterator[tuple[str, str, Function, list[ast.AST]]]:
    """Every place outside of ``__init__`` that reads the attribute: the function, and the nodes on the way there."""
    for file, owner, function in dict.fromkeys(one for cls in owners for one in _methods(cls, ran)):
        for path in _paths(function, [function]):
            if _is_read(path[-1], attribute):
                yield file, owner.name, function, path


def _methods(cls: type, ran: Ran) -> Iterator[tuple[str, ast.ClassDef, Function]]:
    """The methods of a class and of those it derives from, without those that another stands in for."""
    seen = {"__init__"}
    for file, owner in classes.bodies(cls):
        own = [node for node in owner.body if isinstance(node, FUNCTIONS)]
        yield from ((file, owner, one) for one in own if one.name not in seen or ran(file, one))
        seen |= {one.name for one in own}


def _is_read(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)


def _paths(node: ast.AST, path: list[ast.AST]) -> Iterator[list[ast.AST]]:
    yield path
    for child in ast.iter_child_nodes(node):
        yield from _paths(child, [*path, child])


def _asked(function: Function, path: list[ast.AST]) -> list[tuple[str, str] | None]:
    """The parameters, and keys, that the conditions on the way down to a node ask for; None for one of another kind."""
    return [
        _source(function, asked, test.lineno)
        for outer, inner in itertools.pairwise(path)
        for test, wanted in conditions(outer, inner)
        for asked in _asks(test, wanted)
    ]


def conditions(outer: ast.AST, inner: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
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


def _asks(test: ast.expr, wanted: bool) -> Iterator[ast.expr | tuple[ast.expr, str] | None]:
    """What must be given for a condition to be met: expressions, or mappings and keys; None for anything else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _asks(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        parts = test.values if wanted == isinstance(test.op, ast.And) else []
        yield from (asked for part in parts for asked in _asks(part, wanted))
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


def parameters(function: Function) -> list[str]:
    """The names of what a function may be given.

    Example:
        >>> parameters(ast.parse("def forward(self, x, *rest, image=None): ...").body[0])
        ['self', 'x', 'image']
    """
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def looked_up(value: ast.expr | None) -> tuple[ast.expr | None, str]:
    """The mapping and the key of ``batch.get("image")``, ``batch.pop("image", None)`` or ``batch["image"]``.

    Example:
        >>> mapping, key = looked_up(ast.parse("batch.get('image')", mode="eval").body)
        >>> ast.unparse(mapping), key
        ('batch', 'image')
    """
    mapping: ast.expr | None = None
    key: ast.expr | None = None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("get", "pop"):
        mapping, key = value.func.value, value.args[0] if value.args else None
    elif isinstance(value, ast.Subscript):
        mapping, key = value.value, value.slice
    return (mapping, key.value) if isinstance(key, ast.Constant) and isinstance(key.value, str) else (None, "")


def stores(function: Function, name: str, line: int) -> list[ast.Name]:
    """Where a name is given a value in a function, above a line."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno < line)
    return [node for node in names if node.id == name and isinstance(node.ctx, ast.Store)]


def assigned(function: Function, name: str, line: int) -> ast.expr | None:
    """What a name is given in a function above a line, if that happens once."""
    given = stores(function, name, line)
    found = [value for node in ast.walk(function) for target, value in sources.pairs(node) if target in given]
    return found[0] if len(found) == len(given) == 1 else None
