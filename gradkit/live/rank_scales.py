"""Whether this rank scales its loss as the others do: DistributedDataParallel averages all, and nothing raises.

The ways from a loss to its terms are read before the backwards of a few steps (1 to 8, 10 to 17, 100 to 107 ...). Once
three steps in a row were alike, the rank lays them down in the store, one line of text, if no other rank has; and who
finds another line there asks all ranks. A difference is told only where the source shows that it depends on the rank.
"""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.live import loss_heads
from gradkit.live.loss_heads import Head, Term
from gradkit.live.surroundings import locals_of
from gradkit.report import layout
from gradkit.source import frames
from gradkit.source.by_rank import ByRank, scaled_by_rank
from gradkit.source.locations import whole_line
from gradkit.tracing import ranks

ALIKE = 3
"""Steps in a row whose losses are made alike before other ranks are asked."""
_WINDOW = 8
_MOST_BACKWARDS = 8
_OPERATIONS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Scaled:
    """A line that scales by the rank.

    Attributes:
        place: ``"file:line"``.
        code: the text of that line.
        branch: ``"file:line"`` of the condition that asks for the rank; ``""`` if the line itself does.
        by: the factor, as that of a product; None of a mean or a sum.
        reduction: ``"mean"`` or ``"sum"``; ``""`` of a factor.
    """

    place: str
    code: str
    branch: str = ""
    by: float | None = None
    reduction: str = ""

    def makes(self, mine: Term, other: Term) -> bool:
        """Whether it makes one term other than another rank's.

        Example:
            >>> Scaled("train.py:9", "", by=0.5).makes(Term((0.5,), (), ""), Term((), (), ""))
            True
        """
        factors, reduced = loss_heads.own(mine, other)
        near = self.by is not None and any(abs(self.by - one) <= 1e-9 * abs(one) for one in factors)
        return near or self.reduction in reduced


class Scales:
    """The losses of one rank, step by step.

    Attributes:
        head: how they were made in the last steps that were alike; ``()`` if that is not known.

    Example:
        >>> Scales().is_due
        True
    """

    def __init__(self) -> None:
        self.head: Head = ()
        self._step, self._now, self._heads = 0, list[tuple[Term, ...]](), list[Head]()
        self._laid: dict[int, Head] = {}
        self._optimizers = set[int]()

    @property
    def window(self) -> int:
        """The first of the steps that are looked at together."""
        first = 1
        while first * 10 <= self._step:
            first *= 10
        return first

    @property
    def is_due(self) -> bool:
        """Whether the losses of the next step are looked at."""
        coming = self._step + 1
        return self._step == 0 or coming < self.window + _WINDOW or coming == 10 * self.window

    def heard(self, loss: torch.Tensor) -> None:
        """A backward is about to begin from a loss."""
        if len(self._now) <= _MOST_BACKWARDS:
            self._now.append(loss_heads.terms_of(loss))

    def stepped(self, optimizer: Optimizer) -> str:
        """An optimizer is about to step.

        Returns:
            The line to lay down for other ranks; ``""`` if there is nothing new to be said.
        """
        if self.is_due:
            known = 0 < len(self._now) <= _MOST_BACKWARDS and all(self._now)
            self._heads = [*self._heads, tuple(self._now) if known else ()][-ALIKE:]
        else:  # the next window has to see its own three
            self._heads = []
        self._step, self._now = self._step + 1, []
        self._optimizers.add(id(optimizer))
        alike = len(self._heads) == ALIKE and len(set(self._heads)) == 1 and len(self._optimizers) == 1
        self.head = self._heads[-1] if alike else ()
        return loss_heads.written(self.head) if self.head and self.window not in self._laid else ""

    def laid(self) -> None:
        """The line lies there, or another rank's did."""
        self._laid[self.window] = self.head


def places_of(frame: FrameType | None) -> tuple[Scaled, ...]:
    """The lines of the files that the frames stand in which scale by the rank, with what they come to on this one.

    Args:
        frame: the innermost.
    """
    files, names = dict[str, Any](), dict[str, Any]()
    while frame is not None:
        if frames.is_user_file(frame.f_code.co_filename):
            files.setdefault(frame.f_code.co_filename, frame.f_code)
            names = {**frame.f_globals, **locals_of(frame), **names}
        frame = frame.f_back
    return tuple(one for file, code in files.items() for one in _places(file, code, names))


def _places(file: str, code: Any, names: Mapping[str, Any]) -> Iterator[Scaled]:
    shown = layout.shown_path(file)
    for one in scaled_by_rank(file):
        text = whole_line(code, one.line).text.strip()
        branch = f"{shown}:{one.condition}" if one.condition and one.condition != one.line else ""
        for by, reduction in _values(one, names):
            yield Scaled(f"{shown}:{one.line}", text, branch, by, reduction)


def _values(one: ByRank, names: Mapping[str, Any]) -> Iterator[tuple[float | None, str]]:
    value = value_of(one.factor if one.factor is not None else one.reduction, names)
    if one.factor is None and value in (loss_heads.MEAN, loss_heads.SUM):
        yield None, str(value)
    elif one.factor is not None and isinstance(value, (int, float)) and value:
        yield (1 / value if one.divides else float(value)), ""


def value_of(expression: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """What an expression of constants, settings and the rank comes to; None if that can't be said.

    Example:
        >>> value_of(ast.parse("0.5 if late else 2 * n", mode="eval").body, {"late": False, "n": 4})
        8
    """
    try:
        found = _value(expression, names)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return None
    return found if type(found) in (int, float, bool, str) else None


def _value(node: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return introspection.attributes(_value(node.value, names))[node.attr]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, names) else node.orelse, names)
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_number(node.left, names), _number(node.right, names))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = value_of(node.left, names), value_of(node.comparators[0], names)
        return _OPERATIONS[type(node.ops[0])](left, right)
    if isinstance(node, ast.UnaryOp):
        inner = value_of(node.operand, names)
        return not inner if isinstance(node.op, ast.Not) else -inner if isinstance(node.op, ast.USub) else inner
    return _called(node, names)


def _number(node: ast.expr, names: Mapping[str, Any]) -> float:
    value = value_of(node, names)
    if not isinstance(value, (int, float)):
        raise TypeError
    return value


def _called(node: Any, names: Mapping[str, Any]) -> Any:
    """The rank, how many there are, a variable of the environment, or a number made of one."""
    words = ast.unparse(node.func if isinstance(node, ast.Call) else node.value)
    given = [value_of(one, names) for one in node.args] if isinstance(node, ast.Call) else [value_of(node.slice, names)]
    if words.endswith(("get_rank", "get_world_size")) and not given and ranks.several():
        return torch.distributed.get_rank() if words.endswith("rank") else torch.distributed.get_world_size()
    if words.endswith(("environ", "environ.get", "getenv")):
        return os.environ.get(*given[:2])
    return {"int": int, "float": float, "bool": bool, "str": str}[words](*given)
