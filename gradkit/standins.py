"""Stand-ins that call a hook of the user's on a copy of the gradient, throw away what comes of it, and tell of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradkit.faults import on_behalf
from gradkit.tampering import FINE, NAN, ZERO, Watch, state
from gradkit.traces import Chain, Key, Point

HIDDEN, REFUSED = "hidden", "refused"


@dataclass(frozen=True)
class Tampered:
    """One call of a hook that put something wrong in the place of a gradient.

    Attributes:
        kind: ``"zero"`` (or nothing at all), ``"nan"``, or ``"hidden"``: zeros for a gradient that held nan or inf;
            ``"refused"``: what torch does not take.
        key: equal for hooks of the same code.
        code: the hook's own, None for a function of torch's.
        point: where in the hook that came about, None if not seen.
        registered: the user's frames where it was registered in this run, ``()`` if before.
        owner: name of the parameter that it is a hook of, ``""`` if of anything else.
        emptied: it worked on a parameter's ``.grad``, after that was filled.
        partial: of a parameter's hook: it lets a gradient through that is as large and spread evenly, as a mask does.
    """

    kind: str
    key: Key
    code: CodeType | None
    point: Point | None
    registered: Chain
    owner: str = ""
    emptied: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Hook:
    """A hook of the user's: what is called, and what ``Tampered`` is to say of it."""

    call: Callable[..., Any]
    key: Key
    code: CodeType | None
    registered: Chain
    owner: str
    tell: Callable[[Tampered], None]

    def on_tensor(self, grad: torch.Tensor) -> None:
        """Stand for a hook of ``Tensor.register_hook``."""
        with torch._C.DisableTorchFunction():
            before, given = state(grad), grad.clone()
        with Watch([given], self.code) as watch, _heard(watch):
            result = self._call(given)
        if result is not None and not _fits(result, grad):
            self._refuse()
            return
        after = given if result is None else result
        kind, point = _kind(before, after), watch.point_of(after)
        del given, result, after
        if kind:
            self._say(kind, point, watch, grad)

    def on_filled(self, parameter: torch.Tensor) -> None:
        """Stand for a hook of ``register_post_accumulate_grad_hook``; the parameter keeps its ``.grad``."""
        filled = parameter.grad
        if filled is None:
            self._call(parameter)
            return
        try:
            with torch._C.DisableTorchFunction():
                before, parameter.grad = state(filled), filled.clone()
            with Watch([parameter.grad], self.code) as watch, _heard(watch):
                if self._call(parameter) is not None:
                    self._refuse()
            kind = _kind(before, parameter.grad)
            point = watch.point_of(parameter.grad) or watch.put
            if kind:
                self._say(kind, point, watch, filled, parameter)
        finally:
            parameter.grad = filled

    def on_module(self, module: Any, *groups: Any) -> None:
        """Stand for a hook of a module, which is handed the gradients of its inputs and outputs, or of its outputs."""
        with torch._C.DisableTorchFunction():
            copies = [tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in group) for group in groups]
        with Watch([x for group in copies for x in group if isinstance(x, torch.Tensor)], self.code) as watch:
            result = self._call(module, *copies)
        after = copies[0] if result is None else result
        if not _fit(after, groups[0]):
            self._refuse()
            return
        for before, now in zip(groups[0], after, strict=True):
            kind = _kind(state(before), now) if isinstance(before, torch.Tensor) else ""
            if kind:
                self.tell(Tampered(kind, self.key, self.code, watch.point_of(now), self.registered))
                break

    @on_behalf
    def _call(self, *given: Any) -> Any:
        return self.call(*given)

    def _refuse(self) -> None:
        self.tell(Tampered(REFUSED, self.key, self.code, None, self.registered, self.owner))

    def _say(
        self, kind: str, point: Point | None, watch: Watch, grad: torch.Tensor, parameter: torch.Tensor | None = None
    ) -> None:
        """Tell of it, unless it is a parameter's hook that has put the gradient to use itself."""
        partial = False
        if self.owner:
            if watch.kept():
                return
            partial = kind == ZERO and self._lets_through(grad, parameter)
        emptied = parameter is not None
        self.tell(Tampered(kind, self.key, self.code, point, self.registered, self.owner, emptied, partial))

    def _lets_through(self, grad: torch.Tensor, parameter: torch.Tensor | None) -> bool:
        if grad.layout is not torch.strided:
            return False
        with torch.no_grad(), torch._C.DisableTorchFunction(), contextlib.suppress(Exception):
            even = torch.full_like(grad, float(grad.norm()) / math.sqrt(grad.numel()))
            if parameter is None:
                result = self.call(even)
                return state(even if result is None else result) != ZERO
            parameter.grad = even
            self.call(parameter)
            return state(parameter.grad) != ZERO
        return False


def _fits(result: Any, grad: Any) -> bool:
    """Whether torch takes it in the place of a gradient."""
    if not isinstance(result, torch.Tensor) or not isinstance(grad, torch.Tensor):
        return result is None
    return result.shape == grad.shape and result.dtype == grad.dtype and result.device == grad.device


def _fit(results: Any, grads: Any) -> bool:
    if not isinstance(results, (tuple, list)) or len(results) != len(grads):
        return False
    return all(result is None or _fits(result, grad) for result, grad in zip(results, grads, strict=True))


def _kind(before: str, after: torch.Tensor | None) -> str:
    """What was put in the place of a gradient, ``""`` if nothing that matters."""
    now = state(after)
    if before == FINE:
        return now if now != FINE else ""
    return HIDDEN if (before, now) == (NAN, ZERO) else ""


@contextlib.contextmanager
def _heard(watch: Watch) -> Iterator[None]:
    """An optimizer that steps in the hook makes use of the gradient."""

    def stepped(*_: Any) -> None:
        watch.used = True

    handle = register_optimizer_step_pre_hook(stepped)
    try:
        yield
    finally:
        handle.remove()
