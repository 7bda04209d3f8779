"""Lines of the user's source that take labels out of a loss: by the index that it ignores, and by cutting rows short.

What made the labels ran before the step, as a rule, in a data set or a function that collates: nothing that was seen
tells it. Every answer is a guess with evidence, and is reported as likely.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from gradkit.core.records import Location
from gradkit.core.trace import Point
from gradkit.source import locations, syntax
from gradkit.source.helpers import Helpers, Part

_DEEPEST = 6
_FILLS = frozenset("masked_fill masked_fill_ full full_like new_full fill_ where index_fill index_fill_".split())
_BOUNDS = frozenset("min max torch.clamp torch.minimum torch.maximum np.minimum np.maximum".split())


def ignored_index_of(point: Point | None, files: Iterable[str] = ()) -> int:
    """The ``ignore_index`` that a call of a loss function was given, as it is written; torch's -100 if none is.

    Args:
        files: the user's, where a criterion may have been made that is called here: if all of it have one index.
    """
    node, files = locations.node_at(point) if point is not None else None, tuple(files)
    given = _asked(node) if isinstance(node, ast.Call) else None
    if point is not None and given is not None:
        found = _numbers(Part(point[0].co_filename, given), Helpers(files))
    else:
        told = [Part(file, one) for file in files for node in syntax.nodes(file) if (one := _asked(node)) is not None]
        found = [one for part in told for one in _numbers(part, Helpers(files))]
    values = {_number(one.node) for one in found} - {None}
    return next(iter(values)) or 0 if len(values) == 1 else -100


def _asked(node: ast.AST) -> ast.expr | None:
    told = [k.value for k in node.keywords if k.arg == "ignore_index"] if isinstance(node, ast.Call) else []
    return next(iter(told), None)


def _numbers(value: Part, helpers: Helpers, depth: int = 0) -> list[Part]:
    """Where the whole numbers are written that an expression may stand for."""
    if _number(value.node) is not None:
        return [value]
    if depth > _DEEPEST or not isinstance(value.node, (ast.Name, ast.Attribute)):
        return []
    if isinstance(value.node, ast.Name):
        given = helpers.given(value)
    else:
        given = helpers.set_to(value.node.attr) or _settings(value.node.attr, value.file)
    return [end for one in given for end in _numbers(one, helpers, depth + 1)]


def _settings(name: str, file: str) -> list[Part]:
    """What a setting of a name is given in a file: by a keyword, or in the body of a class."""
    nodes = syntax.nodes(file)
    handed = [k.value for node in nodes if isinstance(node, ast.Call) for k in node.keywords if k.arg == name]
    bodies = [one for node in nodes if isinstance(node, ast.ClassDef) for one in node.body]
    pairs = [pair for one in bodies for pair in syntax.pairs(one)]
    return [Part(file, one) for one in (*handed, *(v for t, v in pairs if isinstance(t, ast.Name) and t.id == name))]


def ignored_label_lines(files: Iterable[str], index: int, widths: Collection[int] = ()) -> tuple[Location, ...]:
    """The lines that may have written the ignored index, those that fit equally well.

    A write by position (``labels[:, :n] = -100``) fits better than one that picks its places by comparing
    (``labels[ids == pad] = -100``) or keeps to a bound (``labels[:, :min(n, 9)] = -100``): those leave something.
    So does one that ends before the rows do.

    Args:
        widths: how long rows of the data are, of any data of whole numbers.

    Example:
        >>> import linecache
        >>> text = ["labels[ids == 0] = -100\\n", "labels[:, :9] = -100\\n"]
        >>> linecache.cache["data.py"] = (1, None, text, "data.py")
        >>> [[spot.line for spot in ignored_label_lines([file], -100)] for file in ("/data.py", "data.py")]
        [[], [2]]
    """
    found = [match for file in dict.fromkeys(files) for match in _writes(file, index, widths)]
    best = max((score for score, _ in found), default=0)
    return tuple(spot for score, spot in found if score == best)


def _writes(file: str, index: int, widths: Collection[int]) -> Iterator[tuple[int, Location]]:
    named = {
        target.id
        for node, _ in syntax.statements(file)
        if isinstance(node, ast.Assign) and _number(node.value) == index
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node, around in syntax.statements(file):
        where = _places(node, index, named)
        if where is None:
            continue
        parts = [x for part in where for x in ast.walk(part)]
        bounded = any(isinstance(x, (ast.Name, ast.Attribute)) and ast.unparse(x) in _BOUNDS for x in parts)
        bounded = bounded or any(0 < end < max(widths, default=0) for x in parts if (end := _end(x)) is not None)
        picked = bounded or any(isinstance(x, ast.Compare) for x in parts)
        yield (1 if picked else 2), locations.place(file, node, syntax.function_of(around))


def _places(node: ast.AST, index: int, named: set[str]) -> list[ast.expr] | None:
    """What says where a statement or expression writes the index; None if it does not write it."""

    def is_it(value: ast.expr) -> bool:
        words = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
        return _number(value) == index or words in named or "ignore" in words.lower()

    if isinstance(node, ast.Assign) and is_it(node.value):
        slices = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
        return slices or None
    if isinstance(node, ast.Call):
        name = syntax.call_name(node)
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


def _end(node: ast.AST) -> int | None:
    """Where a slice from the start ends, if that is written out."""
    return _number(node.upper) if isinstance(node, ast.Slice) and node.lower is None and node.upper else None


def cut_short(masked: Location, widths: Collection[int], files: Iterable[str]) -> Location | None:
    """Where the length is written to which masked labels and what comes behind them are cut: ``([-100] * n + a)[:9]``.

    None if they are not, if that is not the length of the rows of the data, or if several lines may have given it.

    Args:
        masked: the line that takes labels out.
        widths: as in ``ignored_label_lines``.
    """
    nodes = (one for one in syntax.nodes(masked.file) if isinstance(one, ast.BinOp) and one.lineno == masked.line)
    repeated = (one for one in nodes if isinstance(one.op, ast.Mult) and one.col_offset + 1 == masked.column)
    node = next(repeated, None)
    if node is None:
        return None
    mask = Part(masked.file, node)
    joined = [one for one in mask.around() if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)]
    whole = next((one for one in joined if any(x is node for x in ast.walk(one.left))), None)
    helpers, found = Helpers(files), dict[tuple[str, int], Location]()
    for bound in _cuts(mask, whole) if whole is not None else ():
        for number in _numbers(Part(masked.file, bound), helpers):
            if _number(number.node) in widths:
                spot = number.place()
                found[(spot.file, spot.line)] = spot
    return next(iter(found.values())) if len(found) == 1 else None


def _cuts(mask: Part, whole: ast.BinOp) -> Iterator[ast.expr]:
    """Where slices from the start end that a sum of lists goes through, as it stands there or by its name."""
    around = mask.around()
    own = next((one for one in reversed(around) if isinstance(one, ast.stmt)), None)
    pairs = syntax.pairs(own) if own is not None else []
    names = {target.id for target, value in pairs if value is whole and isinstance(target, ast.Name)}
    for node in ast.walk(mask.scope()):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.lower is None:
            named = isinstance(node.value, ast.Name) and node.value.id in names
            if node.slice.upper is not None and (node.value is whole or named):
                yield node.slice.upper
