"""Whether a module is kept as a copy of another: a target network, a teacher, an average of weights.

Read off the source: it is made by ``deepcopy`` under a name that says what it is for, takes over the other's
``state_dict``, or has its parameters written from the other's in a loop over both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from gradkit.source import syntax

_ROLES = re.compile(
    r"(^|_)(target|tgt|teacher|ema|momentum|average|averaged|shadow|old|ref|reference|slow)(_|\d|$)", re.I
)
_WRITES = frozenset("copy_ mul_ lerp_ add_ set_".split())


def is_copy(files: Iterable[str], path: str, twin: str) -> bool:
    """Whether the source keeps the module at one path as a copy of that at another.

    Args:
        files: the user's.
        path, twin: dotted paths in a model.

    Example:
        >>> is_copy((), "target", "online")
        False
    """
    mine, its = set(path.split(".")), set(twin.split("."))
    mine, its = mine - its, its - mine
    return any(_says(node, mine, its) for file in files for node in syntax.nodes(file))


def _says(node: ast.AST, mine: set[str], its: set[str]) -> bool:
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return any(_is_deep_copy(value, its) and _is_role(target, mine) for target, value in syntax.pairs(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
        given = node.args[0] if node.args else None
        return _word(node.func.value) in mine and bool(set(_words(given)) & its)
    return isinstance(node, ast.For) and _writes(node, mine, its)


def _is_deep_copy(value: ast.expr, its: set[str]) -> bool:
    called = isinstance(value, ast.Call) and syntax.call_name(value) == "deepcopy"
    return called and bool(set(_words(value)) & its)


def _is_role(target: ast.expr, mine: set[str]) -> bool:
    word = _word(target)
    return word in mine and bool(_ROLES.search(word))


def _writes(loop: ast.For, mine: set[str], its: set[str]) -> bool:
    """Whether a loop over the parameters of both writes into those of one."""
    pairs = loop.iter.args if isinstance(loop.iter, ast.Call) and syntax.call_name(loop.iter) == "zip" else []
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    if len(pairs) != len(names) or not any(set(_words(one)) & its for one in pairs):
        return False
    written = {_base(one) for statement in loop.body for one in ast.walk(statement)}
    into = (one.id for one in names if isinstance(one, ast.Name))
    return any(name in written and set(_words(pair)) & mine for name, pair in zip(into, pairs, strict=False))


def _base(node: ast.AST) -> str:
    """The variable that a call or an assignment writes into; ``""`` of anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES:
        return syntax.base_name(node.func.value)
    stored = node if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else None
    return syntax.base_name(stored) if stored is not None and stored.attr == "data" else ""


def _word(node: ast.expr) -> str:
    """The last name of a variable, an attribute or an item by its key."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _words(node: ast.AST | None) -> Iterator[str]:
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.expr) and (word := _word(one)):
            yield word
