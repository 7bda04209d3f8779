"""Where in the user's source the things are created that an attribute holds: in lists, by helpers, piece by piece."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit import classes, frames
from gradkit.ran import Function
from gradkit.records import Location

ADDING = frozenset("append appendleft extend insert add update setdefault __setitem__ put push set store".split())
EMPTY = frozenset(("None", "[]", "{}", "()", "list()", "dict()", "set()", "deque()"))
_DEEPEST = 4


@dataclass(frozen=True)
class _Scope:
    """A function of the user's: where its names are looked up."""

    file: str
    function: Function
    owner: type | None
    files: tuple[str, ...]


def created(cls: type, attribute: str, kind: str, files: Iterable[str] = ()) -> tuple[Location, ...]:
    """The lines that create what ``self.<attribute>`` of a class holds, in the order of the source.

    Names are followed through assignments, ``append`` and the like, and into the methods and functions whose result
    they are.

    Args:
        kind: name of the class of what is held: a line that calls it creates it.
        files: the user's, to look for functions.

    Returns:
        ``()`` if no line is seen to call ``kind``.
    """
    found: dict[tuple[str, int], Location] = {}
    for file, owner in classes.bodies(cls):
        for function in (node for node in owner.body if isinstance(node, Function)):
            scope = _Scope(file, function, cls, tuple(files))
            for spot in _fed(f".{attribute}", kind, scope, 0):
                found.setdefault((spot.file, spot.line), spot)
    return tuple(found[key] for key in sorted(found))


def derived(cls: type, attribute: str, files: Iterable[str] = ()) -> Location | None:
    """The first line that gives ``self.<attribute>`` something computed: ``self.x = torch.randn(3, ...) * 0.1``.

    A leaf that is made right there (``torch.randn(3, requires_grad=True)``, ``....requires_grad_()``) is none. Where
    the user's own function makes it, the line is in there.

    Args:
        files: the user's, to look for functions.
    """
    for file, owner in classes.bodies(cls):
        for function in (node for node in owner.body if isinstance(node, Function)):
            scope = _Scope(file, function, cls, tuple(files))
            for statement in ast.walk(function):
                if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                    for value in _given(statement, f".{attribute}"):
                        spot = _computed(value, scope, 0)
                        if spot is not None:
                            return spot
    return None


def _computed(value: ast.expr, scope: _Scope, depth: int) -> Location | None:
    """Where an expression's value is computed: there, or in the user's function that it calls and that returns it."""
    if isinstance(value, ast.Name) and depth:
        given = [v for s in ast.walk(scope.function) if isinstance(s, ast.Assign) for v in _given(s, value.id)]
        return _computed(given[-1], scope, depth + 1) if given and depth < _DEEPEST else None
    if _leaf(value):
        return None
    inner = next(_callees(value.func, scope), None) if isinstance(value, ast.Call) and depth < _DEEPEST else None
    returned = [n.value for n in ast.walk(inner.function) if isinstance(n, ast.Return) and n.value] if inner else []
    if inner is not None and len(returned) == 1:
        return _computed(returned[0], inner, depth + 1)
    name = f"{scope.owner.__name__}.{scope.function.name}" if scope.owner is not None else scope.function.name
    return frames.place(scope.file, value, name)


def _leaf(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return not isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.IfExp))
    return _name(value.func) == "requires_grad_" or any(k.arg == "requires_grad" for k in value.keywords)


def _fed(target: str, kind: str, scope: _Scope, depth: int) -> Iterator[Location]:
    """The lines of a function that put something of this kind into ``target``."""
    for statement in ast.walk(scope.function):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            for value in _given(statement, target):
                yield from _made(value, statement, kind, scope, depth)


def _given(statement: ast.stmt, target: str) -> list[ast.expr]:
    """What a statement puts into ``target``: by assignment, by ``target[...] = ...`` or by a method that adds."""
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ADDING:
            if _is(_base(call.func.value), target):
                return [*call.args, *(k.value for k in call.keywords)]
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    value: ast.expr | None = statement.value  # type: ignore[attr-defined]
    if value is None:
        return []
    for one in targets:
        if _is(_base(one), target):
            return [value]
        for i, part in enumerate(one.elts if isinstance(one, ast.Tuple) else ()):
            if _is(_base(part), target):
                return [value.elts[i] if isinstance(value, ast.Tuple) and len(value.elts) > i else value]
    return []


def _base(node: ast.expr) -> ast.expr:
    """``self.a`` of ``self.a[0]["x"]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is(node: ast.expr, target: str) -> bool:
    """``target``: a name, or ``".a"`` for an attribute ``self.a``."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}" == target
    return isinstance(node, ast.Name) and node.id == target


def _made(value: ast.expr, statement: ast.stmt, kind: str, scope: _Scope, depth: int) -> Iterator[Location]:
    if any(isinstance(node, ast.Call) and _name(node.func) == kind for node in ast.walk(value)):
        name = f"{scope.owner.__name__}.{scope.function.name}" if scope.owner is not None else scope.function.name
        shown = statement if isinstance(statement, (ast.Expr, ast.Return)) else value
        yield frames.place(scope.file, shown, name)
        return
    if depth >= _DEEPEST or ast.unparse(value) in EMPTY:
        return
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield from _fed(node.id, kind, scope, depth + 1)
        elif isinstance(node, ast.Call):
            for inner in _callees(node.func, scope):
                for back in ast.walk(inner.function):
                    if isinstance(back, (ast.Return, ast.Yield)) and back.value is not None:
                        shown = back if isinstance(back, ast.Return) else ast.Expr(value=back)
                        yield from _made(back.value, ast.copy_location(shown, back), kind, inner, depth + 1)


def _callees(called: ast.expr, scope: _Scope) -> Iterator[_Scope]:
    """The user's function that an expression calls: a method of the class, else a function of that name."""
    name = _name(called)
    if isinstance(called, ast.Attribute) and scope.owner is not None:
        for file, owner in classes.bodies(scope.owner):
            for node in owner.body:
                if isinstance(node, Function) and node.name == name:
                    yield _Scope(file, node, scope.owner, scope.files)
                    return
    for file in dict.fromkeys([scope.file, *scope.files]):
        tree = frames.tree_of(file)
        for top in tree.body if tree is not None else ():
            if isinstance(top, Function) and top.name == name:
                yield _Scope(file, top, None, scope.files)
                return


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
