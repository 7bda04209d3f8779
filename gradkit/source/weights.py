"""Why the number that a value is multiplied by may be zero: read off the source from the multiplication backwards.

Only what is seldom meant is named: a division of whole numbers, and a default of 0 for a key that is not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import addends, helpers, locations, syntax
from gradkit.source.syntax import FUNCTIONS

FLOORED, DEFAULT = "floored", "default"
_DEEPEST = 6


@dataclass(frozen=True)
class Reason:
    """Why a weight is zero.

    Attributes:
        kind: ``"floored"`` (a whole-number division) or ``"default"`` (a key that is not found counts 0).
        location: the expression.
    """

    kind: str
    location: Location


def zero_weight(chain: Chain, weighed: Chain, files: Sequence[str]) -> Reason | None:
    """Why the number is zero that is multiplied by at the innermost of some frames; None if the source does not tell.

    Args:
        weighed: where what it is multiplied with was made.

    Example:
        >>> zero_weight((), (), []) is None
        True
    """
    node = locations.node_at(chain[0]) if chain else None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = [node.left, node.right]
    weights = [side for side in sides if not _makes(side, weighed)]
    deep = _DEEPEST if len(weights) == 1 else 0
    return next(_Search(tuple(files)).reasons(weights if deep else sides, chain, deep), None)


def _makes(side: ast.expr, weighed: Chain) -> bool:
    """Whether one side of a multiplication is, or names, what was made at some frames."""
    made = locations.node_at(weighed[0]) if weighed else None
    if made is not None and any(part is made for part in ast.walk(side)):
        return True
    name = addends.name_of(weighed)
    return isinstance(side, ast.Name) and side.id == name


class _Search:
    """Follows expressions backwards: through variables, arguments, and what the user's functions return."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._seen: set[int] = set()

    def reasons(self, values: Sequence[ast.AST], chain: Chain, left: int) -> Iterator[Reason]:
        for value in values:
            yield from self._reasons(value, chain, left)

    def _reasons(self, value: ast.AST, chain: Chain, left: int) -> Iterator[Reason]:
        if left < 0 or id(value) in self._seen or not chain:
            return
        self._seen.add(id(value))
        for node in ast.walk(value):
            kind = _kind(node)
            if kind:
                yield Reason(kind, _place(node, chain[0]))
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from self._of_name(node, chain, left - 1)
            elif isinstance(node, ast.Call):
                yield from self._of_call(node, left - 1)

    def _of_name(self, name: ast.Name, chain: Chain, left: int) -> Iterator[Reason]:
        """What a variable was given: in the function, or by the one that called it."""
        function = _function(chain[0])
        if function is None:
            return
        stored = syntax.assigned(function, name.id, name.lineno + 1)
        if stored is not None:
            yield from self._reasons(stored, chain, left)
        elif name.id in syntax.parameters(function):
            outer = next((at for at, point in enumerate(chain) if _function(point) is not function), len(chain))
            call = locations.node_at(chain[outer]) if outer < len(chain) else None
            given = syntax.handed(call, function, name.id) if isinstance(call, ast.Call) else None
            if given is not None:
                yield from self._reasons(given, chain[outer:], left)

    def _of_call(self, call: ast.Call, left: int) -> Iterator[Reason]:
        """What the user's only function of that name returns."""
        found = helpers.named(syntax.call_name(call), self._files)
        if len(found) != 1 or left < 0:
            return
        file, function = found[0].file, found[0].node
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                for value in (node.value, *_stored(function, node)):
                    for part in ast.walk(value):
                        kind = _kind(part)
                        if kind:
                            yield Reason(kind, locations.place(file, part, function.name))
                        elif isinstance(part, ast.Call):
                            yield from self._of_call(part, left - 1)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return FLOORED
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        default = node.args[1] if len(node.args) == 2 else None
        zero = isinstance(default, ast.Constant) and type(default.value) in (int, float) and default.value == 0
        return DEFAULT if zero else ""
    return ""


def _place(node: ast.AST, point: Point) -> Location:
    return locations.place(point[0].co_filename, node, locations.qualified_name(point[0]))


def _function(point: Point) -> syntax.Function | None:
    """The function whose names hold at a point; a comprehension has those of the one around it."""
    tree, line = locations.tree_at(point[0]), locations.line_of(point)
    found = [one for one in ast.walk(tree) if isinstance(one, FUNCTIONS)] if tree is not None else []
    holding = [one for one in found if one.lineno <= line <= (one.end_lineno or line)]
    return min(holding, key=lambda one: (one.end_lineno or line) - one.lineno, default=None)


def _stored(function: syntax.Function, end: ast.Return) -> Iterator[ast.expr]:
    """What the variables hold that a return names."""
    for name in ast.walk(end):
        if isinstance(name, ast.Name):
            stored = syntax.assigned(function, name.id, end.lineno)
            if stored is not None:
                yield stored
