"""Whether all that a condition chooses from is constant: then only the condition depends on what decides it.

``total = 1.0 if score > 0 else 0.0``, ``hits[i] = 1``, ``return torch.ones(1)``. What is kept as it was if the
condition does not hold is one of the things to choose from, and so is what is returned after it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from gradkit.source import dataflow, syntax
from gradkit.source.conditions import Choice, put_in

_MAKERS = frozenset(
    "tensor as_tensor scalar_tensor zeros ones full empty eye arange linspace zeros_like ones_like full_like "
    "rand randn new_zeros new_ones new_full new_tensor float int bool round abs min max".split()
)
_SHAPED = frozenset("zeros_like ones_like new_zeros new_ones zeros ones eye empty".split())
_KEEPS = frozenset("to float double half cpu cuda clone requires_grad_ view reshape squeeze unsqueeze expand".split())
_PARTS = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.IfExp, ast.Starred)
_DEEPEST = 4

Learns = Callable[[int, int], bool]


def among_constants(choice: Choice, learns: Learns) -> bool:
    """Whether a condition chooses among constants alone.

    Args:
        choice: the condition.
        learns: whether what was computed in some lines of its function, from the first to the last, depends on
            anything that should train.

    Returns:
        False also where it cannot be told: by an argument of the function, an attribute, a call of other code.
    """
    reading = _Reading(choice, learns)
    values = list(_values(choice))
    return bool(values) and all(reading.is_constant(one) for one in values)


def _values(choice: Choice) -> Iterator[ast.expr]:
    """All that it chooses from, as expressions."""
    node = choice.node
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
        return
    arms = [x for arm in (*node.body, *node.orelse) for x in ast.walk(arm)]
    for one in arms:
        if isinstance(one, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield from _given(one)
        elif isinstance(one, ast.Expr):
            yield from put_in(one)
        elif isinstance(one, ast.Return) and one.value is not None:
            yield one.value
    if any(isinstance(one, ast.Return) for one in arms):
        later = (s for s in dataflow.statements(choice.code) if s.lineno > (node.end_lineno or node.lineno))
        yield from (s.value for s in later if isinstance(s, ast.Return) and s.value is not None)


def _given(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[ast.expr]:
    """What a statement gives a name, and what that held before."""
    if statement.value is not None:
        yield statement.value
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        yield from (x for x in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]))


class _Reading:
    """Follows names back to what gave them their value, in the function of a condition."""

    def __init__(self, choice: Choice, learns: Learns) -> None:
        self._code, self._node, self._learns = choice.code, choice.node, learns

    def is_constant(self, value: ast.expr, depth: int = 0) -> bool:
        """Whether an expression depends on nothing that should train, as far as it can be read."""
        if isinstance(value, ast.Constant):
            return isinstance(value.value, (int, float))  # a text is said, and no part of a loss
        if depth > _DEEPEST:
            return False
        if isinstance(value, ast.Call):
            return self._is_made(value, depth)
        if isinstance(value, ast.Name):
            return self._holds(value.id)
        if isinstance(value, ast.Subscript):
            return self.is_constant(value.value, depth + 1)
        if isinstance(value, ast.Attribute):
            return syntax.base_name(value) == "torch"
        parts = [x for x in ast.iter_child_nodes(value) if isinstance(x, ast.expr)]
        return isinstance(value, _PARTS) and all(self.is_constant(x, depth + 1) for x in parts)

    def _is_made(self, call: ast.Call, depth: int) -> bool:
        word = syntax.call_name(call)
        if isinstance(call.func, ast.Attribute) and word in _KEEPS:
            return self.is_constant(call.func.value, depth + 1)
        given = [*call.args, *(one.value for one in call.keywords if one.arg not in ("device", "dtype"))]
        return word in _SHAPED or (word in _MAKERS and all(self.is_constant(x, depth + 1) for x in given))

    def _holds(self, name: str) -> bool:
        """Whether a variable got all its values, besides in the branches, from what does not learn."""
        giving = [s for s in dataflow.statements(self._code) if name in dataflow.written(s) and not self._is_inside(s)]
        plain = all(isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)) for s in giving)
        return plain and bool(giving) and not any(self._learns(s.lineno, s.end_lineno or s.lineno) for s in giving)

    def _is_inside(self, statement: ast.stmt) -> bool:
        first, last = self._node.lineno, self._node.end_lineno or self._node.lineno
        return not isinstance(self._node, ast.IfExp) and first <= statement.lineno <= last
