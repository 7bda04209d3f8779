"""The tensor on whose account a step raised: no optimizer takes it, or its ``.grad`` is None, as it is no leaf.

Neither error names it. The frames that it passed still hold it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import torch

from gradkit.core import introspection
from gradkit.source import faults, frames, locations

_MISSING = object()


def by_an_optimizer(error: BaseException) -> list[torch.Tensor]:
    """The tensors of a group that an optimizer was handed and refuses as no leaves.

    Example:
        >>> scaled = torch.ones(2, requires_grad=True) * 2
        >>> try: torch.optim.SGD([scaled], lr=0.1)
        ... except ValueError as error: print(by_an_optimizer(error)[0] is scaled)
        True
    """
    for frame, _ in _passed(error):
        if frame.f_code.co_name == "add_param_group" and frames.is_torch_file(frame.f_code.co_filename):
            group = frame.f_locals.get("param_group")
            given = group.get("params") if isinstance(group, dict) else None
            return [one for one in given if _is_computed(one)] if isinstance(given, list) else []
    return []


def without_gradient(error: BaseException) -> list[torch.Tensor]:
    """The tensor whose ``.grad`` the line read that raised: None, as backward fills in that of leaves alone.

    Example:
        >>> scaled = torch.ones(2, requires_grad=True) * 2
        >>> without_gradient(TypeError("unsupported operand type(s) for *: 'float' and 'NoneType'"))
        []
    """
    if not isinstance(error, (TypeError, AttributeError)) or "NoneType" not in introspection.text(error):
        return []
    last = next((one for one in reversed(list(_passed(error))) if frames.is_user_file(one[0].f_code.co_filename)), None)
    node = locations.node_at((last[0].f_code, last[1])) if last is not None else None
    if node is None or last is None:
        return []
    read = (one.value for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr == "grad")
    values: list[Any] = [_value_of(one, last[0]) for one in read]
    return [one for one in values if _is_computed(one) and not one.retains_grad]


def _passed(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of an error, outermost first, each with the instruction that it came to."""
    for one in faults.raised_from(error):
        trace: TracebackType | None = one.__traceback__
        while trace is not None:
            yield trace.tb_frame, trace.tb_lasti
            trace = trace.tb_next


def _is_computed(value: Any) -> bool:
    return introspection.is_a(value, torch.Tensor) and value.requires_grad and not value.is_leaf


def _value_of(read: ast.expr, frame: FrameType) -> object:
    """What a name, or an attribute of one, stands for in a frame; no code of the user's is run."""
    if isinstance(read, ast.Name):
        return frame.f_locals.get(read.id, frame.f_globals.get(read.id, _MISSING))
    if isinstance(read, ast.Attribute):
        owner = _value_of(read.value, frame)
        return introspection.attributes(owner).get(read.attr, _MISSING) if owner is not _MISSING else _MISSING
    return _MISSING
