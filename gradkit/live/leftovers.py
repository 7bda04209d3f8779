"""Buffers that a program fills on the way to an update and empties after it: what they still hold when its step is
looked at has gone backward already, and would be in the way of another run.

They are told by what the program itself does further down, in the function that waits for the step or around it:
``del buffer[:]``, ``buffer.clear()``, ``buffer = []``, also in a method of the user's, as in ``memory.clear()``.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gradkit.core import introspection
from gradkit.live.candidates import Candidate
from gradkit.live.stack import Point
from gradkit.live.whose import looked_up_in, value_of
from gradkit.source import faults, frames, units
from gradkit.source.syntax import FUNCTIONS

Names = Callable[[str], Any]
_BUFFERS = (list, deque, dict, set)
_MAKES = frozenset(("list", "deque", "dict", "set", "defaultdict", "OrderedDict"))


def of(candidate: Candidate) -> dict[str, Any]:
    """The buffers that the program empties before it comes to this unit again, as far as they hold something.

    Returns:
        Them by the expressions that the program has for them.
    """
    found: dict[int, tuple[str, Any]] = {}
    for point in candidate.stack[candidate.at :]:
        if frames.is_user_file(point.code.co_filename):
            for name, buffer in _further_down(point):
                found.setdefault(id(buffer), (name, buffer))
    return dict(found.values())


def without(buffers: dict[str, Any], step: Callable[[], object]) -> Callable[[], object]:
    """A step that begins with these buffers empty.

    Example:
        >>> kept = [1, 2]
        >>> without({"kept": kept}, lambda: len(kept))()
        0
    """
    return partial(_emptied, tuple(buffers.values()), step)


@faults.on_behalf
def _emptied(buffers: tuple[Any, ...], step: Callable[[], object]) -> object:
    for buffer in buffers:
        buffer.clear()
    return step()


def _further_down(point: Point) -> Iterator[tuple[str, Any]]:
    names = looked_up_in(point)
    for node in _before_it_returns(point):
        if getattr(node, "lineno", 0) > point.line:
            yield from _emptied_by(node, names)
            yield from _emptied_in_method(node, names)


def _before_it_returns(point: Point) -> Iterator[ast.AST]:
    """All that belongs to the outermost loop around a point of a frame; where there is none, to its function."""
    function = units.function_of(point.code, point.lasti, point.line)
    inside = [node for node in _own(function) if isinstance(node, units.LOOPS)] if function is not None else []
    loops = [loop for loop in inside if loop.lineno <= point.line <= (loop.end_lineno or 0)]
    region = min(loops, key=lambda loop: loop.lineno) if loops else function
    return _own(region) if region is not None else iter(())


def _own(region: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a loop or function, without those of functions and classes in it."""
    todo = list(ast.iter_child_nodes(region))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def _emptied_by(node: ast.AST, names: Names) -> Iterator[tuple[str, Any]]:
    """The buffers that a statement empties."""
    for expression in _expressions(node):
        buffer = value_of(expression, names)
        if introspection.is_a(buffer, _BUFFERS) and introspection.size(buffer):
            yield ast.unparse(expression), buffer


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Delete):
        cut = [one for one in node.targets if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice)]
        yield from (one.value for one in cut if one.slice.lower is one.slice.upper is None)  # type: ignore[attr-defined]
    elif isinstance(node, ast.Assign) and _is_empty(node.value):
        yield from (one for one in node.targets if isinstance(one, (ast.Name, ast.Attribute)))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
        yield node.func.value


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _MAKES and not value.args
    return not (getattr(value, "elts", None) or getattr(value, "keys", None)) and isinstance(
        value, (ast.List, ast.Dict)
    )


def _emptied_in_method(node: ast.AST, names: Names) -> Iterator[tuple[str, Any]]:
    """The buffers of an object of the user's that one of its methods empties."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    owner = value_of(node.func.value, names)
    code = getattr(introspection.ask(type(owner), node.func.attr), "__code__", None)
    if code is None or not code.co_argcount or not frames.is_user_file(code.co_filename):
        return
    own, inner = code.co_varnames[0], units.function_of(code, 0, code.co_firstlineno)
    for statement in ast.walk(inner) if inner is not None else ():
        for _, buffer in _emptied_by(statement, {own: owner}.get):
            yield ast.unparse(node.func.value), buffer
