"""What the parameter table knows of a row: its state, whether it passes a filter, and what comes before what."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from gradkit.records import Parameter

STATES = ("starved", "unused", "reached", "frozen")
MISSING = "missing"
"""Of the state filter: whatever gets no gradient."""


def state(row: Parameter) -> str:
    """``"reached"``, ``"starved"`` or ``"unused"`` (should train, and does not), or ``"frozen"``."""
    if row.reached:
        return "reached"
    if row.should_train:
        return "starved" if row.used else "unused"
    return "frozen"


def passes(row: Parameter, text: str, wanted: str, trainable: bool | None, module: str) -> bool:
    """Whether a row is to be shown.

    Args:
        row: the row.
        text: part of its name or of the class that holds it, in lower case; ``""`` for any.
        wanted: one of ``STATES``, ``MISSING``, or ``""`` for any.
        trainable: its ``requires_grad``; None for either.
        module: dotted path of a module that it is in; ``""`` for any.
    """
    return (
        text in f"{row.name} {row.module}".lower()
        and (not wanted or state(row) == wanted or (wanted == MISSING and not row.reached))
        and trainable in (None, row.requires_grad)
        and (not module or row.name.startswith(f"{module}."))
    )


def modules(rows: Sequence[Parameter]) -> list[str]:
    """The modules that a filter offers: those right below the innermost one that holds everything.

    Example:
        >>> row = Parameter("base.fc.weight", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> from dataclasses import replace
        >>> modules((row, replace(row, name="base.proj.weight")))
        ['base.fc', 'base.proj']
    """
    paths = [tuple(row.name.split(".")[:-1]) for row in rows]
    level = 0
    while paths and len({path[level] if len(path) > level else None for path in paths}) == 1 and len(paths[0]) > level:
        level += 1
    return list(dict.fromkeys(".".join(path[: level + 1]) for path in paths if len(path) > level))


def ordered(rows: Sequence[Parameter], column: str, *, down: bool) -> list[Parameter]:
    """The rows in the order of a column; rows that are alike stay in the order of the model, unknown norms come last.

    Example:
        >>> row = Parameter("h.10.w", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> from dataclasses import replace
        >>> [one.name for one in ordered((row, replace(row, name="h.9.w")), "name", down=False)]
        ['h.9.w', 'h.10.w']
    """
    known = [row for row in rows if column != "norm" or row.grad_norm is not None]
    unknown = [row for row in rows if column == "norm" and row.grad_norm is None]
    return sorted(known, key=_KEYS[column], reverse=down) + unknown


def _natural(row: Parameter) -> str:
    """Numbers in a name count as numbers: ``h.9`` comes before ``h.10``."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(9), row.name)


def _norm(row: Parameter) -> float:
    return math.inf if row.grad_norm is None or math.isnan(row.grad_norm) else row.grad_norm


_KEYS: dict[str, Callable[[Parameter], Any]] = {
    "name": _natural,
    "shape": lambda row: row.numel,
    "trainable": lambda row: not row.requires_grad,
    "mode": lambda row: not row.training,
    "gradient": lambda row: {"starved": 0, "unused": 0, "reached": 1, "frozen": 2}[state(row)],
    "norm": _norm,
}
COLUMNS = tuple(_KEYS)
