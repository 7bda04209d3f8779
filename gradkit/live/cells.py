"""The cells of a frame: what its inner functions share with it, and it with the function around it.

Python hands out the values of such variables, but not the cells that hold them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CellType, CodeType, FrameType, FunctionType


def of_frame(frame: FrameType) -> dict[str, CellType]:
    """The cells that a frame uses, by the names of the variables.

    A frame that has ended by an exception holds them. Of one that is running they are those of the functions that share
    them; a variable that no function shares is left out.

    Example:
        >>> import sys
        >>> def outer(x):
        ...     def inner(): return x
        ...     return of_frame(sys._getframe()), inner
        >>> found, inner = outer(1)
        >>> found["x"] is inner.__closure__[0]
        True
    """
    code = frame.f_code
    names = tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))
    if not names:
        return {}
    values = dict(frame.f_locals)
    held = gc.get_referents(frame)
    found = _of_functions([one for one in held if _is_function(one, code)], names, values)
    found |= _in_order([one for one in held if type(one) is CellType], code, values)
    if len(found) < len(names):
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        sharing = [one for one in gc.get_referrers(code, *inner) if type(one) is FunctionType]
        found = _of_functions([one for one in sharing if _fits(one, values, names)], names, values) | found
    return found


def _is_function(thing: object, code: CodeType) -> bool:
    return type(thing) is FunctionType and thing.__code__ is code


def _in_order(held: list[CellType], code: CodeType, values: dict[str, object]) -> dict[str, CellType]:
    """The cells that a frame holds stand in the order of its variables: its own, then those from outside."""
    order = (*code.co_cellvars, *code.co_freevars)
    fits = len(held) == len(order) and all(_holds(cell, name, values) for name, cell in zip(order, held, strict=True))
    return dict(zip(order, held, strict=True)) if fits else {}


def _of_functions(
    functions: Iterable[FunctionType], names: tuple[str, ...], values: dict[str, object]
) -> dict[str, CellType]:
    found: dict[str, CellType] = {}
    for one in functions:
        for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
            if name in names and _holds(cell, name, values):
                found.setdefault(name, cell)
    return found


def _fits(function: FunctionType, values: dict[str, object], names: tuple[str, ...]) -> bool:
    """Whether all that a function shares is what the frame holds under the same names: it may be another run's."""
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return all(_holds(cell, name, values) for name, cell in pairs if name in names)


def _holds(cell: CellType, name: str, values: dict[str, object]) -> bool:
    try:
        return name in values and cell.cell_contents is values[name]
    except ValueError:  # it is empty
        return name not in values
