"""What the backward of a custom Function computes anew and asks a gradient of, although autograd has not recorded it.

In a backward without ``create_graph`` grad mode is off. A result that was computed there has no history: to ask a
gradient of it raises, and once it was told to require grad gives None for all that it was computed from.
Source: https://pytorch.org/docs/stable/notes/extending.html#extending-torch-autograd
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.autograd import function
from torch.overrides import TorchFunctionMode

from gradkit.core import patches
from gradkit.core.trace import Chain
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.ledger import leaves

_APPLY = function.BackwardCFunction.apply.__code__
_ENDS = frozenset(("detach", "detach_", "data", "grad"))
_Known = dict[int, tuple["weakref.ref[torch.Tensor]", Chain]]


@dataclass(frozen=True)
class Recomputed:
    """What the backwards of custom Functions computed anew without a history, and asked a gradient of.

    Attributes:
        chains: the user's frames of the first call of each, innermost first and up to the Function's backward.
        runs: how many times the step was run for it.
    """

    chains: tuple[Chain, ...] = ()
    runs: int = 0


class Recomputing(Intervention):
    """Watches the backwards of custom Functions in a run.

    Attributes:
        found: of each result that a gradient was asked of in vain, the user's frames of the first call that computed it
            from what requires grad, innermost first and up to the Function's backward.
    """

    def __init__(self) -> None:
        self.found: dict[Chain, None] = {}
        self._computed: _Known = {}
        self._flagged: _Known = {}

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hear what runs inside of each backward, and what a gradient is asked of there."""
        run: Any = getattr(torch.autograd, "_engine_run_backward", None)
        if run is None:
            yield
            return

        @on_behalf
        def engine(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_in_backward(sys._getframe(1)):
                self._asked(outputs)
            with _Hearing(self):
                return run(outputs, *args, **kwargs)

        with patches.undone():
            patches.replace(torch.autograd, "_engine_run_backward", engine)
            yield

    def heard(self, name: str, given: list[Any], result: Any, frame: FrameType) -> None:
        """A call was carried out."""
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        if name in ("requires_grad_", "requires_grad=") and tensors:
            known = self._computed.pop(id(tensors[0]), None)
            if known is not None and known[0]() is tensors[0]:
                self._flagged[id(tensors[0])] = known
        elif not torch.is_grad_enabled() and name not in _ENDS and _is_in_backward(frame):
            self._compute(tensors, result, frame)

    def _compute(self, tensors: list[torch.Tensor], result: Any, frame: FrameType) -> None:
        before = (self._computed.get(id(one)) for one in tensors)
        chain = next((one[1] for one, tensor in zip(before, tensors, strict=True) if one and one[0]() is tensor), ())
        if not chain and any(one.requires_grad and one.is_leaf for one in tensors):
            chain = frames.chain(frame, _APPLY)
        for made in leaves([result]) if chain else ():
            if isinstance(made, torch.Tensor) and made.is_floating_point() and not made.requires_grad:
                self._computed[id(made)] = (weakref.ref(made), chain)

    def _asked(self, outputs: Any) -> None:
        for one in outputs:
            known = self._computed.get(id(one)) or self._flagged.get(id(one))
            if isinstance(one, torch.Tensor) and one.grad_fn is None and known is not None and known[0]() is one:
                self.found[known[1]] = None


class _Hearing(TorchFunctionMode):
    def __init__(self, told: Recomputing) -> None:
        super().__init__()
        self._told = told

    @on_behalf
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            name = func.__self__.__name__ + ("=" if name == "__set__" else "")
        result = func(*args, **kwargs)
        self._told.heard(name, leaves((*args, *kwargs.values())), result, sys._getframe(1))
        return result


def _is_in_backward(frame: FrameType | None) -> bool:
    """Whether a frame runs inside of the backward of a custom Function."""
    while frame is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    return frame is not None
