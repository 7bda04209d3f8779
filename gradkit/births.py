"""Parameters and Variables that are made while a step runs: torch makes them unseen by a function mode.

Calls of these classes are heard by their metaclasses while a run lasts.
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

from gradkit import patches
from gradkit.faults import on_behalf

PARAMETER, COPY, VARIABLE = "Parameter", "deepcopy", "Variable"
NAMES = frozenset((PARAMETER, VARIABLE))

Heard = Callable[[str, torch.Tensor, torch.Tensor, FrameType], None]


@contextlib.contextmanager
def heard(tell: Heard) -> Iterator[None]:
    """While the block runs, ``tell(name, made, data, frame)`` is called for each that this thread makes.

    ``name`` is ``"Parameter"``, ``"deepcopy"`` (a Parameter that ``copy.deepcopy`` makes of another) or ``"Variable"``.
    """
    thread = threading.get_ident()

    @on_behalf
    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = type.__call__(cls, *args, **kwargs)
        data = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
        if data is not None and isinstance(made, torch.Tensor) and threading.get_ident() == thread:
            frame = sys._getframe(1)
            copied = frame.f_code.co_filename == parameters.__file__
            tell(VARIABLE if cls is Variable else COPY if copied else PARAMETER, made, data, frame)
        return made

    # Their classes are left alone: a class that is changed is slow from then on, and every call reads parameters.
    makers: tuple[Any, ...] = (type(nn.Parameter), type(Variable))
    with patches.undone():
        for maker in makers:
            patches.replace(maker, "__call__", make)
        yield
