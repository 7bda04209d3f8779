"""Where a parameter's value was taken out of it before the step: while its model was built, its number or a bare copy.

``nn.Dropout(self.rate.item())`` in ``__init__`` holds a number, and nothing that the step computes with that comes back
to the parameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.source import attributes, frames, locations
from gradkit.source.syntax import FUNCTIONS, paths

NUMBER, ARRAY, COPY, BARE = "number", "array", "copy", "bare"
_BY = {"item": NUMBER, "tolist": NUMBER, "numpy": ARRAY, "detach": COPY, "data": BARE}
_BY_CALL = frozenset(("float", "int", "bool"))
_TALK = frozenset(("print", "extra_repr", "__repr__", "info", "debug", "log", "format", "warning"))


def taken_out_at(owner: type, attribute: str) -> tuple[str, Location] | None:
    """As what the value of ``self.<attribute>`` is taken out, one of this module's constants; and the line that does.

    Args:
        owner: the class that holds it.

    Returns:
        None where a line of the class's reads it in any other way, or nothing takes its value out.

    Example:
        >>> taken_out_at(dict, "scale") is None
        True
    """
    found = list(_reads(owner, attribute))
    if not found or any(kind is None for kind, _ in found):
        return None
    kind, place = found[0]
    return (kind, place) if kind is not None else None


def _reads(owner: type, attribute: str) -> Iterator[tuple[str | None, Location]]:
    for file, body in attributes.bodies(owner):
        if not frames.is_user_file(file):
            continue
        for function in (node for node in body.body if isinstance(node, FUNCTIONS) and node.name not in _TALK):
            for path in paths(function):
                if _is_own(path[-1], attribute) and not _is_told(path):
                    kind, node = _taken(path)
                    yield kind, locations.place(file, node, f"{body.name}.{function.name}")


def _is_own(node: ast.AST, attribute: str) -> bool:
    named = isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)
    return named and isinstance(node.value, ast.Name) and node.value.id == "self"  # type: ignore[attr-defined]


def _is_told(path: Iterable[ast.AST]) -> bool:
    """Whether a value only goes into a text."""
    return any(
        isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _TALK)
        for node in path
    )


def _taken(path: list[ast.AST]) -> tuple[str | None, ast.AST]:
    """As what the value is taken out, and the node that does; (None, the read) where it is used as it is."""
    for outer, inner in zip(path[-2::-1], path[:0:-1], strict=False):
        if isinstance(outer, ast.stmt):
            break
        if isinstance(outer, ast.Attribute) and outer.attr in _BY:
            return _BY[outer.attr], outer
        if isinstance(outer, ast.Call) and inner is not outer.func:
            name = getattr(outer.func, "id", "")
            if name in _BY_CALL:
                return NUMBER, outer
            if not _computes(outer):
                break
    return None, path[-1]


def _computes(call: ast.Call) -> bool:
    """Whether a call is one of torch's functions."""
    return ast.unparse(call.func).split(".")[0] in ("torch", "F")
