"""Which lines of the source run in hooks of backward: those of functions and lambdas that are registered as such.

A hook on gradients runs while backward does, where autograd records nothing unless it was asked for ``create_graph``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from gradkit.core.records import Location
from gradkit.source import dataflow, keeping, locations, syntax
from gradkit.source.dataflow import Storing

_REGISTERING = frozenset(
    "register_hook register_full_backward_hook register_full_backward_pre_hook register_backward_hook "
    "register_post_accumulate_grad_hook register_multi_grad_hook register_module_full_backward_hook".split()
)


def stored(name: str, files: Iterable[str], owner: type | None, reader: Any) -> list[Location]:
    """The lines by which hooks of backward keep something under a name; ``[]`` if anything else keeps it as well.

    Args:
        name: of an attribute or a variable.
        owner: of an attribute, the class of the object that has it.
        reader: of a variable, a function that uses it.
    """
    files = tuple(files)
    registered = _registered(files)
    found = [one for one in dataflow.storing(name, files, owner, reader) if not _is_emptied(one[1], name)]
    if not found or not all(_runs_in(one, registered) for one in found):
        return []
    return [locations.place(file, statement, syntax.function_of(around)) for file, statement, around in found]


def _registered(files: Sequence[str]) -> set[str]:
    """The names of what is registered as a hook of backward."""
    found = set[str]()
    for file in files:
        for node, _ in syntax.statements(file):
            if isinstance(node, ast.Call) and syntax.call_name(node) in _REGISTERING:
                found |= {name for one in node.args for name in _names_in(one)}
    return found


def _names_in(hook: ast.expr) -> set[str]:
    inside = [one for one in ast.walk(hook) if isinstance(one, (ast.Name, ast.Attribute))]
    return {one.id if isinstance(one, ast.Name) else one.attr for one in inside}


def _is_emptied(statement: ast.stmt, name: str) -> bool:
    """Whether a statement gives a name something new that holds nothing yet, or nothing with a history."""
    given = [value for target, value in syntax.pairs(statement) if ast.unparse(target).rpartition(".")[2] == name]
    return bool(given) and all(_is_new(value) for value in given)


def _is_new(value: ast.expr) -> bool:
    bare = (
        isinstance(value, ast.Call) and not value.args and not value.keywords and isinstance(value.func, ast.Subscript)
    )
    return bare or keeping.is_without_history(value)


def _runs_in(one: Storing, registered: set[str]) -> bool:
    """Whether a statement stands in a hook, or registers a ``lambda`` that does what it does."""
    _, statement, around = one
    function = syntax.innermost_function(around)
    if function is not None and function.name in registered:
        return True
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(syntax.call_name(call) in _REGISTERING for call in calls)
