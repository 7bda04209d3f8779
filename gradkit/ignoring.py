"""Look through the user's source for the line that takes labels out of the loss by writing the ignored index."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit import frames, sources
from gradkit.records import Location
from gradkit.traces import Point

_FILLS = frozenset("masked_fill masked_fill_ full full_like new_full fill_ where index_fill index_fill_".split())
_BOUNDS = frozenset("min max torch.clamp torch.minimum torch.maximum np.minimum np.maximum".split())


def index_of(point: Point | None) -> int:
    """The ``ignore_index`` that a call of a loss function was given, as written there; torch's -100 if none is."""
    node = frames.node_at(point) if point is not None else None
    given = [k.value for k in node.keywords if k.arg == "ignore_index"] if isinstance(node, ast.Call) else []
    value = _number(given[0]) if given else None
    return -100 if value is None else value


def writing(files: Iterable[str], index: int) -> tuple[Location, ...]:
    """The lines that may have written the ignored index, those that fit equally well.

    A write by position (``labels[:, :n] = -100``) fits better than one that picks its places by comparing
    (``labels[ids == pad] = -100``) or keeps to a bound (``labels[:, :min(n, 9)] = -100``): those leave something.

    Example:
        >>> import linecache
        >>> text = ["labels[ids == 0] = -100\\n", "labels[:, :9] = -100\\n"]
        >>> linecache.cache["data.py"] = (1, None, text, "data.py")
        >>> [spot.line for spot in writing(["/data.py"], -100)], [spot.line for spot in writing(["data.py"], -100)]
        ([], [2])
    """
    found = [match for file in dict.fromkeys(files) for match in _writes(file, index)]
    best = max((score for score, _ in found), default=0)
    return tuple(spot for score, spot in found if score == best)


def _writes(file: str, index: int) -> Iterator[tuple[int, Location]]:
    named = {
        target.id
        for node, _ in sources.statements(file)
        if isinstance(node, ast.Assign) and _number(node.value) == index
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node, around in sources.statements(file):
        where = _places(node, index, named)
        if where is None:
            continue
        parts = [x for part in where for x in ast.walk(part)]
        bounded = any(isinstance(x, (ast.Name, ast.Attribute)) and ast.unparse(x) in _BOUNDS for x in parts)
        picked = bounded or any(isinstance(x, ast.Compare) for x in parts)
        yield (1 if picked else 2), frames.place(file, node, sources.function_of(around))


def _places(node: ast.AST, index: int, named: set[str]) -> list[ast.expr] | None:
    """What says where a statement or expression writes the index; None if it does not write it."""

    def is_it(value: ast.expr) -> bool:
        words = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
        return _number(value) == index or words in named or "ignore" in words.lower()

    if isinstance(node, ast.Assign) and is_it(node.value):
        slices = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
        return slices or None
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*node.args, *(k.value for k in node.keywords if k.arg in ("value", "fill_value"))]
        return given if name in _FILLS and any(is_it(value) for value in given) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        lists = [side for side in (node.left, node.right) if isinstance(side, ast.List)]
        return [node] if any(len(x.elts) == 1 and is_it(x.elts[0]) for x in lists) else None
    return None


def _number(value: ast.expr) -> int | None:
    sign = -1 if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else 1
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    given = inner.value if isinstance(inner, ast.Constant) else None
    return sign * given if isinstance(given, int) and not isinstance(given, bool) else None
