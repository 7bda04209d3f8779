"""Which names some statements read before they give them a value, which they give a value, and what that loses.

Statements that are run a second time find in a name what the first time left there. Of a name that they read before
they write it, the value of the first time is lost, unless what was done to it may be done twice.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit.source import syntax

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MOVES = frozenset(
    "to cuda cpu float double half bfloat16 long int bool contiguous view reshape flatten squeeze requires_grad_"
    " type_as type pin_memory items values".split()
)
_MOVERS = re.compile(r"prepare_inputs?|to_device|to_cuda|move_|send_to|Variable$")
_SHAPERS = frozenset("scale mean sum to float double item stack cat div mul add squeeze".split())
_ADDERS = frozenset(("sum", "max", "min"))


@dataclass(frozen=True)
class Flow:
    """What some statements do to names.

    Attributes:
        read: names that may be read before the statements give them a value.
        needed: those of them that are read whatever way the statements go.
        used: ``read``, and names that are read first where the statements go another way than they might:
            ``if new: x = f()`` before ``g(x)``.
        stored: names that are given a value, or deleted.
    """

    read: frozenset[str]
    needed: frozenset[str]
    used: frozenset[str]
    stored: frozenset[str]

    @property
    def rebound(self) -> frozenset[str]:
        """Names whose value at the beginning is not to be had any more at the end."""
        return self.read & self.stored


def flow(statements: Iterable[ast.AST]) -> Flow:
    """Which names some statements read before they write them, and which they write.

    Example:
        >>> found = flow(ast.parse("y = f(x)\\nif y: x = g(z)\\ntotal += y").body)
        >>> sorted(found.read), sorted(found.stored), sorted(found.rebound)
        (['f', 'g', 'total', 'x', 'z'], ['total', 'x', 'y'], ['total', 'x'])
        >>> sorted(found.needed)
        ['f', 'total', 'x']
    """
    walk = _Walk()
    walk.many(statements)
    return Flow(*map(frozenset, (walk.read, walk.needed, walk.used, walk.stored)))


def own_nodes(statements: Iterable[ast.AST]) -> Iterator[Any]:
    """The nodes of some statements that run with them, without those of functions and classes that they define.

    Example:
        >>> [node.id for node in own_nodes(ast.parse("a(lambda: b)").body) if isinstance(node, ast.Name)]
        ['a']
    """
    todo = list(statements)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, SCOPES):
            todo.extend(ast.iter_child_nodes(node))


class _Walk(ast.NodeVisitor):
    """Goes through statements in the order in which they run."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.needed: set[str] = set()
        self.used: set[str] = set()
        self.stored: set[str] = set()
        self._always: set[str] = set()  # stored whatever way was taken
        self._sure = True
        self._hidden: list[set[str]] = []

    def many(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    @contextlib.contextmanager
    def _perhaps(self) -> Iterator[None]:
        before, always = self._sure, set(self._always)
        self._sure = False
        try:
            yield
        finally:
            self._sure, self._always = before, always

    def _reads(self, name: str) -> None:
        if any(name in hidden for hidden in self._hidden):
            return
        self.used |= {name} - self._always
        if name not in self.stored:
            self.read.add(name)
            self.needed |= {name} if self._sure else set()

    def _stores(self, name: str | None) -> None:
        if name is not None:
            self.stored.add(name)
            self._always.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Store):
            self._reads(node.id)
        if not isinstance(node.ctx, ast.Load):
            self._stores(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.many([node.value, node.target])

    def visit_Assign(self, node: ast.Assign) -> None:
        self.many([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.many([node.value, node.target] if node.value is not None else [])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._reads(node.target.id)
        self.many([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        with self._perhaps():
            self.many([node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        with self._perhaps():
            self.many([*node.body, *node.orelse])

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self.visit(node.test)
        blocks = (node.body, node.orelse) if isinstance(node, ast.If) else ([node.body], [node.orelse])
        with self._perhaps():
            self._either(blocks)

    visit_IfExp = visit_If  # noqa: N815

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        with self._perhaps():
            self._either([[case.pattern, case.guard, *case.body] for case in node.cases])

    def _either(self, blocks: Iterable[Sequence[ast.AST | None]]) -> None:
        """One of several blocks runs: what one of them writes, another may still read."""
        before, after, always = set(self.stored), set(self.stored), set(self._always)
        for block in blocks:
            self.stored, self._always = set(before), set(always)
            self.many(block)
            after |= self.stored
        self.stored = after

    def visit_Try(self, node: Any) -> None:
        with self._perhaps():
            self.many([*node.body, *node.handlers, *node.orelse, *node.finalbody])

    visit_TryStar = visit_Try  # noqa: N815

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        with self._perhaps():
            self.many(node.values[1:])

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._stores((alias.asname or alias.name).partition(".")[0] if alias.name != "*" else None)

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._stores(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self._stores(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._stores(node.rest)
        self.generic_visit(node)

    def visit_ListComp(self, node: Any) -> None:
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.visit(node.generators[0].iter)
        with self._perhaps():
            self._hidden.append(_names([one.target for one in node.generators]))
            self.many(one.iter for one in node.generators[1:])
            self.many([test for one in node.generators for test in one.ifs] + parts)
            self._hidden.pop()

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_FunctionDef(self, node: Any) -> None:
        given = node.args
        self.many([*getattr(node, "decorator_list", ()), *given.defaults, *given.kw_defaults])
        body = node.body if isinstance(node.body, list) else [node.body]
        self._later(body, {one.arg for one in ast.walk(given) if isinstance(one, ast.arg)})
        self._stores(getattr(node, "name", None))

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.many([*node.decorator_list, *node.bases, *node.keywords])
        self._later(node.body, set())
        self._stores(node.name)

    def _later(self, body: Sequence[ast.AST], given: set[str]) -> None:
        """What is only defined here may read our names when it is called."""
        inside = _Walk()
        inside.many(body)
        declared = {name for node in own_nodes(body) if isinstance(node, ast.Nonlocal) for name in node.names}
        with self._perhaps():
            for name in (inside.read - given) | declared:
                self._reads(name)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return set[str]().union(*map(syntax.names_in, nodes))


# -- what may be done twice --------------------------------------------------------------------------------------------


def lost(statements: Sequence[ast.stmt]) -> frozenset[str]:
    """The names whose value at the beginning is lost when the statements have run once: those that they rebind, but for
    those that they only move or cast, which may be done twice.

    Example:
        >>> sorted(lost(ast.parse("x = x.float().to(device)\\nh = net(x, h)\\nn += 1").body))
        ['h', 'n']
    """
    rebound = flow(statements).rebound
    return frozenset(name for name in rebound if not _only_moved(statements, name)) if rebound else rebound


def counted(statements: Sequence[ast.stmt]) -> tuple[tuple[str, int], ...]:
    """The names that the statements count up by a whole number, once and whatever way they go, and by how much.

    Example:
        >>> counted(ast.parse("step += 1\\nif new: n += 1\\nleft -= 2\\ny += 1\\ny = 0").body)
        (('step', 1), ('left', -2))
    """
    stores = [
        node.id for node in own_nodes(statements) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    found = (_count(one) for one in statements if isinstance(one, ast.AugAssign))
    return tuple((name, by) for name, by in found if by and stores.count(name) == 1)


def _count(node: ast.AugAssign) -> tuple[str, int]:
    by = node.value.value if isinstance(node.value, ast.Constant) else None
    if type(by) is not int or not isinstance(node.target, ast.Name) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return "", 0
    return node.target.id, by if isinstance(node.op, ast.Add) else -by


def _only_moved(statements: Sequence[ast.stmt], name: str) -> bool:
    given = [node for node in own_nodes(statements) if isinstance(node, ast.Name) and node.id == name]
    written = {id(node) for node in given if not isinstance(node.ctx, ast.Load)}
    moved = {
        id(one)
        for node in own_nodes(statements)
        for target, value in syntax.pairs(node)
        if name in syntax.names_in(target) and _moves(value, syntax.names_in(target))
        for one in ast.walk(target)
    }
    augmented = (node.target for node in own_nodes(statements) if isinstance(node, ast.AugAssign))
    return bool(written) and written <= moved - {id(target) for target in augmented}


def _moves(value: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression is what some names held, moved or cast."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.IfExp):
        return _moves(value.body, names) and _moves(value.orelse, names)
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(_moves(one, names) for one in value.elts)
    if isinstance(value, COMPREHENSIONS):
        part = value.value if isinstance(value, ast.DictComp) else value.elt
        only = value.generators[0]
        return bool(syntax.names_in(only.iter) & names) and _moves(part, syntax.names_in(only.target))
    return isinstance(value, ast.Call) and _call_moves(value, names)


def _call_moves(call: ast.Call, names: frozenset[str]) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
        return _moves(call.func.value, names)
    name = syntax.call_name(call)
    if _MOVERS.search(name):
        return any(syntax.names_in(one) & names for one in call.args)
    if name == "map" and len(call.args) == 2 and isinstance(call.args[0], ast.Lambda):
        given = frozenset(one.arg for one in call.args[0].args.args)
        return bool(syntax.names_in(call.args[1]) & names) and _moves(call.args[0].body, given)
    return name in ("tuple", "list", "dict") and bool(call.args) and all(_moves(one, names) for one in call.args)


# -- a loss that comes from further out --------------------------------------------------------------------------------


def backward_calls(statements: Iterable[ast.AST]) -> list[ast.Call]:
    """The calls of ``backward()`` in some statements: a tensor's, a trainer's or an accelerator's.

    Example:
        >>> [ast.unparse(call) for call in backward_calls(ast.parse("loss.backward()\\nengine.backward(loss)").body)]
        ['engine.backward(loss)', 'loss.backward()']
    """
    return [node for node in own_nodes(statements) if isinstance(node, ast.Call) and is_backward(node)]


def is_backward(call: ast.Call) -> bool:
    """Whether a call is one of ``backward()``, by its name.

    Example:
        >>> is_backward(ast.parse("fabric.backward(loss)").body[0].value)
        True
    """
    return syntax.call_name(call) in ("backward", "manual_backward")


def loss_from_outside(statements: Sequence[ast.stmt]) -> bool:
    """Whether all that some statements go backward from is handed to them: then they begin too late.

    Example:
        >>> loss_from_outside(ast.parse("optimizer.zero_grad()\\nloss.backward()").body)
        True
        >>> loss_from_outside(ast.parse("loss = criterion(net(x), y)\\nloss.backward()").body)
        False
    """
    asked = [_asked(call) for call in backward_calls(statements)]
    return bool(asked) and all(_from_outside(one, statements) for one in asked)


def _asked(call: ast.Call) -> list[ast.expr]:
    """What a backward begins at: the tensor itself, or what another's ``backward()`` is given."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr == "manual_backward":
        return call.args
    if call.args and not isinstance(func.value, ast.Name):  # self.accelerator.backward(loss)
        return call.args
    return [func.value, *call.args]


def _from_outside(asked: list[ast.expr], statements: Sequence[ast.stmt]) -> bool:
    nodes = [node for one in asked for node in ast.walk(one)]
    if any(isinstance(node, ast.Call) and not _only_shapes(node) for node in nodes):
        return False
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    if not names or names & flow(statements).stored:
        return False
    parts = {name for node in nodes for name in _part_of(node)}
    return not parts & _touched(statements)


def _only_shapes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _ADDERS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _SHAPERS


def _part_of(node: ast.AST) -> set[str]:
    is_part = isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name)
    return {node.value.id} if is_part else set()  # type: ignore[attr-defined]


def _touched(statements: Sequence[ast.stmt]) -> set[str]:
    """Names of what has a part of it written, or is handed to a call: ``self.loss = …``, ``self.forward()``."""
    found: set[str] = set()
    for node in own_nodes(statements):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            found |= _names([node.value])
        elif isinstance(node, ast.Call) and syntax.call_name(node) not in ("backward", "manual_backward", *_SHAPERS):
            found |= _names([node])
    return found
