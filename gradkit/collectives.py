"""Hear what ``torch.distributed`` does: its collectives fill tensors from below, where no function mode listens.

All of them end in a method of ``ProcessGroup``; while a run lasts, those methods are wrapped.
Source: https://pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from gradkit import patches, ranks
from gradkit.faults import on_behalf

Carried = Callable[[], Any]
Heard = Callable[[str, list[Any], list[Any], Carried, FrameType], Any]

_FILLING = {
    "allgather": "all_gather", "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor", "gather": "gather", "scatter": "scatter",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single", "all_to_all_single": "all_to_all_single",
}  # fmt: skip
_IN_PLACE = {"allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce"}


@contextlib.contextmanager
def heard(tell: Heard) -> Iterator[None]:
    """While the block runs, ``tell(name, written, read, carry_out, frame)`` is called for each collective.

    Args:
        tell: carries the collective out by ``carry_out()`` and returns what that returned. ``written`` and ``read`` are
            tensors or lists of such, ``frame`` is that of the caller.
    """
    group = getattr(sys.modules.get("torch.distributed"), "ProcessGroup", None)
    if group is None or not torch.distributed.is_initialized():
        yield
        return
    with patches.undone():
        for name in (*_FILLING, *_IN_PLACE):
            if name in vars(group):
                patches.replace(group, name, _wrapped(name, getattr(group, name), tell))
        yield


def _wrapped(name: str, original: Any, tell: Heard) -> Any:
    @functools.wraps(original)
    def collective(group: Any, *args: Any, **kwargs: Any) -> Any:
        ranks.arrive(group)
        written, read = list(args[:1]), list(args[1:2] if name in _FILLING else args[:1])

        @on_behalf
        def carry_out() -> Any:
            return original(group, *args, **kwargs)

        return tell(_FILLING.get(name) or _IN_PLACE[name], written, read, carry_out, sys._getframe(1))

    return collective
