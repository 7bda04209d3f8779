"""Whether a program does something by itself with the gradient of a tensor that it holds under a name.

Who reads ``x.grad``, or asks for a gradient with respect to ``x``, wants that gradient and no optimizer: an input that
is looked at, the points of a differential equation, a weight that is stepped by hand. Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from gradkit.source import syntax

_ASKING = frozenset("grad jacobian hessian vjp jvp autograd_grad add_param_group backward".split())
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)


def is_read(files: Iterable[str], name: str) -> bool:
    """Whether any of the user's files reads, or asks for, the gradient of what is held under a name, or silences it.

    Args:
        name: of a variable; with a dot in front (``".u"``), of an attribute. What is given it from, or goes through it
            in a loop, counts as well.

    Example:
        >>> is_read([], ".u")
        False
    """
    return any(_in_file(file, name) for file in dict.fromkeys(files))


def _in_file(file: str, name: str) -> bool:
    nodes: list[Any] = [node for node, _ in syntax.statements(file)]
    names = {name}
    for _ in range(2):  # ``for p in ps`` after ``ps = [self.u]``
        names |= {given for node in nodes for given in _given_from(node, names)}
    return any(_reads(node, names) or _asks(node, names) or _silences(node, names) for node in nodes)


def _given_from(node: Any, names: set[str]) -> Iterator[str]:
    """The variables that a loop or an assignment lets stand for one of some names."""
    if isinstance(node, _LOOPS) and _mentions(node.iter, names):
        yield from syntax.names_in(node.target)
    for target, value in syntax.pairs(node):
        if isinstance(target, ast.Name) and _is_kept(value, names):
            yield target.id


def _is_kept(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is what a name holds, an entry of it, or a list in which that is."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return any(_is_kept(one, names) for one in value.elts)
    return syntax.stored_name(value) in names


def _reads(node: Any, names: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "grad" and syntax.stored_name(node.value) in names


def _asks(node: Any, names: set[str]) -> bool:
    """Whether a call asks for gradients, or hands tensors to an optimizer, and names one of these."""
    if not isinstance(node, ast.Call):
        return False
    given = syntax.arguments(node)
    called = syntax.call_name(node)
    return (called in _ASKING or "optim" in ast.unparse(node.func)) and any(_mentions(one, names) for one in given)


def _silences(node: Any, names: set[str]) -> bool:
    """Whether one of these is multiplied with 0: it is there for its flag alone."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    zero = any(isinstance(one, ast.Constant) and one.value == 0 for one in (node.left, node.right))
    return zero and (_mentions(node.left, names) or _mentions(node.right, names))


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(syntax.stored_name(one) in names for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute)))
