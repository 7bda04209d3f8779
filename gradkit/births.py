"""Parameters and Variables that are made while a step runs: torch makes them unseen by a function mode.

``nn.Parameter.__new__`` and ``torch.autograd.Variable.__new__`` are wrapped while a run lasts.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.nn import parameter as parameters

PARAMETER, COPY, VARIABLE = "Parameter", "deepcopy", "Variable"
NAMES = frozenset((PARAMETER, VARIABLE))

Heard = Callable[[str, torch.Tensor, torch.Tensor, FrameType], None]


@contextlib.contextmanager
def heard(tell: Heard) -> Iterator[None]:
    """While the block runs, ``tell(name, made, data, frame)`` is called for each that this thread makes.

    ``name`` is ``"Parameter"``, ``"deepcopy"`` (a Parameter that ``copy.deepcopy`` makes of another) or ``"Variable"``.
    """
    thread = threading.get_ident()
    original = nn.Parameter.__new__
    legacy = torch._C._LegacyVariableBase.__new__  # noqa: SLF001  Variable has no __new__ of its own

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = original(cls, data, requires_grad)
        if isinstance(data, torch.Tensor) and threading.get_ident() == thread:
            frame = sys._getframe(1)
            tell(COPY if frame.f_code.co_filename == parameters.__file__ else PARAMETER, made, data, frame)
        return made

    def variable(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = legacy(cls, *args, **kwargs)
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, torch.Tensor) and isinstance(made, torch.Tensor) and threading.get_ident() == thread:
            tell(VARIABLE, made, data, sys._getframe(1))
        return made

    before = vars(Variable).get("__new__")
    nn.Parameter.__new__ = staticmethod(parameter)  # type: ignore[method-assign]
    Variable.__new__ = staticmethod(variable)  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Parameter.__new__ = original  # type: ignore[method-assign]
        if before is None:
            del Variable.__new__
        else:
            Variable.__new__ = before  # type: ignore[method-assign]
