"""What a hook does with the gradient that it is handed: where it becomes zero or nan, and whether it goes elsewhere.

Every torch call of the hook is heard. What is computed from the gradient is followed by its memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gradkit import calls
from gradkit.ledger import leaves, storage_key
from gradkit.traces import Point
from gradkit.unreal import has_no_numbers

FINE, ZERO, NAN = "fine", "zero", "nan"
_HANDED_OUT = frozenset("tolist numpy __array__ data_ptr untyped_storage storage __dlpack__".split())


def state(grad: torch.Tensor | None) -> str:
    """``"zero"`` (also if there is none), ``"nan"`` (it holds nan or inf) or ``"fine"``.

    Example:
        >>> state(torch.zeros(2)), state(torch.tensor([1.0, torch.nan])), state(torch.ones(2)), state(None)
        ('zero', 'nan', 'fine', 'zero')
    """
    if grad is None:
        return ZERO
    if has_no_numbers(grad) or not grad.numel():
        return FINE
    values = grad.detach().coalesce().values() if grad.layout is torch.sparse_coo else grad.detach()
    if not bool(values.any()):
        return ZERO
    return FINE if bool(torch.isfinite(values).all()) else NAN


class Watch(TorchFunctionMode):
    """Follows some gradients through one call of a hook.

    Args:
        grads: what the hook is handed.
        code: the hook's own.

    Attributes:
        used: something else was changed by the gradient's numbers, as an optimizer would.
        put: where in the hook itself a ``.grad`` was last set, None if nowhere.

    Example:
        >>> def hook(grad): return grad * 0
        >>> with Watch([torch.ones(2)], hook.__code__) as watch:
        ...     watch.point_of(hook(watch.given[0]))[0] is hook.__code__
        True
    """

    def __init__(self, grads: Iterable[torch.Tensor], code: CodeType | None) -> None:
        super().__init__()
        self.given = list(grads)
        self.used = False
        self.put: Point | None = None
        self._code = code
        self._alive: list[torch.Tensor] = []
        self._states: dict[int, tuple[str, Point | None]] = {}
        for grad in self.given:
            self._note(grad, state(grad), None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._follow(_name(func), args, kwargs, result, sys._getframe(1))
        return result

    def point_of(self, result: torch.Tensor | None) -> Point | None:
        """Where in the hook itself the gradient became what ``result`` is; None if not seen."""
        return self._states.get(storage_key(result), ("", None))[1] if result is not None else None

    def kept(self) -> bool:
        """Whether the gradient, or something made of it, is used or held elsewhere after the hook; call this last."""
        fine = [x for x in self._alive if self._states[storage_key(x)][0] != ZERO]
        still = [weakref.ref(x) for x in fine]
        fine.clear()
        self._alive.clear()
        self.given.clear()
        return self.used or any(one() is not None for one in still)

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any, frame: FrameType) -> None:
        if name == "grad=":
            self.put = self._own(frame)
            return
        found = [x for x in leaves((*args, *kwargs.values())) if isinstance(x, torch.Tensor)]
        ours = [x for x in found if storage_key(x) in self._states]
        if not ours:
            return
        target = args[0] if calls.writes(name) else kwargs.get("out")
        if target is not None:
            if not isinstance(target, torch.Tensor) or storage_key(target) not in self._states:
                self.used = True
                return
            made = [target]
        else:
            made = [x for x in leaves([result]) if isinstance(x, torch.Tensor)]
            self.used |= name in _HANDED_OUT or result is None
        for one in made:
            self._made(one, ours, frame)

    def _made(self, made: torch.Tensor, ours: list[torch.Tensor], frame: FrameType) -> None:
        now = state(made)
        before = [self._states[storage_key(x)] for x in ours if x.numel() == made.numel()]
        alike = [point for kind, point in before if kind == now]
        if now == FINE:
            point = None
        elif alike and (now == NAN or len(alike) == len(before)):
            point = alike[0]
        else:
            point = self._own(frame)
        self._note(made, now, point)

    def _note(self, tensor: torch.Tensor, kind: str, point: Point | None) -> None:
        self._alive.append(tensor)
        self._states[storage_key(tensor)] = kind, point

    def _own(self, frame: FrameType | None) -> Point | None:
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return (frame.f_code, frame.f_lasti) if frame is not None else None


def _name(func: Any) -> str:
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        return f"{func.__self__.__name__}{'=' if name == '__set__' else ''}"
    return name
