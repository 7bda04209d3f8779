"""Calls that give a tensor new values throughout, in place: the history of the old ones stays.

``state.zero_()``, ``state *= 0``, ``state[:] = 0``, ``state.copy_(start)``, ``state.data.zero_()``: autograd goes on
from what such a call has made to what was there before. Where a backward has freed that, the next one raises.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from gradkit.core.operations import OVERWRITES
from gradkit.core.trace import Call, Trace
from gradkit.source import locations, syntax

_TIMES = frozenset("mul_ __imul__".split())
_ALIASES = frozenset("data detach".split())
_MOST = 20


def of_value(trace: Trace, number: int, freed: Collection[int]) -> Call | None:
    """The call that gave a value all of its numbers in place, if what stood there before has a history that is gone.

    Args:
        freed: indices of the calls whose history was freed in this run; what is older than the run counts as well.
    """
    for _ in range(_MOST):
        before = trace.rewritten.get(number)
        call = trace.maker(number) if before is not None else None
        if call is None or before is None or not _rewrites(trace, call, before):
            return None
        if _is_gone(trace, before, freed):
            return call
        number = before
    return None


def _is_gone(trace: Trace, number: int, freed: Collection[int]) -> bool:
    """Whether a backward has freed some of the history of a value, which that loss need not have used itself."""
    was = trace.values[number]
    if not was.requires_grad or was.leaf:
        return False
    behind = (trace.values[one] for one in trace.sources([number], lambda one: trace.values[one].requires_grad))
    return was.past or any(one.maker in freed for one in behind)


def of_its_numbers(trace: Trace, call: Call, number: int) -> Call | None:
    """The call that gave a value, which another call uses, new numbers behind autograd's back: by its ``.data``."""
    for one in call.inputs:
        before, maker = trace.rewritten.get(one), trace.values[one].maker
        alias = trace.values[before].maker if before is not None else -1
        if before is None or alias < 0 or trace.calls[alias].name not in _ALIASES:
            continue
        if number in trace.calls[alias].inputs and _rewrites(trace, trace.calls[maker], before):
            return trace.calls[maker]
    return None


def _rewrites(trace: Trace, call: Call, before: int) -> bool:
    """Whether a call leaves nothing of the numbers that it found, and takes no others with a history."""
    if any(trace.values[one].requires_grad for one in call.inputs if one != before):
        return False
    if call.name in OVERWRITES or call.name == "copy_":
        return True
    node = locations.node_at(call.chain[0]) if call.chain else None
    if call.name == "__setitem__":
        return isinstance(node, ast.Subscript) and _is_all(node.slice)
    factor = node.value if isinstance(node, ast.AugAssign) else None
    if isinstance(node, ast.Call):
        factor = syntax.argument(node, "other", 0)
    return call.name in _TIMES and isinstance(factor, ast.Constant) and factor.value == 0


def _is_all(index: ast.expr) -> bool:
    """Whether an index takes in the whole of a tensor.

    Example:
        >>> [_is_all(ast.parse(f"x[{i}]", mode="eval").body.slice) for i in (":", "...", ":, :", "0", "1:")]
        [True, True, True, False, False]
    """
    if isinstance(index, ast.Tuple):
        return all(map(_is_all, index.elts))
    if isinstance(index, ast.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return isinstance(index, ast.Constant) and index.value is ...
