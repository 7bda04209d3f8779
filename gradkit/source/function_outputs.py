"""Why autograd does not record what the ``forward`` of a custom Function hands out: the line that says so.

Nothing is run. It is asked only where a Function was handed what requires grad, and hands out floats without history.
"""

from __future__ import annotations

import ast
from types import CodeType

from gradkit.core.records import Location
from gradkit.source import locations, returns, syntax
from gradkit.source.syntax import FUNCTIONS

_CONTAINERS = frozenset("dict list OrderedDict defaultdict SimpleNamespace".split())


def marking_line(code: CodeType) -> Location | None:
    """The one call of ``mark_non_differentiable`` in a Function's forward, or in the rest of its class.

    Args:
        code: of ``forward``.
    """
    function, tree = returns.function_of(code), locations.tree_at(code)
    if function is None or tree is None:
        return None
    owner = next((one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and function in one.body), None)
    for within in (function, owner):
        found = [one for one in ast.walk(within) if _marks(one)] if within is not None else []
        if found:
            name = locations.qualified_name(code)
            return locations.place(code.co_filename, found[0], name) if len(found) == 1 else None
    return None


def boxing_line(code: CodeType) -> Location | None:
    """The ``return`` of a forward that gives its tensors in a dictionary or a list: its only one, and plainly so.

    Args:
        code: of ``forward``.
    """
    function = returns.function_of(code)
    ends = returns.own_returns(function) if function is not None else []
    value = ends[0].value if len(ends) == 1 else None
    if isinstance(value, ast.Name) and function is not None:
        given = [
            assigned
            for one in ast.walk(function)
            if not isinstance(one, FUNCTIONS)
            for target, assigned in syntax.pairs(one)
            if isinstance(target, ast.Name) and target.id == value.id
        ]
        value = given[0] if len(given) == 1 else None
    boxed = isinstance(value, (ast.Dict, ast.List, ast.DictComp, ast.ListComp))
    if not boxed and not (isinstance(value, ast.Call) and syntax.call_name(value) in _CONTAINERS):
        return None
    return locations.place(code.co_filename, ends[0], locations.qualified_name(code))


def _marks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and syntax.call_name(node) == "mark_non_differentiable"
