"""Where a file scales something differently from rank to rank: a factor, a mean or a sum that asks for the rank.

Only what reads no data counts: a weight that is the share of this rank's samples is right, and differs as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gradkit.source import locations, syntax

_RANK = re.compile(
    r"(^|_)(rank|hostname)($|_)|get_rank|is_main|is_master|main_process|process_index|getenv|environ", re.I
)
_CALLS = frozenset("get_rank get_world_size int float bool str get getenv gethostname max min".split())
_PLAIN = (
    ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call,
    ast.Subscript, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_MEANS = ("mean", "sum")
_DEEPEST = 4


@dataclass(frozen=True)
class ByRank:
    """A place that scales by the rank.

    Attributes:
        line: of the factor, or of the mean or sum.
        condition: the line of the ``if`` that asks for the rank; 0 if the factor itself does.
        divides: the factor is a divisor.
        factor: the expression; None of a mean or a sum.
        reduction: the expression that says ``"mean"`` or ``"sum"``; None of a factor.
    """

    line: int
    condition: int
    divides: bool = False
    factor: ast.expr | None = None
    reduction: ast.expr | None = None


def scaled_by_rank(file: str) -> tuple[ByRank, ...]:
    """The places of a file that scale by the rank, in the order in which they stand.

    Example:
        >>> scaled_by_rank("no such file.py")
        ()
    """
    tree = locations.tree_of(file)
    return _found(tree) if tree is not None else ()


@lru_cache(maxsize=16)
def _found(tree: ast.Module) -> tuple[ByRank, ...]:
    return tuple(sorted(_Asked(tree).places(), key=lambda one: one.line))


class _Asked:
    """What of a file asks for the rank, and reads nothing else."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = syntax.Tree(tree)
        self._given: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
        for node in self._tree.nodes:
            for target, value in syntax.pairs(node):
                self._given.setdefault(ast.unparse(target), []).append((node, value))

    def places(self) -> Iterator[ByRank]:
        for node in self._tree.nodes:
            for made in _scalings(node):
                value = made.factor if made.factor is not None else made.reduction
                if value is None or not self._is_plain(value):
                    continue
                condition = self._condition(node)
                if condition or self._asks(value):
                    yield ByRank(made.line, condition, made.divides, made.factor, made.reduction)

    def _condition(self, node: ast.AST) -> int:
        """The line of the innermost condition round a node that asks for the rank, within its function."""
        around = self._tree.inside(node)
        for outer in reversed(around):
            if isinstance(outer, (*syntax.FUNCTIONS, ast.Lambda)):
                return 0
            inside_test = isinstance(outer, (ast.If, ast.IfExp)) and (outer.test is node or outer.test in around)
            if isinstance(outer, (ast.If, ast.IfExp)) and not inside_test and self._is_rank(outer.test):
                return outer.lineno
        return 0

    def _is_rank(self, test: ast.expr) -> bool:
        return self._asks(test) and self._is_plain(test)

    def _asks(self, value: ast.AST, depth: int = 0) -> bool:
        """Whether a value is another on another rank, as far as names tell."""
        for node in ast.walk(value):
            word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
            if isinstance(word, str) and _RANK.search(word):
                return True
            if isinstance(node, (ast.Name, ast.Attribute)) and depth < _DEEPEST:
                for made, given in self._given.get(ast.unparse(node), ()):
                    if self._asks(given, depth + 1) or (depth < _DEEPEST - 1 and self._condition(made)):
                        return True
        return False

    def _is_plain(self, value: ast.AST, depth: int = 0) -> bool:
        """Whether a value is made of constants, settings and the rank alone."""
        for node in ast.walk(value):
            if not isinstance(node, _PLAIN):
                return False
            if isinstance(node, ast.Call) and syntax.call_name(node) not in _CALLS:
                return False
            if isinstance(node, ast.Subscript) and not ast.unparse(node.value).endswith("environ"):
                return False
            if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim"):
                return False
            known = self._given.get(ast.unparse(node), ()) if isinstance(node, (ast.Name, ast.Attribute)) else ()
            if depth < _DEEPEST and not all(self._is_plain(given, depth + 1) for _, given in known):
                return False
        return True


def _scalings(node: ast.AST) -> Iterator[ByRank]:
    """What a node may scale by."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Mult, ast.Div)):
        divides = isinstance(node.op, ast.Div)
        sides = [node.value] if isinstance(node, ast.AugAssign) else [node.right, *([] if divides else [node.left])]
        yield from (ByRank(node.lineno, 0, divides, factor=one) for one in sides)
    elif isinstance(node, ast.Call):
        yield from (ByRank(node.lineno, 0, reduction=one.value) for one in node.keywords if one.arg == "reduction")
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MEANS:
            yield ByRank(node.lineno, 0, reduction=ast.Constant(node.func.attr))
